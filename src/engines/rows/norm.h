/// Norms of rows, with what layers put around them.
///
///     n = x / sqrt(|x|^2 + eps)                       kL2
///     n = x / sqrt(|x|^2 / D + eps)                   kRms
///     n = (x - mean) / sqrt(variance + eps)           kLayer
///     y = (n (.) weight + bias) (.) g(gate)           each where given
///
/// or, gated first, y = n (.) weight + bias of x (.) g(gate) instead of x; g is silu or the
/// sigmoid.
///
/// Where the root is 0 (a zero row, eps = 0), n is 0 and has no gradient. Means and squares are
/// summed in double; the rest is done in double where x is float64, else in float. The number of
/// threads changes no bit. The caller validates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "ttr/executor.h"
#include "ttr/tensor.h"

namespace ttr::rows {

enum class NormKind : std::uint8_t { kL2, kRms, kLayer };
enum class GateKind : std::uint8_t { kSilu, kSigmoid };

struct NormCall {
  NormKind kind = NormKind::kRms;
  double eps = 0;
  TensorView x;             ///< [B, T, H, D]
  TensorView weight, bias;  ///< [H or 1, D]; may be absent
  TensorView gate;          ///< [B, T, H, D]; may be absent
  GateKind gate_kind = GateKind::kSilu;
  bool gate_first = false;
};

/// Bytes of scratch that Normalise() takes at the most, for rows of `dim` numbers.
std::size_t NormScratchBytes(std::int64_t dim, int threads);

/// `y` may be x itself; `scratch` may be empty, and then it is allocated.
void Normalise(const NormCall& call, const TensorView& y, Executor& executor,
               std::span<std::byte> scratch = {});

/// Gradients have the shapes of the inputs that they belong to; they are written where defined.
struct NormGradients {
  TensorView dx, dweight, dbias, dgate;
};

void NormaliseGradient(const NormCall& call, const TensorView& dy, const NormGradients& gradients,
                       Executor& executor);

}  // namespace ttr::rows
