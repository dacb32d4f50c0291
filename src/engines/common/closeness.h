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

/// Facts about a kernel beside its formula.
struct KernelFacts {
  bool by_distance = false;    ///< is it a function of the distance, not of k . q?
  bool has_bandwidth = false;  ///< is there a bandwidth in it?
  int power = 0;               ///< n of (1 - u^2)_+^n, which is 0 from the bandwidth on
  /// Is it infinite where a query meets a key? Keys at distance 0 then share all weight, in the
  /// proportion of their own.
  bool has_hits = false;
  bool has_logarithm = true;       ///< is it positive, so that its logarithm may stand for it?
  bool positive_definite = false;  ///< does it span a space of functions?
};

constexpr KernelFacts FactsOf(Kernel kernel) {
  switch (kernel) {
    case Kernel::kExponential: return {.positive_definite = true};
    case Kernel::kGaussian:
    case Kernel::kLaplace:
      return {.by_distance = true, .has_bandwidth = true, .positive_definite = true};
    case Kernel::kEpanechnikov: return {.by_distance = true, .has_bandwidth = true, .power = 1};
    case Kernel::kBiweight: return {.by_distance = true, .has_bandwidth = true, .power = 2};
    case Kernel::kTriweight: return {.by_distance = true, .has_bandwidth = true, .power = 3};
    case Kernel::kInverseDistance: return {.by_distance = true, .has_hits = true};
    case Kernel::kLinear: return {.has_logarithm = false, .positive_definite = true};
  }
  return {};
}

constexpr bool IsCompact(Kernel kernel) { return FactsOf(kernel).power > 0; }
constexpr bool IsByDistance(Kernel kernel) { return FactsOf(kernel).by_distance; }
constexpr bool HasHits(Kernel kernel) { return FactsOf(kernel).has_hits; }
constexpr bool HasLogarithm(Kernel kernel) { return FactsOf(kernel).has_logarithm; }
constexpr bool HasBandwidth(Kernel kernel) { return FactsOf(kernel).has_bandwidth; }

}  // namespace ttr::common
