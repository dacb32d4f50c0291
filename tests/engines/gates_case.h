// Calls of the gates for tests, and their equations written out in double.
#pragma once

#include <cstdint>
#include <limits>
#include <ostream>
#include <vector>

#include "tests/engines/short_conv_case.h"
#include "ttr/gates.h"
#include "ttr/tensor.h"

namespace ttr::test {

struct GateCase {
  std::int64_t batch = 1, tokens = 3, heads = 2, dim = 5;  ///< dim 0: [B, T, H]
  bool rate = true;                                        ///< a decay, else a step
  bool bias = true;
  bool a_row = false, bias_row = true;  ///< [H, D], else [H]
  double low = 0, high = std::numeric_limits<double>::infinity();
  double scale = 1;  ///< of x
  DType data = DType::kFloat32, parameters = DType::kFloat32, outputs = DType::kFloat32;
};

std::ostream& operator<<(std::ostream& out, const GateCase& c);

std::vector<GateCase> GateCases();

/// Random inputs; y of NaN.
struct GateProblem {
  explicit GateProblem(const GateCase& given);

  void Apply(Executor& executor = DefaultExecutor()) const;

  GateCase c;
  Tensor x, a, bias, y;
};

/// Numbers, and for each a bound of what rounding may change.
struct GateExpected {
  std::vector<double> y, bound;
};
GateExpected Gated(const GateProblem& problem);

struct SkipCase {
  std::int64_t batch = 1, tokens = 3, heads = 2, dim = 5;
  bool x = true, z = true, d_row = false;
  DType data = DType::kFloat32, parameters = DType::kFloat32;
};

std::ostream& operator<<(std::ostream& out, const SkipCase& c);

std::vector<SkipCase> SkipCases();

struct SkipProblem {
  explicit SkipProblem(const SkipCase& given);

  SkipGate gate() const { return {d.view()}; }
  SkipGateInputs inputs() const { return {y.view(), x.view(), z.view()}; }

  SkipCase c;
  Tensor y, x, z, d, out;
};

GateExpected Skipped(const SkipProblem& problem);

}  // namespace ttr::test
