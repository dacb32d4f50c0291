/// Norms of rows, with a learned scale and shift and a gate: what stands before the keys and behind
/// the memory of most linear-attention layers.
///
///     n = x / sqrt(|x|^2 + eps)                  kL2     (unit keys and queries)
///     n = x / sqrt(|x|^2 / D + eps)              kRms    (1910.07467)
///     n = (x - mean) / sqrt(variance + eps)      kLayer  (1607.06450)
///     y = (n (.) weight + bias) (.) g(gate)
///
/// weight, bias and gate each where given. With `gate_first`, x (.) g(gate) takes the place of x
/// and y = n (.) weight + bias.
///
///     g(z) = z / (1 + exp(-z))      kSilu
///     g(z) = 1 / (1 + exp(-z))      kSigmoid
///
/// kRms with weight and gate is the output of Gated DeltaNet (2412.06464), with kSigmoid that of
/// KDA (2510.26692), with `gate_first` that of Mamba-2 (2405.21060). Groups of channels that are
/// normed by themselves are heads: their weight is [H, D].
///
/// | argument     | shape         | dtype    | meaning                                         |
/// |--------------|---------------|----------|-------------------------------------------------|
/// | x            | [B, T, H, D]  | floating | rows                                            |
/// | weight, bias | [D] or [H, D] | floating | scale and shift; optional                       |
/// | gate         | [B, T, H, D]  | floating | optional                                        |
/// | eps          |               | double   | finite, >= 0; 0: a zero row stays zero, with no |
/// |              |               |          | slope                                           |
/// | y            | [B, T, H, D]  | floating | may be x itself                                 |
///
/// Floating: float32, float64 or bfloat16, each by itself. Any strides but a contiguous last axis.
/// Means and squares are summed in double, so that they neither overflow nor cancel; the rest is
/// done in double where x is float64, else in float. NaN and infinities stay in their row. The same
/// bits for any number of threads.
///
/// Gradients: `dy` is that of y; those of `gradients` that are defined are written, shaped as what
/// they belong to (dweight and dbias summed over all rows).
///
/// Cost: about 6 flops a number, an exponential with a gate; one pass over memory. Backward takes
/// some 12 flops a number more.
///
/// Errors (ttr::Error, before any work): shapes, dtypes or strides other than those above; eps
/// below 0; outputs that share memory with inputs (but y = x).
#pragma once

#include <cstdint>

#include "ttr/executor.h"
#include "ttr/tensor.h"

namespace ttr {

enum class RowNorm : std::uint8_t { kL2, kRms, kLayer };
enum class Gate : std::uint8_t { kSilu, kSigmoid };

struct Norm {
  RowNorm kind = RowNorm::kRms;
  double eps = 1e-6;
  TensorView weight{};
  TensorView bias{};
  Gate gate_kind = Gate::kSilu;
  bool gate_first = false;
};

struct NormInputs {
  TensorView x{};
  TensorView gate{};
};

void ApplyNorm(const Norm& norm, const NormInputs& inputs, const TensorView& y,
               Executor& executor = DefaultExecutor());

struct NormGradients {
  TensorView dx{};
  TensorView dweight{};
  TensorView dbias{};
  TensorView dgate{};
};

void ApplyNormGradient(const Norm& norm, const NormInputs& inputs, const TensorView& dy,
                       const NormGradients& gradients, Executor& executor = DefaultExecutor());

}  // namespace ttr
