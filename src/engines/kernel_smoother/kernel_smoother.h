/// Kernel smoother: weighted means of the values that a memory keeps, and their unnormalised form.
///
///     y_t = sum_i w_i s(k_i, q_t) v_i / sum_i w_i s(k_i, q_t)        y_t = eta sum_i w_i s v_i
///
/// over the pairs i that token t sees: those of the state, then the call's own up to t (before t
/// under read_before; all where the call is not causal), the latest `window` of them. w_i is the
/// pair's importance times the decays since. Softmax attention is the exponential kernel.
///
/// | argument         | shape                | meaning                                            |
/// |------------------|----------------------|----------------------------------------------------|
/// | q                | [B, T, Hq, Dk]       | queries; absent: write only                        |
/// | k, v             | [B, T, Hk or Hv, D]  | pairs; absent: read only                           |
/// | log_decay        | [B, T, H]            | <= 0; where exp() is 0, all is forgotten           |
/// | importance       | [B, T, H]            | >= 0; absent: 1                                    |
/// | log_importance   | [B, T, H]            | its logarithm                                      |
/// | bandwidth        | [H]                  | >= 0; absent: that of the options                  |
/// | state_k, state_v | [N, S, H, D]         | absent: none                                       |
/// | state_log_weight | [N, S, H]            | where pairs have weights                           |
/// | state_length     | [N, H]               | int64: pairs held, of S                            |
/// | y                | [B, T, heads, Dv]    | max(H, Hq) heads                                   |
/// | status           | [B, T, heads]        | int8, 3 where no pair has weight (else as it is)   |
/// | effective_pairs  | [B, T, heads]        | float64: (sum w s)^2 / sum (w s)^2; absent: none   |
///
/// float32, float64 or bfloat16 each, the state float16, too; any strides but a contiguous last
/// axis. Hk and Hv divide H;
/// Hq divides H or is a multiple of it. All arithmetic is done in float32, or in float64 where the
/// state (without one, v) is that. NaN reaches the queries that see it and no other.
///
/// Cost a query and pair: 2 (Dk + Dv) flops and an exponential; of pairs that no query of a block
/// sees, nothing. Memory: a block of scores, nothing that grows with T^2. The number of threads
/// changes no bit. The caller validates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "src/engines/common/output_norm.h"
#include "src/engines/common/queries.h"
#include "ttr/executor.h"
#include "ttr/tensor.h"

namespace ttr::kernel_smoother {

using common::OutputNorm;
using Sizes = common::QuerySizes;

struct Options : common::QueryOptions {
  bool normalised = true;  ///< a mean; else the sum times eta
  double eta = 1;
  std::int64_t window = 0;  ///< 0: none
  OutputNorm output_norm = OutputNorm::kNone;
};

struct Call : common::QueriedTensors {
  std::span<std::byte>
      saved{};  ///< SavedBytes(), where Forward leaves what Backward reads; or empty
};

/// Bytes of scratch that Forward needs with this many threads.
std::size_t ScratchBytes(const Sizes& sizes, int threads);

/// Bytes of what Forward can save for Backward, of so many queries of all memories: a mean and the
/// logarithm of a sum of weights each. Not under the inverse distance.
std::size_t SavedBytes(const Sizes& sizes, std::int64_t queries);

/// Memorizes every token and computes the output of every query. `scratch` (any alignment) holds
/// ScratchBytes() at least, or is empty, and then it is allocated.
void Forward(const Options& options, const Call& call, Executor& executor,
             std::span<std::byte> scratch = {});

/// The outputs alone: the state stays as it is.
void Read(const Options& options, const Call& call, Executor& executor,
          std::span<std::byte> scratch = {});

}  // namespace ttr::kernel_smoother
