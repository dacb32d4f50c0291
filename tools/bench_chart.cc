// Pictures of `ttr bench`: the roofline, and the cost along one size.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tools/bench_report.h"

namespace ttr::tools {
namespace {

using report::Chart;
using report::Mark;
using report::Panel;
using report::Scale;
using report::Series;

// What a call does for every byte that it must move.
double Intensity(const Work& work) {
  const Demand& demand = work.demand();
  return demand.flops / (demand.state_bytes > 0 ? demand.state_bytes : demand.stream_bytes);
}

struct Spot {
  Measurement measurement;
  std::string variant;
  std::string name;
};
const Spot kSpots[] = {{Measurement::kPrefill, "", "prefill"},
                       {Measurement::kDecode, "cache", "decode, states in cache"},
                       {Measurement::kDecode, "DRAM", "decode, states in DRAM"},
                       {Measurement::kTrain, "both", "forward + backward"}};

}  // namespace

Chart RooflineChart(const std::vector<Work>& works, const Limits& limits) {
  Chart chart{.title = "Useful work under the machine's roofs",
              .subtitle = "float32, one thread's roofs; a point is a layer at one d",
              .panels = {},
              .height = 360};
  Panel& panel = chart.panels.emplace_back();
  panel.x = {.label = "useful flops a byte that must move", .scale = Scale::kLog2};
  panel.y = {.label = "GFLOP/s", .scale = Scale::kLog10};
  double low = std::numeric_limits<double>::infinity();
  double high = 0;
  for (const Spot& spot : kSpots) {
    Series points{.name = spot.name, .mark = Mark::kPoints};
    for (const Work& work : works) {
      const Setting& setting = work.setting();
      if (setting.measurement != spot.measurement || setting.variant != spot.variant) continue;
      points.x.push_back(Intensity(work));
      points.y.push_back(work.Gflops());
      low = std::min(low, points.x.back());
      high = std::max(high, points.x.back());
    }
    if (!points.x.empty()) panel.series.push_back(std::move(points));
  }
  if (high == 0) return chart;
  const double peak = limits.FmaPeak();
  low = std::exp2(std::floor(std::log2(low) - 1));
  high = std::exp2(std::ceil(std::log2(high) + 1));
  for (const Limits::Level& level : limits.levels()) {
    const double slope = limits.InPlace(level.bytes);
    // Up to where the peak takes over.
    const double end = std::clamp(peak / slope, low, high);
    panel.series.push_back({.name = fmt::format("{} {:.0f} GB/s", level.name, slope),
                            .x = {low, end},
                            .y = {slope * low, slope * end}});
  }
  panel.references.push_back({.at = peak, .label = fmt::format("FMA peak {:.0f} GFLOP/s", peak)});
  return chart;
}

Chart CurveChart(const std::vector<Work>& works, const std::string& axis) {
  Chart chart{.title = "Cost of a token and head against " + axis};
  Panel panel;
  panel.x = {.label = axis, .scale = Scale::kLog2};
  panel.y = {.label = "ns a token and head", .scale = Scale::kLog10};
  for (const Work& work : works) {
    const Setting& setting = work.setting();
    if (setting.measurement != Measurement::kCurves || setting.variant != axis) continue;
    if (panel.series.empty() || panel.series.back().name != work.name()) {
      panel.series.push_back({.name = work.name(), .mark = Mark::kLinePoints});
      const Dims& dims = setting.dims;
      chart.subtitle = "float32, forward";
      if (axis != "T") chart.subtitle += fmt::format(", T = {}", dims.tokens);
      if (axis != "d") chart.subtitle += fmt::format(", d = {}", dims.key_dim);
      if (axis != "H") chart.subtitle += fmt::format(", H = {}", dims.heads);
      if (axis != "threads") chart.subtitle += fmt::format(", threads {}", setting.threads);
    }
    panel.series.back().x.push_back(work.x());
    panel.series.back().y.push_back(work.Ns());
  }
  if (!panel.series.empty()) chart.panels.push_back(std::move(panel));
  return chart;
}

}  // namespace ttr::tools
