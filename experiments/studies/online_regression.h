/// Online regression on a switching process: the paper's figure 2. Nothing is learned; one forward
/// pass a layer, and the loss |v_{t+1} - m_t(k_{t+1})|^2 of every token. Data: data/regression.h.
///
/// Source: Wang, Shi, Fox, "Test-time regression" (2025), section "Online regression".
#pragma once

#include <string>
#include <vector>

#include "experiments/data/regression.h"
#include "experiments/studies/study.h"

namespace ttr::experiments {

/// What the paper leaves unstated, with what is chosen here. docs/experiments.md shows what each
/// choice does.
struct OnlineRegressionOptions {
  SwitchingProcess process{};
  double scale = 8;           ///< of q in softmax (p = 0) and local linear (p = 1) attention
  bool unit_keys = true;      ///< their keys and queries to unit length
  double local_ridge = 1e-2;  ///< on the slope of p = 1
  double small_ridge = 1e-6;  ///< of the two RLS
  double large_ridge = 1e-3;
  double decay = 0.95;  ///< of every layer that forgets by a constant factor
  double step = 1;      ///< step size of the delta rules, on unit keys
  bool all_layers = true;              ///< beside the figure's, those of the zoo that need no learning
  std::vector<std::string> recipes{};  ///< more recipes, of layers that take q, k and v alone
};

/// 20 seeds unless `run` says otherwise.
StudyResult RunOnlineRegression(const OnlineRegressionOptions& options, const StudyRun& run);

/// Mean loss of each phase over scale (p = 0, 1), ridge (RLS), and both for p = 1.
StudyResult RunOnlineRegressionSweep(const OnlineRegressionOptions& options, const StudyRun& run);

}  // namespace ttr::experiments
