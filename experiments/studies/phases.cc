#include "experiments/studies/phases.h"

#include <algorithm>

#include "experiments/studies/statistics.h"

namespace ttr::experiments {

std::string PhaseName(int phase) {
  static const char* const kNames[] = {"first quarter", "second quarter", "last half"};
  return kNames[phase];
}

double PhaseMean(const std::vector<double>& losses, int phase) {
  const std::size_t n = losses.size();
  const std::size_t ends[] = {0, n / 4, n / 2, n};
  return MeanOfRange(losses, ends[phase], ends[phase + 1]);
}

void CheckRegressionOptions(const OnlineRegressionOptions& o) {
  const std::string study = "online-regression";
  RequireOption(o.process.tokens >= 4, study, "tokens", "at least 4",
                static_cast<double>(o.process.tokens));
  RequireOption(o.decay > 0 && o.decay <= 1, study, "decay", "in (0, 1]", o.decay);
  RequireOption(o.step >= 0, study, "step", "at least 0", o.step);
  MakeRegression(o.process, 0);  // throws where the process has no meaning
}

RegressionRunner::RegressionRunner(const OnlineRegressionOptions& options,
                                   const std::vector<RegressionLayer>& layers)
    : process_(options.process) {
  process_.start = options.stationary_start ? KeyStart::kStationary : KeyStart::kRest;
  for (const RegressionLayer& layer : layers) {
    std::vector<StudyLayer>& runs = layers_.emplace_back();
    if (layer.recipe.empty()) continue;
    Recipe recipe = ParseRecipe(layer.recipe);
    if (layer.scales.empty()) runs.emplace_back(recipe, layer.gates, Runs::kEngines);
    for (const double scale : layer.scales) {
      recipe.reading.scale_rsqrt = false;
      recipe.reading.scale = scale;
      runs.emplace_back(recipe, layer.gates, Runs::kEngines);
    }
  }
}

std::vector<double> RegressionRunner::Losses(std::uint64_t seed, std::size_t layer) const {
  const RegressionData data = MakeRegression(process_, seed);
  const auto dim = static_cast<std::size_t>(data.key_dim);
  const auto losses_of = [&](const std::vector<double>& y) {
    std::vector<double> losses;
    for (std::size_t begin = 0; begin < y.size(); begin += dim) {
      double loss = 0;
      for (std::size_t i = begin; i < begin + dim; ++i) {
        loss += (data.target[i] - y[i]) * (data.target[i] - y[i]);
      }
      losses.push_back(loss);
    }
    return losses;
  };
  if (layers_[layer].empty()) return losses_of(data.v);
  std::vector<std::vector<double>> losses;
  for (const StudyLayer& one : layers_[layer]) {
    losses.push_back(losses_of(one.Forward({.key_dim = data.key_dim,
                                            .value_dim = data.key_dim,
                                            .k = data.k,
                                            .v = data.v,
                                            .q = data.q})));
  }
  return LossesOfTheBest(losses);
}

std::vector<double> LossesOfTheBest(const std::vector<std::vector<double>>& losses) {
  std::vector<double> sums(losses.size()), best;
  for (std::size_t t = 0; t < losses.front().size(); ++t) {
    const auto least = std::min_element(sums.begin(), sums.end()) - sums.begin();
    best.push_back(losses[static_cast<std::size_t>(least)][t]);
    for (std::size_t i = 0; i < losses.size(); ++i) sums[i] += losses[i][t];
  }
  return best;
}

}  // namespace ttr::experiments
