/// How much a kept pair counts for a query: what engines share that weigh pairs by closeness.
#pragma once

#include <cstdint>

namespace ttr::common {

/// s(k, q), with d = |k - q| and the bandwidth B.
enum class Kernel : std::uint8_t {
  kExponential,      ///< exp(k . scale q)
  kGaussian,         ///< exp(-d^2 / B)
  kLaplace,          ///< exp(-d / B)
  kEpanechnikov,     ///< (1 - (d/B)^2)_+
  kBiweight,         ///< (1 - (d/B)^2)_+^2
  kTriweight,        ///< (1 - (d/B)^2)_+^3
  kInverseDistance,  ///< 1 / d; at d = 0 the hit's value
  kLinear,           ///< k . scale q: has no logarithm, and weighs nothing
};

constexpr bool IsCompact(Kernel kernel) {
  return kernel == Kernel::kEpanechnikov || kernel == Kernel::kBiweight ||
         kernel == Kernel::kTriweight;
}

/// Of what s is a function: the distance, or k . q?
constexpr bool IsByDistance(Kernel kernel) {
  return kernel != Kernel::kExponential && kernel != Kernel::kLinear;
}

/// Is it infinite where a query meets a key? Keys at distance 0 then share all weight, in the
/// proportion of their own.
constexpr bool HasHits(Kernel kernel) { return kernel == Kernel::kInverseDistance; }

/// Is it positive, so that it may be handled by its logarithm?
constexpr bool HasLogarithm(Kernel kernel) { return kernel != Kernel::kLinear; }

/// n of (1 - u^2)_+^n.
constexpr int PowerOf(Kernel kernel) {
  return kernel == Kernel::kEpanechnikov ? 1 : kernel == Kernel::kBiweight ? 2 : 3;
}

/// Is there a bandwidth in it?
constexpr bool HasBandwidth(Kernel kernel) {
  return kernel != Kernel::kExponential && kernel != Kernel::kInverseDistance &&
         kernel != Kernel::kLinear;
}

}  // namespace ttr::common
