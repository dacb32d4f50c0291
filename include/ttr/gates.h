/// Gates of state-space and delta-rule layers, from what a projection gives: how much a token
/// forgets, how far it steps, and what leaves the layer.
///
///     log_decay = -exp(a) softplus(x + bias)             DecayGate    (Mamba-2, 2405.21060;
///                                                        Gated DeltaNet, 2412.06464; KDA,
///                                                        2510.26692)
///     step      = clamp(softplus(x + bias), low, high)   StepGate     (dt of Mamba, 2312.00752)
///     out       = (y + d x) silu(z)                      SkipGate     (behind Mamba's memory)
///
/// softplus(u) = log(1 + exp(u)) to rounding for any u (frameworks take u from some u on, which
/// differs by 2e-9 at 20); silu(z) = z / (1 + exp(-z)).
///
/// | argument        | shape                   | dtype    | meaning                              |
/// |-----------------|-------------------------|----------|--------------------------------------|
/// | x               | [B, T, H], [B, T, H, D] | floating | the projection; SkipGate: [B,T,H,D]  |
/// | a               | [H], [H, D]             | floating | logarithm of the rate, A_log         |
/// | bias            | [H], [H, D]             | floating | optional; dt_bias                    |
/// | low, high       |                         | double   | low <= high                          |
/// | log_decay, step | as x                    | floating | outputs; may be x itself             |
/// | y, z            | [B, T, H, D]            | floating | what the memory retrieved, and its   |
/// |                 |                         |          | gate, which is optional              |
/// | d               | [H], [H, D]             | floating | weight of x; both or neither         |
/// | out             | [B, T, H, D]            | floating | outputs; may be y itself             |
///
/// Parameters [H] serve all of a head; [H, D] go with [B, T, H, D] alone. Floating: float32,
/// float64 or bfloat16, each by itself. Any strides but a contiguous last axis. Arithmetic in
/// double where x (of SkipGate: y) is float64, else in float; the argument of softplus is rounded
/// to that. A log decay is never above 0. NaN stays with its number. Bits are equal for any number
/// of threads.
///
/// Gradients: those of `gradients` that are defined are written, shaped as what they belong to
/// (parameters summed over all tokens). A step outside of its limits has no slope, one on them has.
///
/// Cost: an exponential and some 20 flops a number, of SkipGate an exponential and 5; one pass over
/// memory.
///
/// Errors (ttr::Error, before any work): shapes, dtypes or strides other than those above; limits
/// that cross; outputs that share memory with inputs (but where they may be one) or themselves.
#pragma once

#include <limits>

#include "ttr/executor.h"
#include "ttr/tensor.h"

namespace ttr {

struct DecayGate {
  TensorView a{};
  TensorView bias{};
};

void ApplyDecayGate(const DecayGate& gate, const TensorView& x, const TensorView& log_decay,
                    Executor& executor = DefaultExecutor());

struct DecayGateGradients {
  TensorView dx{};
  TensorView da{};
  TensorView dbias{};
};

void ApplyDecayGateGradient(const DecayGate& gate, const TensorView& x,
                            const TensorView& dlog_decay, const DecayGateGradients& gradients,
                            Executor& executor = DefaultExecutor());

struct StepGate {
  TensorView bias{};
  double low = 0;
  double high = std::numeric_limits<double>::infinity();
};

void ApplyStepGate(const StepGate& gate, const TensorView& x, const TensorView& step,
                   Executor& executor = DefaultExecutor());

struct StepGateGradients {
  TensorView dx{};
  TensorView dbias{};
};

void ApplyStepGateGradient(const StepGate& gate, const TensorView& x, const TensorView& dstep,
                           const StepGateGradients& gradients,
                           Executor& executor = DefaultExecutor());

struct SkipGate {
  TensorView d{};
};

struct SkipGateInputs {
  TensorView y{};
  TensorView x{};
  TensorView z{};
};

void ApplySkipGate(const SkipGate& gate, const SkipGateInputs& inputs, const TensorView& out,
                   Executor& executor = DefaultExecutor());

struct SkipGateGradients {
  TensorView dy{};
  TensorView dx{};
  TensorView dz{};
  TensorView dd{};
};

void ApplySkipGateGradient(const SkipGate& gate, const SkipGateInputs& inputs,
                           const TensorView& dout, const SkipGateGradients& gradients,
                           Executor& executor = DefaultExecutor());

}  // namespace ttr
