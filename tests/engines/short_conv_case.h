// Calls of the short convolution for tests, and the convolution written out in double.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "ttr/short_conv.h"
#include "ttr/tensor.h"

namespace ttr::test {

struct ConvCase {
  std::string name;
  std::int64_t batch = 1, tokens = 9, heads = 2, dim = 5, width = 4;
  bool silu = false, bias = false, state = true;
  DType data = DType::kFloat32, parameters = DType::kFloat32, states = DType::kFloat32;
  std::vector<std::int64_t> cu_seqlens{};
  std::int64_t more_rows = 0;       ///< of the state, beside W - 1
  bool channel_by_channel = false;  ///< the state's tokens are innermost

  std::int64_t rows() const { return width - 1 + more_rows; }
  std::int64_t sequences() const {
    return cu_seqlens.empty() ? batch : static_cast<std::int64_t>(cu_seqlens.size()) - 1;
  }
};

std::ostream& operator<<(std::ostream& out, const ConvCase& c);

std::vector<ConvCase> ConvCases();

/// Random inputs; y of NaN.
struct ConvProblem {
  explicit ConvProblem(const ConvCase& c);

  ShortConv conv() const { return {weight.view(), bias.view(), c.silu}; }
  ShortConvInputs inputs() const;
  /// Tokens begin .. begin + count of all sequences (not packed).
  ShortConvInputs Tokens(std::int64_t begin, std::int64_t count) const;

  ConvCase c;
  Tensor x, weight, bias, y;
  Tensor state_memory;
  TensorView state;  ///< of it
};

/// By the definition, in double: y, the state after the last token, and for every y a bound of what
/// rounding may change.
struct ConvExpected {
  std::vector<double> y, bound, state;
};
ConvExpected Convolved(const ConvProblem& problem);

/// |actual - expected| <= bound, entry by entry; NaN where NaN is expected.
void ExpectWithin(const TensorView& actual, const std::vector<double>& expected,
                  const std::vector<double>& bound, const std::string& what);

/// A tensor [B, R, H, D], or the memory of one that has R innermost.
Tensor ConvStateMemory(const ConvCase& c, DType dtype);
/// That memory as [B, R, H, D].
TensorView ConvStateView(const ConvCase& c, const Tensor& memory);

/// Unit normal numbers, from a stream of their own.
void FillNormal(const Tensor& tensor, std::uint64_t stream);
void FillNan(const Tensor& tensor);

}  // namespace ttr::test
