/// What the two forms of the online-regression study share: losses of a layer, and their phases.
#pragma once

#include <string>
#include <vector>

#include "experiments/studies/online_regression.h"

namespace ttr::experiments {

/// The first quarter, the second quarter, the last half.
inline constexpr int kPhases = 3;
std::string PhaseName(int phase);
double PhaseMean(const std::vector<double>& losses, int phase);

/// Throws Error for options without a meaning.
void CheckRegressionOptions(const OnlineRegressionOptions& options);

class RegressionRunner {
 public:
  /// Error: a recipe that does not parse or needs something learned.
  RegressionRunner(const OnlineRegressionOptions& options,
                   const std::vector<RegressionLayer>& layers);

  /// |v_{t+1} - y_t|^2 of every token.
  std::vector<double> Losses(std::uint64_t seed, std::size_t layer) const;

 private:
  SwitchingProcess process_;
  // One a scale; none: the naive forecaster.
  std::vector<std::vector<StudyLayer>> layers_;
};

/// The loss, at every token, of the forecaster whose losses before it have the least sum, the first
/// of equals.
std::vector<double> LossesOfTheBest(const std::vector<std::vector<double>>& losses);

}  // namespace ttr::experiments
