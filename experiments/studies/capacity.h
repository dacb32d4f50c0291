/// Capacity: what share of P random pairs a memory of d dimensions recalls, over P/d. Each pair is
/// written once, in one pass, with random unit embeddings; nothing is trained. How answers are
/// judged: recall_task.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "experiments/studies/options.h"
#include "experiments/studies/study.h"

namespace ttr::experiments {

struct CapacityOptions {
  std::int64_t dim = 64;
  std::vector<std::int64_t> pairs{16, 32, 48, 64, 96, 128, 192, 256, 384};
  double ridge = 1e-3;                 ///< of the least-squares layers
  double step = 0.5;                   ///< of the delta rules
  double scale = 8;                    ///< of the kernels
  std::vector<std::string> recipes{};  ///< more layers
};

OptionFields Fields(CapacityOptions& options);

inline constexpr std::int64_t kCapacitySeeds = 8;

StudyResult RunCapacity(const CapacityOptions& options, const StudyRun& run);

}  // namespace ttr::experiments
