/// Kernel ridge regression in the span of at most n keys, the dictionary D: kernel recursive least
/// squares.
///
///     z(x) = L^-1 k(D, x),   L L^T = k(D, D)         coordinates of x in the span of D
///     A = A' + w z z^T,   B = B' + w v z^T,   z = z(k);   y = B A^-1 z(q)
///
/// k joins D where k(k, k) - |z|^2 > tolerance k(k, k), as long as D has fewer than n keys. It adds
/// one coordinate, sqrt(k(k, k) - |z|^2), which has its ridge in A. A and B are held as the
/// triangular root R^T R = A and E = R^-T B^T, to which a pair is a row that rotations take in:
/// half the digits that A needs, and no system is ever solved anew.
///
/// | argument         | shape                | meaning                                            |
/// |------------------|----------------------|----------------------------------------------------|
/// | q                | [B, T, Hq, Dk]       | queries; absent: write only                        |
/// | k, v             | [B, T, Hk or Hv, D]  | pairs; absent: read only                           |
/// | importance       | [B, T, H]            | w >= 0; absent: 1                                  |
/// | ridge, bandwidth | [H]                  | >= 0; absent: those of the options                 |
/// | e                | [N, H, n, Dv]        | E; these five are updated, or all absent: nothing  |
/// | r, l             | [N, H, n, n]         | R, upper, and L, lower triangular (kMostPlain)     |
/// | keys             | [N, H, n, Dk]        | D                                                  |
/// | count            | [N, H]               | int64: keys of D, up to n                          |
/// | y                | [B, T, heads, Dv]    | max(H, Hq) heads                                   |
///
/// float32, float64 or bfloat16 each, the state float32 or float64; any strides but a contiguous
/// last axis. Hk and Hv divide H; Hq divides H or is a multiple of it. All arithmetic is done in
/// float64, so that keys join in every call and target as they do in the definition.
///
/// Cost a token: n (Dk + n / 2) for its coordinates and n (n / 2 + Dv) for its rotations, times 2
/// and 6 flops; a query 2 n (Dk + n + Dv). A call copies the state, 2 n^2 + n (Dk + Dv) numbers a
/// memory. The number of threads changes no bit. NaN reaches the tokens that come after it. The
/// caller validates. Source: Engel, Mannor, Meir (2004).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "src/engines/common/queries.h"
#include "ttr/executor.h"
#include "ttr/tensor.h"

namespace ttr::kernel_dictionary {

/// The kernel is a positive definite one, the scale >= 0.
struct Options : common::QueryOptions {
  double ridge = 0;
  std::int64_t budget = 1;  ///< n
  double tolerance = 0;     ///< in [0, 1)
};

struct Call : common::QueriedTensors {
  std::int64_t heads = 1;  ///< H
  TensorView ridge{};      ///< [H]
  TensorView e{}, r{}, keys{}, l{}, count{};
};

/// What scratch depends on.
struct Sizes {
  std::int64_t budget = 1, key_dim = 1, value_dim = 1;
};

/// Bytes of scratch that Forward needs with this many threads.
std::size_t ScratchBytes(const Sizes& sizes, int threads);

/// Memorizes every token and answers every query. `scratch` (any alignment) holds ScratchBytes()
/// at least, or is empty, and then it is allocated.
void Forward(const Options& options, const Call& call, Executor& executor,
             std::span<std::byte> scratch = {});

}  // namespace ttr::kernel_dictionary
