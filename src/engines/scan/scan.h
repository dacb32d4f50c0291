/// Scan: memories whose decay acts on every entry by itself, so that tokens do not combine in
/// matrix products. A recurrence over tokens, SIMD over entries.
///
///     h_t = g_t (.) h_{t-1} + w_t (.) v_t                    y_t = scale Re h_t      (a vector)
///     M_t[n,c] = exp(dt_c a_cn) M_{t-1}[n,c] + w k_n v_c     y_t = scale q_t M_t     (a matrix)
///
/// (read before: h_{t-1}, M_{t-1}). g = exp(log_decay + i phase); a matrix memory is one whose
/// state has four axes.
///
/// | argument         | shape                 | meaning                                          |
/// |------------------|-----------------------|--------------------------------------------------|
/// | v                | [B, T, H or Hv, Dv]   | values; absent: read only                        |
/// | state            | [B or N, H, (Dk,) Dv] | float32, float64; updated in place               |
/// | y                | [B, T, heads, Dv]     | max(H, Hq) heads; absent: write only             |
/// | importance       | [B, T, H]             | w >= 0; absent: 1                                |
/// | vectors:         |                       |                                                  |
/// | log_decay        | [B, T, H(, Dv)]       | <= 0, one number a token or one a channel        |
/// | phase, v_im      | [B, T, H, Dv]         | complex memories (with state_im); v_im may lack  |
/// | matrices:        |                       |                                                  |
/// | q, k             | [B, T, Hq or Hk, Dk]  | both or one of them                              |
/// | dt               | [B, T, H, Dv]         | >= 0                                             |
/// | a                | [H, Dv, Dk]           | <= 0                                             |
///
/// float32, float64 or bfloat16 each; any strides but a contiguous last axis. Hk and Hv divide H;
/// Hq divides H or is a multiple of it. All arithmetic is done in the state's dtype. Data may hold
/// NaN and infinities: they reach what depends on them and nothing else; a decay of 0 forgets them.
///
/// Cost a token and channel: one exp, some ten flops, every number read or written once. Matrices:
/// one exp and six flops an entry. The number of threads changes no bit. The caller validates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "src/engines/common/output_norm.h"
#include "ttr/dtype.h"
#include "ttr/executor.h"
#include "ttr/tensor.h"

namespace ttr::scan {

/// What the values of a vector memory are multiplied by, beside the input `importance`.
enum class Weight : std::uint8_t {
  kOne,
  kComplement,      ///< 1 - |g| of each channel
  kRootComplement,  ///< sqrt(1 - |g|^2) of each channel
};

using common::OutputNorm;

struct Options {
  Weight weight = Weight::kOne;
  bool read_before = false;
  bool normalise_qk = false;                   ///< x / sqrt(|x|^2 + 1e-6) for q and k
  double scale = 1;                            ///< multiplies what is read
  OutputNorm output_norm = OutputNorm::kNone;  ///< of y over Dv; zero stays zero

  /// What |y|^2 of `count` outputs is divided by under the norm.
  double NormLength(std::int64_t count) const {
    return output_norm == OutputNorm::kRms ? static_cast<double>(count) : 1;
  }
};

struct Call {
  TensorView v, v_im, importance;
  TensorView log_decay, phase;
  TensorView q, k, dt, a;
  std::span<const double> decay_factors;     ///< [H], in (0, 1]: constant decay; empty: none
  std::span<const std::int64_t> cu_seqlens;  ///< [N + 1]; empty: not packed (B sequences)
  std::span<const std::int64_t> slots{};     ///< [N] rows of the state; empty: 0 .. N - 1
  TensorView state, state_im;
  TensorView y;
  std::span<std::byte> saved;  ///< SavedBytes(), where Forward leaves what Backward reads; or empty
};

/// What scratch depends on.
struct Sizes {
  std::int64_t key_dim = 0;    ///< 0: the memory is a vector
  std::int64_t value_dim = 1;  ///< of a vector memory: H Dv where heads adjoin
  std::int64_t queries = 1;    ///< query heads that read one memory: max(1, Hq / H)
  DType state = DType::kFloat32;
  bool whole_rows = false;  ///< of y: where there is an output norm
};

/// Bytes of scratch that Forward needs with this many threads; the same for any number of tokens.
std::size_t ScratchBytes(const Sizes& sizes, int threads);

/// Bytes of what Forward can save for Backward: a state each 32 tokens of all. `heads` memories of
/// `sizes` with value_dim columns each.
std::size_t SavedBytes(const Sizes& sizes, std::int64_t heads, std::int64_t tokens, bool complex);

/// Memorizes every token and reads for it; the state is left as after the last. `scratch` (any
/// alignment) holds ScratchBytes() at least, or is empty, and then it is allocated.
void Forward(const Options& options, const Call& call, Executor& executor,
             std::span<std::byte> scratch = {});

/// The SIMD target that the kernels themselves report they were compiled for, as chosen now.
const char* KernelTarget();

}  // namespace ttr::scan
