/// What a memory's function class and optimizer buy: the loss of its inner regression against the
/// position in a text and in a series, |v_t - m_{t-1}(k_t)|^2 over |v_t|^2. Linear memories, least
/// squares, and networks that are trained while they read; nothing else is trained.
///
/// Each memory has one number that a model would learn (step, ridge, scale). It is the one of a
/// list whose mean loss over the whole input is the least: chosen afterwards, for all alike.
#pragma once

#include <cstdint>
#include <string>

#include "experiments/studies/options.h"
#include "experiments/studies/study.h"

namespace ttr::experiments {

struct InnerLossOptions {
  std::vector<std::string> text{"LICENSE"};
  std::vector<std::string> table{"data/co2_weekly.csv"};
  std::vector<std::string> column{"co2"};
  std::int64_t dim = 64;
  std::int64_t lags = 52;
  std::int64_t tokens = 4096;  ///< at the most, and rows
};

OptionFields Fields(InnerLossOptions& options);

inline constexpr std::int64_t kInnerLossSeeds = 3;

StudyResult RunInnerLoss(const InnerLossOptions& options, const StudyRun& run);

}  // namespace ttr::experiments
