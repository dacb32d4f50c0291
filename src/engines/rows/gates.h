/// Gates of rows.
///
///     y   = rate (.) clamp(softplus(x + bias), low, high),   rate = -exp(a), or 1
///     out = (y + d (.) x) (.) silu(z)
///
/// Parameters are [H, D], [1, D], or [H]: one number for all of a head. Arithmetic in double where
/// x, or y, is float64, else in float. The number of threads changes no bit. The caller
/// validates.
#pragma once

#include <limits>

#include "ttr/executor.h"
#include "ttr/tensor.h"

namespace ttr::rows {

struct SoftplusCall {
  TensorView x;        ///< [B, T, H, D]
  TensorView a, bias;  ///< may be absent
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
};

/// `y` may be x itself.
void Softplus(const SoftplusCall& call, const TensorView& y, Executor& executor);

/// Gradients have the shapes of the inputs that they belong to; they are written where defined.
struct SoftplusGradients {
  TensorView dx, da, dbias;
};

void SoftplusGradient(const SoftplusCall& call, const TensorView& dy,
                      const SoftplusGradients& gradients, Executor& executor);

struct SkipCall {
  TensorView y, x, z;  ///< [B, T, H, D]; x and z may be absent
  TensorView d;        ///< beside x
};

/// `out` may be y itself.
void Skip(const SkipCall& call, const TensorView& out, Executor& executor);

struct SkipGradients {
  TensorView dy, dx, dz, dd;
};

void SkipGradient(const SkipCall& call, const TensorView& dout, const SkipGradients& gradients,
                  Executor& executor);

}  // namespace ttr::rows
