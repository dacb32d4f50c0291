/// What a call of a layer is given beside its inputs and its state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

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

/// Memory of the caller's that receives results. No element of it is written twice, and none of it
/// overlaps anything else of the call.
struct Outputs {
  TensorView y{};       ///< [B, T, max(H, Hq), Dv], float32, float64, bfloat16 or float16
  TensorView status{};  ///< optional: int8 [B, T, max(H, Hq)], a Status each
  /// optional: int64 [B, T, max(H, Hq)], the steps that each answer took; 0: it was not iterated
  TensorView iterations{};
  /// optional: float64 [B, T, max(H, Hq)], |q - (A + R) x| / |q| as the iteration left it, of the
  /// system that an answer solves; 0: it was not iterated. As much work as one step more.
  TensorView residual{};
};

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
