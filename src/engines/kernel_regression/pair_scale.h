/// What brings the diagonal of A = R k(K, K) R + ridge I to ones, pair by pair.
#pragma once

#include <algorithm>
#include <cmath>

#include "src/engines/kernel_regression/kernel_regression.h"

namespace ttr::kernel_regression {

/// Below this a diagonal has faded away: its digits are gone.
inline constexpr double kLogFaded = -667.7;  // log 1e-290

/// The diagonal of one pair, A_ii = w k(k_i, k_i) + ridge, by its logarithm: an exponential kernel
/// of long keys is beyond all floating-point numbers.
struct PairScale {
  bool linear;
  double ridge, log_weight;
  double self;  ///< log k(k_i, k_i); under the linear kernel k(k_i, k_i)
  double log;   ///< of A_ii
  double gain;  ///< log of w^1/2 A_ii^-1/2; under the linear kernel that itself

  PairScale(const Options& options, double ridge_of, double squares, double log_weight_of)
      : linear(options.kernel == common::Kernel::kLinear),
        ridge(ridge_of),
        log_weight(log_weight_of) {
    const bool scaled = linear || options.kernel == common::Kernel::kExponential;
    self = scaled ? options.scale * squares : 0;
    const double kernel = log_weight + (linear ? std::log(self) : self);
    const double other = std::log(ridge), most = std::max(kernel, other);
    log = std::isinf(most) ? most : most + std::log1p(std::exp(std::min(kernel, other) - most));
    gain = (log_weight - log) / 2;
    if (linear) gain = std::exp(gain);
  }

  /// Is nothing left of it?
  bool none() const { return !(log > kLogFaded); }

  // The factor that a gain stands for, as the gain was rounded.
  double Factor(double g) const { return linear ? g : std::exp(g); }
  /// D^2
  double Inverse(double g) const {
    return linear ? g * g * std::exp(-log_weight) : std::exp(2 * g - log_weight);
  }
  /// D A D
  double Diagonal(double g) const {
    const double kernel = linear ? g * g * self : std::exp(2 * g + self);
    return kernel + (ridge == 0 ? 0 : ridge * Inverse(g));
  }
};

}  // namespace ttr::kernel_regression
