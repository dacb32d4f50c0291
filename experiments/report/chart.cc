#include "experiments/report/chart.h"

#include <fmt/core.h>

#include "experiments/report/atomic_file.h"
#include "experiments/report/chart_script.h"
#include "experiments/report/gnuplot.h"
#include "experiments/report/svg.h"
#include "ttr/error.h"

namespace ttr::report {
namespace {

void CheckLength(const Series& series, const char* what, std::size_t given, std::size_t required) {
  if (given == required) return;
  throw Error(fmt::format("[chart] {} of series {} must have {} values but has {}", what,
                          series.name, required, given));
}

void CheckSeries(const Panel& panel, const Series& series) {
  const bool bars = series.mark == Mark::kBars;
  if (bars != !panel.categories.empty()) {
    throw Error(fmt::format("[chart] series {} must be bars just when its panel has categories",
                            series.name));
  }
  if (bars && !series.x.empty()) {
    throw Error(
        fmt::format("[chart] bars of series {} must stand at categories but have x", series.name));
  }
  if (bars) CheckLength(series, "y", series.y.size(), panel.categories.size());
  if (!series.x.empty()) CheckLength(series, "x", series.x.size(), series.y.size());
  if (series.low.empty() && series.high.empty()) return;
  CheckLength(series, "low", series.low.size(), series.y.size());
  CheckLength(series, "high", series.high.size(), series.y.size());
}

void CheckChart(const Chart& chart) {
  if (chart.panels.empty()) throw Error("[chart] panels must be one or more but are none");
  if (chart.height < 60 || chart.height > 4000) {
    throw Error(fmt::format("[chart] height must be in 60..4000 but is {}", chart.height));
  }
  for (const Panel& panel : chart.panels) {
    for (const Series& series : panel.series) CheckSeries(panel, series);
  }
}

}  // namespace

std::string RenderSvg(const Chart& chart, Format format) {
  CheckChart(chart);
  const std::string drawn = RunGnuplot(GnuplotScript(chart, format, Picture::kSvg));
  return FinishSvg(drawn, chart.title, chart.subtitle);
}

std::string RenderPng(const Chart& chart) {
  CheckChart(chart);
  return RunGnuplot(GnuplotScript(chart, Format::kWide, Picture::kPng));
}

void SaveChart(const Chart& chart, const std::filesystem::path& stem) {
  // Not replace_extension: a stem may hold a point, as in "decay.95".
  AtomicFile svg(stem.string() + ".svg");
  AtomicFile png(stem.string() + ".png");
  svg.Write(RenderSvg(chart));
  png.Write(RenderPng(chart));
  svg.Prepare();
  png.Prepare();
  svg.Commit();
  png.Commit();
}

}  // namespace ttr::report
