// What `ttr bench` knows of networks that are trained while they read.
#pragma once

#include <string>
#include <vector>

#include "experiments/report/table.h"
#include "tools/bench_limits.h"
#include "tools/bench_work.h"

namespace ttr::tools {

// What the measurement networks times.
struct NetworkLine {
  std::string name;
  std::string recipe;
};
std::vector<NetworkLine> NetworkLines();

// So that the limits hold what the table divides by.
void AddNetworkLimits(const std::vector<Work>& works, Limits& limits);

// Whole sequences on one thread, forward and backward, beside the processor's peak, and, where
// every token writes the weights, beside an update in place of all that it writes; the same on
// several threads, all heads and one; single tokens beside an update in place.
report::Table NetworksTable(const std::vector<Work>& works, const Limits& limits);

}  // namespace ttr::tools
