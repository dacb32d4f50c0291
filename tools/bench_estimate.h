// How long a recipe takes on this machine: a few tokens are timed, the rest is scaled.
#pragma once

#include <cstdint>
#include <optional>

#include "ttr/plan.h"

namespace ttr::tools {

struct EstimatedTime {
  double seconds = 0;      // of all dims.tokens
  std::int64_t timed = 0;  // tokens that were run for it
};

// Seconds of a forward pass of these sizes on one thread, float32. As many tokens as take some
// milliseconds are run, on random inputs; the others are taken to cost as much a useful flop. None
// where one token alone would take seconds, or gigabytes.
std::optional<EstimatedTime> EstimateTime(const Recipe& recipe, const Plan& plan, const Dims& dims);

}  // namespace ttr::tools
