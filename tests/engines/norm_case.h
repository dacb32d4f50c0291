// Calls of the norms for tests, and their equations written out in double.
#pragma once

#include <cstdint>
#include <ostream>
#include <vector>

#include "tests/engines/short_conv_case.h"
#include "ttr/norm.h"
#include "ttr/tensor.h"

namespace ttr::test {

struct NormCase {
  RowNorm kind = RowNorm::kRms;
  double eps = 1e-5;
  std::int64_t batch = 1, tokens = 3, heads = 2, dim = 5;
  bool weight = false, bias = false, gate = false, shared = false;
  DType data = DType::kFloat32;
  Gate gate_kind = Gate::kSilu;
  bool gate_first = false;
};

std::ostream& operator<<(std::ostream& out, const NormCase& c);

std::vector<NormCase> NormCases();

/// Random inputs; y of NaN.
struct NormProblem {
  explicit NormProblem(const NormCase& given);

  Norm norm() const {
    return {c.kind, c.eps, weight.view(), bias.view(), c.gate_kind, c.gate_first};
  }
  NormInputs inputs() const { return {x.view(), gate.view()}; }

  NormCase c;
  Tensor x, weight, bias, gate, y;
};

/// The equations of norm.h, and for every y a bound of what rounding may change.
struct NormExpected {
  std::vector<double> y, bound;
};
NormExpected Normed(const NormProblem& problem);

}  // namespace ttr::test
