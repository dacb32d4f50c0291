/// Local polynomial regression: around every query a polynomial is fitted to the values that a
/// memory keeps, and what it is at the query is the output.
///
///     min over c, M:  sum_i p_i |v_i - c - M f(k_i - q)|^2 + ridge |M|^2,    y = c
///     p_i = w_i s(k_i, q) / sum_j w_j s(k_j, q)
///
/// f holds the monomials of degree 1 .. p, each mixed one once. With f_i = f(k_i - q), f_bar their
/// mean under p and Sigma their covariance,
///
///     z = -(Sigma + ridge I)^-1 f_bar,    y = sum_i p_i (1 + (f_i - f_bar) . z) v_i
///
/// over the pairs i that token t sees: those of the state, then the call's own up to t (before t
/// under read_before; all where the call is not causal), the latest `window` of them. Where Sigma +
/// ridge I is singular z is the solution of least norm. docs/local_polynomial.md derives it.
///
/// | argument         | shape                | meaning                                            |
/// |------------------|----------------------|----------------------------------------------------|
/// | q                | [B, T, Hq, Dk]       | queries; absent: write only                        |
/// | k, v             | [B, T, Hk or Hv, D]  | pairs; absent: read only                           |
/// | log_decay        | [B, T, H]            | <= 0; where exp() is 0, all is forgotten           |
/// | importance       | [B, T, H]            | >= 0; absent: 1                                    |
/// | log_importance   | [B, T, H]            | its logarithm                                      |
/// | bandwidth, ridge | [H]                  | >= 0; absent: those of the options                 |
/// | state_k, state_v | [N, S, H, D]         | absent: none                                       |
/// | state_log_weight | [N, S, H]            | where pairs have weights                           |
/// | state_length     | [N, H]               | int64: pairs held, of S                            |
/// | y                | [B, T, heads, Dv]    | max(H, Hq) heads                                   |
/// | status           | [B, T, heads]        | int8: 1 of least norm, 3 no neighbour; else as is  |
///
/// float32, float64 or bfloat16 each, the state float16, too; any strides but a contiguous last
/// axis. Hk and Hv divide H;
/// Hq divides H or is a multiple of it. Arithmetic is done in float32, or in float64 where the
/// state (without one, v) is that; what is nearly singular in float64. NaN reaches the queries that
/// see it and no other.
///
/// Cost a query and pair, with F monomials: F^2 flops for the covariance, 4 (Dk + F) + 2 Dv beside
/// it; a query, F^3 / 3. In their place n < F pairs cost n^2 F + n^3 / 3. Degree 1 with 64 channels
/// or more, where variances are small beside the ridge, costs 4 Dk a pair and iteration of
/// conjugate gradients. Memory: some F^2 numbers a worker and the shares of 8192 pairs, nothing
/// that grows with the pairs. The number of threads changes no bit. The caller validates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "src/engines/common/output_norm.h"
#include "src/engines/common/queries.h"
#include "src/engines/local_polynomial/monomials.h"
#include "ttr/executor.h"
#include "ttr/tensor.h"

namespace ttr::local_polynomial {

using common::OutputNorm;

struct Options : common::QueryOptions {
  double ridge = 0;
  std::int64_t degree = 1;
  std::int64_t window = 0;  ///< 0: none
  OutputNorm output_norm = OutputNorm::kNone;
};

struct Call : common::QueriedTensors {
  TensorView ridge{};
};

/// What scratch depends on.
struct Sizes : common::QuerySizes {
  std::int64_t degree = 1;
};

/// Bytes of scratch that Forward needs with this many threads. What is singular allocates beside.
std::size_t ScratchBytes(const Sizes& sizes, int threads);

/// Memorizes every token and predicts at every query. `scratch` (any alignment) holds
/// ScratchBytes() at least, or is empty, and then it is allocated. MonomialsOf() the keys are
/// kMostMonomials at most.
void Forward(const Options& options, const Call& call, Executor& executor,
             std::span<std::byte> scratch = {});

/// The predictions alone: the state stays as it is.
void Predict(const Options& options, const Call& call, Executor& executor,
             std::span<std::byte> scratch = {});

}  // namespace ttr::local_polynomial
