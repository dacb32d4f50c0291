/// The bandwidth of a kernel over a stream, selected while the stream is read.
///
/// *Rule of thumb.* Silverman's for a Gaussian in d dimensions, of n keys whose channels have the
/// mean variance sigma^2:
///
///     h = sigma (4 / ((d + 2) n))^(1 / (d + 4))
///
/// is the standard deviation of the kernel in every channel. A kernel of the recipes has that
/// deviation with (from the moments of |k - q| under each in d dimensions)
///
///     gaussian exp(-r^2 / B)            B = 2 h^2
///     laplace exp(-r / B)               B = h / sqrt(d + 1)
///     compact (1 - (r / B)^2)^p         B = h sqrt(d + 2 p + 2)
///
/// The rule is one for densities, and for keys that are independent. It gives the order of
/// magnitude that a regression wants, and no more:
///
/// *Leave-one-out.* The candidates are deviations of h times a fixed ratio each. The forecast of a
/// row was made before the row was known, so its error is a leave-one-out error (prequential). The
/// candidate in use is the one whose errors so far sum up to the least, weighted by age with the
/// decay of the memory; of equals the one nearest to the rule. A memory of kept pairs is one for
/// all candidates: it is asked once with each.
///
/// Sources: Silverman, "Density Estimation for Statistics and Data Analysis" (1986), 4.3.2; Dawid,
/// "Present position and potential developments: the prequential approach" (1984).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <vector>

#include "ttr/recipe.h"

namespace ttr::forecasting {

/// h of `keys` keys with this mean variance of a channel; 0 where that is 0.
double SilvermanDeviation(double variance, std::int64_t channels, double keys);

/// The bandwidth with which a kernel has this deviation in every channel. The kernel has one.
double BandwidthOf(Kernel kernel, double deviation, std::int64_t channels);

/// Does a memory of this recipe read with any bandwidth, whatever it was written with? One that
/// keeps pairs and solves for nothing of all of them: not kernel regression.
bool ReadsWithAnyBandwidth(const Recipe& recipe);

class BandwidthSelector {
 public:
  /// Deviations of the candidates over the rule's.
  static constexpr std::array<double, 7> kRatios = {1, .5, 2, .25, 4, .125, 8};

  /// Selects for a recipe that ReadsWithAnyBandwidth() and keys of so many channels; errors weigh
  /// less by `decay`, in (0, 1], a row.
  BandwidthSelector(const Recipe& recipe, std::int64_t channels, double decay);

  /// A key that is memorized.
  void AddKey(std::span<const double> key);
  /// The bandwidths in the order of kRatios. While no two keys differ: the recipe's own times the
  /// ratios.
  std::array<double, kRatios.size()> Candidates() const;

  /// The candidate in use, of kRatios.
  std::size_t selected() const;
  /// Squared errors of forecasts made with each candidate. Passed over where one is not finite.
  void AddErrors(std::span<const double> squares);

  nlohmann::json Save() const;
  /// Takes over what was saved for the same recipe and channels. Throws Error when it cannot be.
  void Load(const nlohmann::json& saved);

 private:
  Kernel kernel_;
  double own_;           // bandwidth of the recipe
  std::int64_t window_;  // 0: none
  double decay_;
  std::int64_t keys_ = 0;
  std::vector<double> mean_;  // of the keys, a channel each
  double squares_ = 0;        // of the distances from it, summed over keys and channels
  std::array<double, kRatios.size()> losses_{};
};

}  // namespace ttr::forecasting
