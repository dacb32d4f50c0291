/// What reading a text came to: a table, the curves over the position, a picture.
#pragma once

#include <string>

#include "experiments/real/recall.h"
#include "experiments/report/chart.h"
#include "experiments/report/table.h"

namespace ttr::experiments {

/// One line a method: tokens, recall (all; after a token that had a successor before; where this
/// successor had followed before), bits to name a token that is known, bits a token in all.
report::Table RecallTable(const RecallRun& run, const RecallOptions& options,
                          const std::string& source);

/// One line a method and bin of positions.
report::Table RecallCurve(const RecallRun& run);

/// Bits to name a token by a blind guess among all that came: what a memory has to be below.
double GuessBits(const RecallRun& run);

report::Chart RecallChart(const RecallRun& run, const RecallOptions& options,
                          const std::string& source);

}  // namespace ttr::experiments
