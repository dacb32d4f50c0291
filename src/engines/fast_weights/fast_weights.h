/// Fast weights: a linear memory written by one rank-one step a token.
///
///     M_t = g_t M_{t-1} + b_t (v_t - M~ k_t) k_t^T      delta rule, M~ = g_t M_{t-1}
///     M_t = g_t M_{t-1} + b_t v_t k_t^T                 Hebbian
///     y_t = scale M_t q_t                               (read before: scale M_{t-1} q_t)
///
/// Chunks of tokens read the memory once, solve a small triangular system for the innovations, and
/// write the memory once (Yang et al. 2024, 2406.06484 and 2412.06464); strips of value columns of
/// the memory stay in the first-level cache. Sequences of a few tokens (decode) update the state
/// where it lies, with one read and one write.
///
/// | argument  | shape                | dtype                       | meaning |
/// |-----------|----------------------|-----------------------------|--------------------------------|
/// | q         | [B, T, Hq, Dk]       | float32, float64, bfloat16  | queries; absent: write only |
/// | k         | [B, T, Hk, Dk]       | the same                    | keys; absent: read only | | v
/// | [B, T, Hv, Dv]       | the same                    | values; absent where k is      | |
/// log_decay | [B, T, H]            | the same                    | log g_t <= 0, -inf forgets all
/// | | step      | [B, T, H]            | the same                    | b of the step rules | |
/// state     | [B or N, H, Dk, Dv]  | float32, float64            | M transposed, updated in place
/// | | y         | [B, T, max(H,Hq), Dv]| float32, float64, bfloat16  | absent where q is |
///
/// Any strides but a contiguous last axis; gates ([B, T, H]) may have any stride in every axis. Hk
/// and Hv divide H; Hq divides H or is a multiple of it. All arithmetic is done in the state's
/// dtype. Data may hold NaN and infinities: they reach the tokens that depend on them and no
/// others; a log_decay of -inf forgets them exactly.
///
/// Cost a token and memory: 6 Dk Dv flops (Hebbian 4 Dk Dv) and O(C (Dk + Dv)) more, C = 8.
/// The same bits for any number of threads. The caller validates shapes, dtypes and overlap.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "ttr/dtype.h"
#include "ttr/executor.h"
#include "ttr/tensor.h"

namespace ttr::fast_weights {

enum class Write : std::uint8_t { kHebbian, kDelta };

/// Where b_t comes from; Hebbian memories take the first two. With n = |k_t|^2 (after normalise_qk)
/// and s the input `step`:
enum class Step : std::uint8_t {
  kOne,       ///< 1
  kInput,     ///< s
  kNlms,      ///< eta / (n + eps); 0 for a zero key
  kLonghorn,  ///< s / (1 + s n)
  kEfla,      ///< (1 - exp(-s n)) / n, s where n = 0
};

enum class OutputNorm : std::uint8_t { kNone, kL2, kRms };

struct Options {
  Write write = Write::kDelta;
  Step step = Step::kInput;
  double eta = 1;  ///< NLMS
  double eps = 0;  ///< NLMS
  bool read_before = false;
  bool normalise_qk = false;                   ///< x / sqrt(|x|^2 + 1e-6) for q and k
  double scale = 1;                            ///< multiplies q, after normalise_qk
  OutputNorm output_norm = OutputNorm::kNone;  ///< of y over Dv; zero stays zero
  double output_norm_eps = 0;                  ///< added to the mean square or the squared norm
};

struct Call {
  TensorView q, k, v;
  TensorView log_decay;                      ///< absent: no decay, or a constant one
  TensorView step;                           ///< given exactly where the step rule reads it
  std::span<const double> decay_factors;     ///< [H], in (0, 1]: constant decay; empty: none
  std::span<const std::int64_t> cu_seqlens;  ///< [N + 1]; empty: not packed (B sequences)
  TensorView state;
  TensorView y;
};

/// What scratch depends on.
struct Sizes {
  std::int64_t tokens = 0;  ///< of the longest sequence
  std::int64_t key_dim = 1;
  std::int64_t value_dim = 1;
  std::int64_t queries = 1;  ///< query heads that read one memory: max(1, Hq / H)
  DType state = DType::kFloat32;
};

/// Bytes of scratch that Forward needs with this many threads; grows with `tokens` up to one block
/// of 32 tokens and not beyond.
std::size_t ScratchBytes(const Sizes& sizes, int threads);

/// Memorizes and answers every token; the state is left as after the last. `scratch` (any
/// alignment) holds ScratchBytes() at least, or is empty, and then it is allocated.
void Forward(const Options& options, const Call& call, Executor& executor,
             std::span<std::byte> scratch = {});

/// The SIMD target that the kernels themselves report they were compiled for, as chosen now.
const char* KernelTarget();

}  // namespace ttr::fast_weights
