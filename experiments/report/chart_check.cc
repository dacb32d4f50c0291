#include "experiments/report/chart_check.h"

#include <fmt/core.h>

#include "ttr/error.h"

namespace ttr::report {
namespace {

void CheckLength(const Series& series, const char* what, std::size_t given) {
  if (given == series.y.size()) return;
  throw Error(fmt::format("[chart] {} of series {} must have {} values but has {}", what,
                          series.name, series.y.size(), given));
}

void CheckSeries(const Panel& panel, const Series& series) {
  if (!series.x.empty()) CheckLength(series, "x", series.x.size());
  if (!series.low.empty() || !series.high.empty()) {
    CheckLength(series, "low", series.low.size());
    CheckLength(series, "high", series.high.size());
  }
  const bool bars = series.mark == Mark::kBars;
  if (bars != !panel.categories.empty()) {
    throw Error(fmt::format("[chart] series {} must be bars just when its panel has categories",
                            series.name));
  }
  if (bars && !series.x.empty()) {
    throw Error(
        fmt::format("[chart] bars of series {} must stand at categories but have x", series.name));
  }
  if (bars) {
    if (series.y.size() != panel.categories.size()) {
      throw Error(
          fmt::format("[chart] series {} must have a bar for each of {} categories but has {}",
                      series.name, panel.categories.size(), series.y.size()));
    }
  }
}

}  // namespace

void CheckChart(const Chart& chart) {
  if (chart.panels.empty()) throw Error("[chart] panels must be one or more but are none");
  if (chart.height < 60 || chart.height > 4000) {
    throw Error(fmt::format("[chart] height must be in 60..4000 but is {}", chart.height));
  }
  for (const Panel& panel : chart.panels) {
    for (const Series& series : panel.series) CheckSeries(panel, series);
    if (!panel.heat_map) continue;
    const HeatMap& map = *panel.heat_map;
    if (!panel.series.empty() || map.rows.empty() || map.columns.empty() ||
        map.values.size() != map.rows.size() * map.columns.size()) {
      throw Error(
          fmt::format("[chart] a heat map must stand alone and have rows x columns = {} x {} "
                      "values but has {}",
                      map.rows.size(), map.columns.size(), map.values.size()));
    }
  }
}

}  // namespace ttr::report
