/// Online regression on a switching process: the paper's figure 2. Nothing is learned; one forward
/// pass a layer, and the loss |v_{t+1} - m_t(k_{t+1})|^2 of every token. Data: data/regression.h.
///
/// Source: Wang, Shi, Fox, "Test-time regression" (2025), section "Online regression".
#pragma once

#include <string>
#include <vector>

#include "experiments/data/regression.h"
#include "experiments/studies/layers.h"
#include "experiments/studies/options.h"
#include "experiments/studies/study.h"

namespace ttr::experiments {

/// What the paper leaves unstated, and the scale and ridges of its layers beside those that its
/// equations state. docs/experiments.md shows what each choice does.
struct OnlineRegressionOptions {
  SwitchingProcess process{};     ///< its `start` is `stationary_start`
  bool stationary_start = false;  ///< k_0 from the spread of the first phase, not from rest
  bool unit_keys = true;          ///< keys and queries of softmax (p = 0) and p = 1 to unit length
  double scale = 8;               ///< of their queries
  double local_ridge = 1e-2;      ///< on the slope of p = 1
  double small_ridge = 1e-6;      ///< of the two RLS
  double large_ridge = 1e-3;
  double decay = 0.95;  ///< of every layer that forgets by a constant factor
  double step = 1;      ///< step size of the delta rules, on unit keys
  bool others = true;   ///< beside the figure's layers, all of the zoo that need no learning
  std::vector<std::string> recipes{};  ///< more layers
};

OptionFields Fields(OnlineRegressionOptions& options);

/// One layer of the study.
struct RegressionLayer {
  std::string label;
  std::string recipe;  ///< empty: the naive forecaster, y_t = v_t
  ConstantGates gates{};
  int panel = 0;  ///< of the picture, from 1; 0: in the table only
  /// Scales of queries that replace the recipe's, where there are any: every token is forecast with
  /// the one whose losses up to then have the least sum (leave-one-out), the first of equals.
  std::vector<double> scales{};
  bool literal =
      false;  ///< is it the paper's equation as that stands? Then the picture shows it so
};

/// What the layer runs, in words.
std::string RecipeText(const RegressionLayer& layer);
std::vector<RegressionLayer> RegressionLayers(const OnlineRegressionOptions& options);

/// Channels of the table of kernels and degrees: so few that a local cubic fit has 84 monomials.
inline constexpr std::int64_t kLocalFitDim = 6;

/// Weighted means (degree 0) and local fits by every kernel, and of every degree.
std::vector<RegressionLayer> LocalFits(const OnlineRegressionOptions& options);

/// The layers of the zoo that the study leaves out, and why.
struct LeftOut {
  std::string name;
  std::string why;
};
std::vector<LeftOut> LeftOutOfRegression();

inline constexpr std::int64_t kRegressionSeeds = 20;
inline constexpr std::int64_t kSweepSeeds = 5;

/// Seeds where none are asked for: kRegressionSeeds, and of longer sequences, whose means vary less
/// and which cost the square of their length, as many as have the default's tokens, at least two.
std::int64_t DefaultSeeds(const OnlineRegressionOptions& options);

/// DefaultSeeds(options) seeds unless `run` says otherwise.
StudyResult RunOnlineRegression(const OnlineRegressionOptions& options, const StudyRun& run);

/// Mean loss of each phase over the scale (p = 0, 1) and the ridge (RLS, p = 1), kSweepSeeds seeds.
StudyResult RunOnlineRegressionSweep(const OnlineRegressionOptions& options, const StudyRun& run);

}  // namespace ttr::experiments
