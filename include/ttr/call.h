/// What a call of a layer is given beside its inputs and its state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "ttr/inputs.h"
#include "ttr/tensor.h"

namespace ttr {

class Executor;

/// What became of the regression of one token and head. NaN or infinity in the data is data.
enum class Status : std::int8_t {
  kSolved = 0,
  kRegularised = 1,  ///< singular: the smallest-norm solution
  /// An iteration missed its tolerance or left more of the right-hand side than answering 0 does
  /// (it diverged: a step that is too large), or an early factor failed.
  kNotConverged = 2,
  kSingular = 3,  ///< no neighbour has weight, or nothing can be solved: y = 0
};

/// Memory of the caller's that receives results. What a regression knows beside y (slope, leverage,
/// effective_pairs) is of the outputs before their norm. Engines that do not have it leave the call
/// to the definition, in double precision and much slower. No element of it is written twice, and
/// none of it overlaps anything else of the call.
struct Outputs {
  TensorView y{};       ///< [B, T, max(H, Hq), Dv], float32, float64, bfloat16 or float16
  TensorView status{};  ///< optional: int8 [B, T, max(H, Hq)], a Status each
  /// optional: int64 [B, T, max(H, Hq)], the steps that each answer took; 0: it was not iterated
  TensorView iterations{};
  /// optional: float64 [B, T, max(H, Hq)], |q - (A + R) x| / |q| as the iteration left it, of the
  /// system that an answer solves; 0: it was not iterated. As much work as one step more.
  TensorView residual{};
  /// optional: float64 [B, T, max(H, Hq), Dk Dv], of local polynomials: the slope M^T of the fit
  /// at its query, v = c + M (k - q) + ...; 0 where nothing is fitted
  TensorView slope{};
  /// optional: float64 [B, T, max(H, Hq)], of exact least squares h = q^T A^-1 q, A with its ridge;
  /// of kernel regression (k(q, q) - k(q, K) (k(K, K) + ridge W^-1)^-1 k(K, q)) / ridge, which is
  /// the same under the linear kernel. Where value i has noise of variance s^2 / w_i about a map
  /// whose own variance is s^2 / ridge, the answer has the variance s^2 h, and a value at q is
  /// forecast with s^2 (1 + h). Without a ridge: of the part of q that keys span.
  TensorView leverage{};
  /// optional: float64 [B, T, max(H, Hq)], of weighted means and local polynomials: 1 / sum p_i^2,
  /// p_i the shares of the pairs; as many pairs of one weight vary as much (Kish). 0 without any
  TensorView effective_pairs{};
};

/// An output beside y, and what it is made of.
struct ReportField {
  std::string_view name;
  TensorView Outputs::* view;
  DType dtype;
  bool of_channels = false;  ///< a number for every key and value channel, [.., Dk Dv]
};
inline constexpr ReportField kReports[] = {
    {"status", &Outputs::status, DType::kInt8},
    {"iterations", &Outputs::iterations, DType::kInt64},
    {"residual", &Outputs::residual, DType::kFloat64},
    {"slope", &Outputs::slope, DType::kFloat64, true},
    {"leverage", &Outputs::leverage, DType::kFloat64},
    {"effective_pairs", &Outputs::effective_pairs, DType::kFloat64},
};

/// Does a layer of this recipe report it? What its recipe has not is refused by name.
bool HasReport(const Recipe& recipe, const ReportField& report);
/// [B, T, max(H, Hq)], and the channels.
Shape ReportShape(const ReportField& report, const Dims& dims);

/// Where and in what a call runs.
struct CallOptions {
  Executor* executor = nullptr;    ///< null: DefaultExecutor()
  std::span<std::byte> scratch{};  ///< at least ScratchBytes(); empty: allocated by the call
  /// At least SavedBytes(), at a multiple of 64, or empty. Forward leaves there what Backward of
  /// the same call would compute anew; Backward reads it, as often as is wanted. It holds no
  /// address, so that it may be moved to another multiple of 64 in between. The inputs must be the
  /// same: of another recipe, other sizes, dtypes or packing, or of another SIMD target it is an
  /// Error. Any number of threads, on either side.
  std::span<std::byte> saved{};
  /// Forward and Memorize may round what they multiply with the memory to bfloat16, where q, k and
  /// v are that: keys and queries as the memory meets them, the memory as it is read, and what is
  /// written of values. Sums, the state and what tokens of a chunk are to each other stay float32.
  /// Outputs are off by some 1e-3 of their root mean square, and change by as much with how a
  /// sequence is cut into calls. Where Layer::HasBFloat16Products() says no, of a few tokens and of
  /// calls that save, products are of float32 as ever.
  bool bfloat16_products = false;
};

}  // namespace ttr
