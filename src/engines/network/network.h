/// Memories that are small networks, trained while they read (TTT, Titans).
///
///     x_0 = k,  z_l = W_l^T x_{l-1} + b_l,  x_l = act(z_l)           l = 1 .. depth
///                                           or act(a) (.) g, z_l = [a; g], where it is gated
///     f(k) = z_depth, or LN(z_depth), or k + either;  LN of eps 1e-6 with a scale and a shift
///
/// Token j of a mini-batch writes the gradient g_j of 1/2 |f(k_j) - v_j|^2, or of -v_j . f(k_j),
/// all of them taken at the weights W_bar where the mini-batch began. Plainly, or with momentum m
/// and weight decay:
///
///     W_i = W_bar - row_i sum_{j <= i} step_j g_j           row_i = 1, or max(1/(i+1) + bias_i, 0)
///     S_i = m_i S_{i-1} - step_i g_i,  W_i = d_i W_{i-1} + S_i        d = 1 - (step) weight_decay
///
/// | argument               | shape                 | meaning                                     |
/// |------------------------|-----------------------|---------------------------------------------|
/// | q, k, v                | [B, T, heads, D]      | absent q: write only; absent k, v: read     |
/// | step                   | [B, T, H]             | >= 0                                        |
/// | momentum, weight_decay | [B, T, H]             | where the options have them                 |
/// | ln_weight, ln_bias     | [H, Dv]               | 1 and 0 where absent                        |
/// | row_bias               | [H, mini_batch]       | 0 where absent                              |
/// | weights                | [N, H, in, out]       | W; W_bar without momentum and decay         |
/// | anchors                | the same              | W_bar, where mini_batch > 1 and not above   |
/// | second                 | the same              | S, or G; without momentum, sum step g       |
/// | squares                | the same              | V                                           |
/// | position               | [N, H] int64          | tokens of the mini-batch so far             |
/// | y, status              | [B, T, max(H, Hq)(,D)]| status 2: weights or y left the finite      |
/// |                        |                       | numbers, and the token's inputs had not     |
///
/// float32, float64 or bfloat16 each; any strides but a contiguous last axis. Parameters are of one
/// dtype, float32 or float64, which is that of all arithmetic; they are updated in place. The
/// number of threads changes no bit. A factor of zero forgets NaN, too. The caller validates.
///
/// Cost: docs/networks.md derives the form in which a mini-batch is taken together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "src/engines/common/output_norm.h"
#include "src/simd/activation.h"
#include "ttr/dtype.h"
#include "ttr/executor.h"
#include "ttr/tensor.h"

namespace ttr::network {

enum class Decay : std::uint8_t { kNone, kCoupled, kDecoupled };
/// Steps that are adapted for every weight: V = keep V + take g^2, G = m G + (1 - m) g, W = d W -
/// step G / (sqrt V + eps). adagrad: keep and take 1, G = g; adam: take = 1 - keep.
enum class Adapt : std::uint8_t { kNone, kAdagrad, kAdam };
using common::OutputNorm;
/// W after or before the token; W_bar; W behind the last token of the mini-batch, or of the call.
enum class Read : std::uint8_t { kAfter, kBefore, kBatchStart, kBatchEnd };

/// Layers of a network, counted from 0.
struct Shape {
  std::int64_t depth = 1;
  std::int64_t key_dim = 1, hidden = 1, value_dim = 1;
  bool bias = false, gated = false;

  std::int64_t In(std::int64_t l) const { return l == 0 ? key_dim : hidden; }
  std::int64_t Out(std::int64_t l) const {
    return l == depth - 1 ? value_dim : gated ? 2 * hidden : hidden;
  }
  /// Rows of the weights with the bias as one more, whose input is 1.
  std::int64_t Rows(std::int64_t l) const { return In(l) + (bias ? 1 : 0); }
};

struct Options {
  std::int64_t depth = 1;
  simd::Activation activation = simd::Activation::kSilu;
  bool gated = false, norm = false, residual = false, bias = false;
  bool dot_product = false;  ///< the loss -v . f
  bool momentum = false;
  Decay weight_decay = Decay::kNone;
  Adapt adapt = Adapt::kNone;  ///< with mini_batch 1
  double keep = 1, eps = 0;    ///< of adapted steps
  std::int64_t mini_batch = 1;
  bool inverse_rows = false;  ///< row_i = max(1/(i+1) + bias_i, 0)
  Read read = Read::kAfter;
  bool normalise_qk = false;  ///< x / sqrt(|x|^2 + 1e-6) for q and k
  double scale = 1;           ///< multiplies q
  OutputNorm output_norm = OutputNorm::kNone;

  bool adapts() const { return adapt != Adapt::kNone; }
  double take() const { return adapt == Adapt::kAdam ? 1 - keep : 1; }
  /// Has the step neither momentum nor weight decay, and is it not adapted?
  bool plain() const { return !momentum && weight_decay == Decay::kNone && !adapts(); }
  bool has_second() const { return plain() ? mini_batch > 1 : momentum; }
  bool has_anchors() const { return !plain() && mini_batch > 1; }
  /// Tokens of a chunk that its query i sees, where tokens are read one by one.
  std::int64_t SeenBy(std::int64_t i) const { return i + (read == Read::kAfter ? 1 : 0); }
  double NormLength(std::int64_t count) const {
    return output_norm == OutputNorm::kRms ? static_cast<double>(count) : 1;
  }
};

/// A tensor a layer: w [N, H, in, out], b [N, H, out]. Empty: absent.
struct Parameters {
  std::span<const TensorView> w, b;
};

/// What a state has, or the gradients of it.
struct StateParameters {
  Parameters weights, anchors, second, squares;
};

struct Call : StateParameters {
  TensorView q, k, v, step, momentum, weight_decay;
  TensorView ln_weight, ln_bias, row_bias;
  std::span<const std::int64_t> cu_seqlens;  ///< [N + 1]; empty: not packed (B sequences)
  std::span<const std::int64_t> slots{};     ///< [N] rows of the parameters; empty: 0 .. N - 1
  TensorView position;
  TensorView y, status;
  std::span<std::byte> saved;  ///< SavedBytes(), where Forward leaves what Backward reads; or empty
};

/// What scratch depends on.
struct Sizes {
  Shape shape;
  std::int64_t heads = 1;
  std::int64_t queries = 1;  ///< query heads that read one memory
  std::int64_t tokens = 0;   ///< of the longest sequence
  DType dtype = DType::kFloat32;
};

/// Bytes of scratch that Forward needs with this many threads.
std::size_t ScratchBytes(const Sizes& sizes, int threads);

/// Memorizes every token and reads for it. `scratch` (any alignment) holds ScratchBytes() at least,
/// or is empty, and then it is allocated.
void Forward(const Options& options, const Call& call, Executor& executor,
             std::span<std::byte> scratch = {});

}  // namespace ttr::network
