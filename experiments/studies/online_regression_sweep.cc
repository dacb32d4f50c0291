// What the parameters do that the paper leaves unstated: the scale (inverse bandwidth) of softmax
// and p = 1, and the ridges.
#include <fmt/core.h>

#include "experiments/studies/online_regression.h"
#include "experiments/studies/phases.h"
#include "experiments/studies/run_parts.h"
#include "experiments/studies/statistics.h"

namespace ttr::experiments {
namespace {

constexpr char kName[] = "online-regression-sweep";

constexpr double kScales[] = {.5, 1, 2, 4, 8, 16, 32, 64};
constexpr double kRidges[] = {1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1};

// A line of a picture: a layer, and the axis that it is drawn over.
enum Line { kSoftmax, kSoftmaxRaw, kLocal, kRls, kWeighted, kLocalRidge };
constexpr const char* kLabels[] = {"softmax, p = 0",      "softmax, raw keys",
                                   "local linear, p = 1", "RLS",
                                   "weighted RLS",        "local linear, p = 1"};
bool OverScale(Line line) { return line <= kLocal; }

struct Point {
  Line line;
  double at;  // the scale, or the ridge
  RegressionLayer layer;
};

std::string RecipeOf(const OnlineRegressionOptions& o, Line line, double at) {
  const auto local = [&](double scale, double ridge) {
    return fmt::format("local_linear{{scale: {}, normalise_qk: {}, ridge: {}}}", scale, o.unit_keys,
                       ridge);
  };
  switch (line) {
    case kSoftmax: return fmt::format("softmax{{scale: {}, normalise_qk: true}}", at);
    case kSoftmaxRaw: return fmt::format("softmax{{scale: {}}}", at);
    case kLocal: return local(at, o.local_ridge);
    case kRls: return fmt::format("rls{{ridge: {}}}", at);
    case kWeighted: return fmt::format("weighted_rls{{ridge: {}}}", at);
    case kLocalRidge: return local(o.scale, at);
  }
  return "";
}

std::vector<Point> Points(const OnlineRegressionOptions& o) {
  std::vector<Point> points;
  const auto add = [&](Line line, double at) {
    const std::string recipe = RecipeOf(o, line, at);
    points.push_back({line, at, {kLabels[line], recipe, {.decay = o.decay, .step = o.step}}});
  };
  for (const Line line : {kSoftmax, kSoftmaxRaw, kLocal}) {
    for (const double scale : kScales) add(line, scale);
  }
  for (const Line line : {kRls, kWeighted, kLocalRidge}) {
    for (const double ridge : kRidges) add(line, ridge);
  }
  return points;
}

// The loss of one phase over one axis.
report::Panel PhasePanel(const std::vector<Point>& points, const PartResults& results, int phase,
                         bool over_scale) {
  report::Panel panel{.title = PhaseName(phase),
                      .x = {.label = over_scale ? "scale" : "ridge",
                            .scale = over_scale ? report::Scale::kLog2 : report::Scale::kLog10},
                      .y = {.label = "loss", .scale = report::Scale::kLog10}};
  for (const Line line : {kSoftmax, kSoftmaxRaw, kLocal, kRls, kWeighted, kLocalRidge}) {
    if (OverScale(line) != over_scale) continue;
    report::Series series{.name = kLabels[line], .mark = report::Mark::kLinePoints};
    for (std::size_t p = 0; p < points.size(); ++p) {
      if (points[p].line != line) continue;
      std::vector<double> values;
      for (const auto& seed : results) values.push_back(PhaseMean(seed[p], phase));
      series.x.push_back(points[p].at);
      series.y.push_back(MeanOf(values).value);
    }
    panel.series.push_back(std::move(series));
  }
  return panel;
}

}  // namespace

StudyResult RunOnlineRegressionSweep(const OnlineRegressionOptions& options, const StudyRun& run) {
  OnlineRegressionOptions defaults, given = options;
  CheckRegressionOptions(given);
  const std::vector<Point> points = Points(given);
  std::vector<RegressionLayer> layers;
  for (const Point& point : points) layers.push_back(point.layer);
  const RegressionRunner runner(given, layers);
  const PartResults results =
      RunParts(run, kName, kSweepSeeds, Fields(given), static_cast<std::int64_t>(layers.size()),
               [&](std::uint64_t seed, std::int64_t part) {
                 return runner.Losses(seed, static_cast<std::size_t>(part));
               });

  report::Table table("Mean loss over scale and ridge");
  table.AddText("layer").AddReal("scale", 3, "", report::RealFormat::kSignificant);
  table.AddReal("ridge", 1, "", report::RealFormat::kScientific);
  for (int phase = 0; phase < kPhases; ++phase) table.AddMeasured(PhaseName(phase), 3);
  for (std::size_t p = 0; p < points.size(); ++p) {
    const bool over_scale = OverScale(points[p].line);
    std::vector<report::Cell> row = {points[p].layer.label, {}, {}};
    row[over_scale ? 1 : 2] = points[p].at;
    if (points[p].line == kLocal) row[2] = given.local_ridge;
    if (points[p].line == kLocalRidge) row[1] = given.scale;
    for (int phase = 0; phase < kPhases; ++phase) {
      std::vector<double> values;
      for (const auto& seed : results) values.push_back(PhaseMean(seed[p], phase));
      row.emplace_back(MeanOf(values));
    }
    table.AddRow(std::move(row));
  }
  SetMeta(table, SeedRange(run, kSweepSeeds), Fields(given));

  StudyResult result;
  result.name = kName;
  result.title = "Online regression: bandwidth and ridge";
  result.sentences = {
      "Too small a scale makes softmax attention a plain mean of the past, and worse than linear "
      "attention; a large one makes it the nearest neighbour. p = 1 needs both a scale and a ridge "
      "on its slope, and is below p = 0 over most of the range.",
      "Keys of this process are shorter than 1 at first and grow: an inner product of raw keys "
      "hardly varies under a scale of 1/sqrt(64), so keys are taken to unit length and the scale "
      "is chosen. Least squares with a tiny ridge fits its first tokens exactly and pays for it.",
  };
  result.command = CommandOf("online-regression --sweep", Fields(given), Fields(defaults), run);
  result.tables.push_back({"online-regression-sweep-phases", std::move(table)});
  report::Chart chart{.title = "What scale and ridge do",
                      .subtitle = fmt::format("mean one-step loss, {} seeds", results.size())};
  for (const bool over_scale : {true, false}) {
    for (const int phase : {0, 2}) {
      chart.panels.push_back(PhasePanel(points, results, phase, over_scale));
    }
  }
  result.charts.push_back({kName, std::move(chart)});
  return result;
}

}  // namespace ttr::experiments
