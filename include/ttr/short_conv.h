/// Short causal convolution over time, each channel by itself, as it stands before q, k and v in
/// most linear-attention layers.
///
///     z_t = bias + sum_{j < W} weight_j x_{t - (W-1) + j}
///     y_t = z_t, or silu(z_t) = z_t / (1 + exp(-z_t))
///
/// The last weight is the current token's. Before the first token x is what the state holds, 0
/// where there is none. (Width 2 with weights 1 - a and a is the KV-shift.) Mamba, 2312.00752;
/// Gated DeltaNet, 2412.06464.
///
/// | argument   | shape               | dtype    | meaning                                      |
/// |------------|---------------------|----------|----------------------------------------------|
/// | x          | [B, T, H, D]        | floating | inputs                                       |
/// | weight     | [H, D, W]           | floating | W in 1 .. 8; any strides                     |
/// | bias       | [H, D]              | floating | optional                                     |
/// | cu_seqlens | [N + 1]             | int64    | packed sequences, B = 1                      |
/// | state      | [B or N, R, H, D]   | floating | optional: the R >= W-1 inputs before the     |
/// |            |                     |          | first token, oldest first; left as after the |
/// |            |                     |          | last token, all R of them; any strides       |
/// | y          | [B, T, H, D]        | floating | outputs                                      |
///
/// Floating: float32, float64 or bfloat16, each by itself. Channels without heads: H = 1, D = C.
/// Any strides but a contiguous last axis, of the state any at all: a cache [B, C, R] that has the
/// inputs of a channel side by side is a view [B, R, H, D] of strides C R, 1, D R, R. Arithmetic in
/// double where x is float64, else in float, always in the order of j: whole = split anywhere =
/// token by token, bit for bit (a state narrower than x rounds). Bits are equal for any number of
/// threads. NaN stays with its channel and the W tokens that see it. A weight that lies as
/// [H, W, D] in memory (a view with stride 1 along D) in the arithmetic's type is used where it
/// lies; any other is transposed once a task.
///
/// Backward: `dy` and `dfinal` (absent: zero) are the gradients of y and of the state after the
/// last token; those of `gradients` that are defined are written. `initial`, `dfinal` and
/// `dinitial` have the same R. Rows before the last W-1 reach the final state alone, where their
/// gradients come from.
///
/// Cost: 2 W flops a number, and an exponential under SiLU; one pass over x and y, and where T = 1
/// over a state of up to 8 rows. Backward computes z again: some 4 W flops a number more.
///
/// Errors (ttr::Error, before any work): shapes, dtypes or strides other than those above; outputs
/// that share memory with inputs or themselves.
#pragma once

#include "ttr/executor.h"
#include "ttr/tensor.h"

namespace ttr {

struct ShortConv {
  TensorView weight{};
  TensorView bias{};
  bool silu = false;
};

struct ShortConvInputs {
  TensorView x{};
  TensorView cu_seqlens{};
};

void ApplyShortConv(const ShortConv& conv, const ShortConvInputs& inputs, const TensorView& state,
                    const TensorView& y, Executor& executor = DefaultExecutor());

/// Gradients of x, weight, bias, and of the state before the first token.
struct ShortConvGradients {
  TensorView dx{};
  TensorView dweight{};
  TensorView dbias{};
  TensorView dinitial{};
};

/// `initial` is the state before the first token, absent: 0.
void ApplyShortConvGradient(const ShortConv& conv, const ShortConvInputs& inputs,
                            const TensorView& initial, const TensorView& dy,
                            const TensorView& dfinal, const ShortConvGradients& gradients,
                            Executor& executor = DefaultExecutor());

}  // namespace ttr
