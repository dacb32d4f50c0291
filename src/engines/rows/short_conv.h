/// Short causal convolution over time, each channel by itself.
///
///     z_t = b + sum_{j < W} w_j x_{t - (W-1) + j},   y_t = z_t, or z_t sigmoid(z_t)
///
/// The last weight is the current token's; x before the first token is what the state holds, or 0.
///
/// Arithmetic in double where x is float64, else in float, in the order of j: whole = split = token
/// by token, bit for bit. The number of threads changes no bit. NaN stays with its channel and
/// with the W tokens that see it. The caller validates.
#pragma once

#include <cstdint>
#include <span>

#include "ttr/executor.h"
#include "ttr/tensor.h"

namespace ttr::rows {

inline constexpr std::int64_t kMaxConvWidth = 8;

struct ConvCall {
  TensorView x;       ///< [B, T, H, D]
  TensorView weight;  ///< [H, D, W], any strides
  TensorView bias;    ///< [H, D]; may be absent
  bool silu = false;
  std::span<const std::int64_t> cu_seqlens;  ///< [N + 1]; empty: B sequences
};

/// `state` [B or N, R, H, D], R >= W - 1, any strides: the R inputs before the first token, oldest
/// first; left as after the last token. May be absent.
void Convolve(const ConvCall& call, const TensorView& state, const TensorView& y,
              Executor& executor);

/// Gradients have the shapes of the inputs that they belong to; they are written where defined.
struct ConvGradients {
  TensorView dx, dweight, dbias, dinitial;
};

/// `initial` is the state before the first token, `dfinal` the gradient of the one after the last;
/// both may be absent. All states that there are have the same R.
void ConvolveGradient(const ConvCall& call, const TensorView& initial, const TensorView& dy,
                      const TensorView& dfinal, const ConvGradients& gradients, Executor& executor);

}  // namespace ttr::rows
