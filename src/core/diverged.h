/// When an iteration has made matters worse.
#pragma once

#include <cmath>
#include <limits>

namespace ttr {

/// |q - A x| / |q| from the norms of both. What is no number though q is finite has passed all
/// numbers.
inline double RelativeResidual(double left, double size) {
  if (size == 0) return 0;
  if (std::isnan(left) && std::isfinite(size)) return std::numeric_limits<double>::infinity();
  return left / size;
}

/// Is x worse than 0, which leaves all of q? The thousandth is for rounding.
inline bool Diverged(double relative_residual) { return relative_residual > 1.001; }

}  // namespace ttr
