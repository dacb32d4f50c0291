/// Kernel (ridge) regression on the pairs that a memory keeps: every prefix from one factor.
///
///     y_t = V_t^T (k(K_t, K_t) + ridge W_t^-1)^-1 k(K_t, q_t)
///
/// over the pairs i that token t sees: those of the state, then the call's own up to t (before t
/// under read_before; all where the call is not causal). W = diag(w), the importance of the pairs;
/// pairs of weight 0 drop out. With R = W^1/2 and D the diagonal that makes that of A one,
///
///     A = D (R k(K, K) R + ridge I) D = L L^T,   E = L^-1 D R V,   Z = L^-1 D R k(K, Q)
///     y_t = sum_i Z_it E_i over the pairs that t sees
///
/// as the leading block of L is the factor of a prefix, whose forward substitution ends earlier.
///
/// | argument         | shape                | meaning                                            |
/// |------------------|----------------------|----------------------------------------------------|
/// | q                | [B, T, Hq, Dk]       | queries; absent: write only                        |
/// | k, v             | [B, T, Hk or Hv, D]  | pairs; absent: read only                           |
/// | importance       | [B, T, H]            | >= 0; absent: 1                                    |
/// | log_importance   | [B, T, H]            | its logarithm                                      |
/// | ridge, bandwidth | [H]                  | >= 0; absent: those of the options                 |
/// | state_k, state_v | [N, S, H, D]         | absent: none                                       |
/// | state_log_weight | [N, S, H]            | where pairs have weights                           |
/// | state_length     | [N, H]               | int64: pairs held, of S                            |
/// | y                | [B, T, heads, Dv]    | max(H, Hq) heads                                   |
/// | status           | [B, T, heads]        | int8, 1 where the prefix is singular (else as it is)
/// |
///
/// float32, float64 or bfloat16 each, the state float16, too; any strides but a contiguous last
/// axis. Hk and Hv divide H;
/// Hq divides H or is a multiple of it. All arithmetic is done in float32, or in float64 where the
/// state (without one, v) is that; a prefix whose factor has a pivot that may be rounding is solved
/// in float64 and with least norm (minimum_norm-inl.h). NaN reaches the tokens that come after it.
///
/// Cost of N pairs, one query each: 2 N^3 / 3 flops. Memory: half of an N x N matrix. The number of
/// threads changes no bit. The caller validates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "src/engines/common/queries.h"
#include "ttr/executor.h"
#include "ttr/tensor.h"

namespace ttr::kernel_regression {

/// The kernel is a positive definite one, the scale >= 0.
struct Options : common::QueryOptions {
  double ridge = 0;
};

struct Call : common::QueriedTensors {
  TensorView ridge{};  ///< [H]
  /// [N, H, FactorNumbers()] of the arithmetic's type, zeros at first, or absent: the factor of the
  /// pairs of a state that goes from call to call with it.
  TensorView factor{};
};

/// What scratch depends on.
struct Sizes : common::QuerySizes {
  std::int64_t held = 0;     ///< pairs of a state
  std::int64_t queried = 0;  ///< tokens of a call that only reads; only a backward pass asks

  std::int64_t pairs() const { return held + tokens; }
};

/// Bytes of scratch that Forward needs with this many threads.
std::size_t ScratchBytes(const Sizes& sizes, int threads);

/// Numbers of Call::factor a memory, for a state with room for `sizes.held` pairs.
std::int64_t FactorNumbers(const Sizes& sizes);

/// Memorizes every token and answers every query. `scratch` (any alignment) holds ScratchBytes()
/// at least, or is empty, and then it is allocated.
void Forward(const Options& options, const Call& call, Executor& executor,
             std::span<std::byte> scratch = {});

/// The answers alone: the state stays as it is.
void Retrieve(const Options& options, const Call& call, Executor& executor,
              std::span<std::byte> scratch = {});

}  // namespace ttr::kernel_regression
