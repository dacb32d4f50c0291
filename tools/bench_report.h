// The tables and pictures of `ttr bench`.
#pragma once

#include <filesystem>
#include <vector>

#include "experiments/report/chart.h"
#include "experiments/report/table.h"
#include "tools/bench_limits.h"
#include "tools/bench_operators.h"
#include "tools/bench_work.h"

namespace ttr::tools {

// A table and the name of its files.
struct NamedTable {
  std::string name;  // a measurement's, or "limits"
  report::Table table;
};

// One table for every measurement that was run; the limits come first.
std::vector<NamedTable> BenchTables(const std::vector<Work>& works,
                                    const std::vector<OperatorWork>& operators,
                                    const Limits& limits);

// Useful flops a byte against GFLOP/s, under the roofs of this machine.
report::Chart RooflineChart(const std::vector<Work>& works, const Limits& limits);

// ns a token and memory along one axis: "T", "d", "H" or "threads". No panel where nothing was run.
report::Chart CurveChart(const std::vector<Work>& works, const std::string& axis);

}  // namespace ttr::tools
