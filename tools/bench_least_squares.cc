#include "tools/bench_least_squares.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "tools/bench_limits.h"
#include "tools/bench_work.h"

namespace ttr::tools {
namespace {

using report::Table;

constexpr double kChunk = 64;
const char* const kDecodes[] = {"cache", "DRAM"};

// The work of a layer, d and variant, if it was run.
const Work* Find(const std::vector<Work>& works, std::string_view layer, std::int64_t d,
                 std::string_view variant) {
  for (const Work& work : works) {
    const Setting& setting = work.setting();
    if (setting.measurement == Measurement::kLeastSquares && work.name() == layer &&
        setting.dims.key_dim == d && setting.variant == variant) {
      return &work;
    }
  }
  return nullptr;
}

// How many times the other work's time; nothing where one of them was not run.
std::optional<double> Times(const Work* work, const Work* other) {
  if (work == nullptr || other == nullptr) return std::nullopt;
  return work->Ns() / other->Ns();
}

std::vector<const Work*> ForwardWorks(const std::vector<Work>& works) {
  std::vector<const Work*> found;
  for (const Work& work : works) {
    const Setting& setting = work.setting();
    if (setting.measurement == Measurement::kLeastSquares && setting.variant == "forward")
      found.push_back(&work);
  }
  return found;
}

}  // namespace

bool CarriesGram(const Recipe& recipe) {
  Recipe causal = recipe;  // others carry nothing from call to call
  causal.reading.causal = true;
  for (const StateSpec& spec : StateSpecs(causal)) {
    if (std::count(spec.shape.begin(), spec.shape.end(), Axis::kPhiDim) == 2) return true;
  }
  return false;
}

std::int64_t TokensOfFullRank(const Recipe& recipe, const Dims& dims) {
  return 4 * PhiDim(recipe, dims);
}

double LeastSquaresFlops(const Recipe& recipe, const Dims& dims, bool decoder) {
  const auto d = static_cast<double>(PhiDim(recipe, dims));
  const auto dv = static_cast<double>(dims.value_dim);
  const Optimizer& optimizer = recipe.optimizer;
  if (optimizer.solver != Solver::kExact) {
    return 2 * d * d * static_cast<double>(1 + optimizer.steps) + 4 * d * dv;
  }
  const bool fades = recipe.weights.decay != Decay::kNone;
  const bool own = optimizer.ridge_kind == RidgeKind::kRelative ||
                   (optimizer.ridge_kind == RidgeKind::kConstant && fades);
  if (own) return d * d * d / 3 + 5 * d * d + 6 * d * dv;
  if (dims.tokens == 1) return decoder ? 3 * d * d + 6 * d * dv : 9 * d * d + 5 * d * dv;
  const double m = kChunk;
  return 4 * d * d + 6 * d * dv + m * (3 * d + 3 * dv) + (d * d * d + m * m * m) / (3 * m);
}

Table LeastSquaresTable(const std::vector<Work>& works, const Limits& limits) {
  Table table(fmt::format("Least squares, float32, beside {} (delta)", kDeltaRule));
  table.AddText("layer").AddText("engine").AddInteger("d").AddInteger("T").AddInteger("H");
  table.AddReal("forward", 1, kNsUnit).AddReal("least", 1, kNsUnit).AddReal("forward / delta", 2);
  table.AddReal("useful", 1, "GFLOP/s").AddReal("of peak", 1, "%").AddReal("solved", 1, "%");
  table.AddReal("forward + backward", 1, kNsUnit).AddReal("both / forward", 2);
  table.AddReal("both / delta", 2);
  for (const Work* forward : ForwardWorks(works)) {
    const Setting& setting = forward->setting();
    const std::int64_t d = setting.dims.key_dim;
    const Work* both = Find(works, forward->name(), d, "both");
    const double peak = limits.FmaPeak() * setting.threads;
    std::optional<double> both_ns;
    if (both != nullptr) both_ns = both->Ns();
    table.AddRow({forward->name(), forward->plan().engine, d, setting.dims.tokens,
                  setting.dims.heads, forward->Ns(), forward->LeastNs(),
                  Times(forward, Find(works, kDeltaRule, d, "forward")), forward->Gflops(),
                  100 * forward->Gflops() / peak, 100 * forward->solved(), both_ns,
                  Times(both, forward), Times(both, Find(works, kDeltaRule, d, "both"))});
  }
  return table;
}

Table LeastSquaresDecodeTable(const std::vector<Work>& works, const Limits& limits) {
  Table table("Least squares, float32: single tokens, states of 2 MB and of 64 MB in all");
  table.AddText("layer").AddText("engine").AddInteger("d");
  for (const char* where : kDecodes) {
    const std::string in = std::string(", ") + where;
    table.AddReal("time" + in, 1, kNsUnit).AddReal("limit" + in, 1, kNsUnit);
    table.AddText("which" + in).AddReal("times limit" + in, 2).AddReal("solved" + in, 1, "%");
  }
  for (const char* where : kDecodes) {
    table.AddReal(std::string("state written, ") + where, 1, kNsUnit);
  }
  for (const Work* forward : ForwardWorks(works)) {
    const std::int64_t d = forward->setting().dims.key_dim;
    std::vector<report::Cell> row = {forward->name(), forward->plan().engine, d};
    bool run = false;
    for (const char* where : kDecodes) {
      const Work* work = Find(works, forward->name(), d, where);
      if (work == nullptr) continue;
      run = true;
      const Bound bound = limits.BoundOf(*work);
      for (report::Cell cell :
           {report::Cell(work->Ns()), report::Cell(bound.ns), report::Cell(bound.limit),
            report::Cell(work->Ns() / bound.ns), report::Cell(100 * work->solved())}) {
        row.push_back(std::move(cell));
      }
    }
    for (const char* where : kDecodes) {
      const Work* work = Find(works, forward->name(), d, std::string("written, ") + where);
      row.push_back(work == nullptr ? report::Cell() : report::Cell(work->Ns()));
    }
    if (run) table.AddRow(std::move(row));
  }
  return table;
}

report::Chart LeastSquaresChart(const std::vector<Work>& works) {
  report::Chart chart{.title = "Least squares: times the delta rule of the same shape",
                      .subtitle = fmt::format("float32, {}; decode: states in cache", kDeltaRule)};
  const std::pair<const char*, const char*> kinds[] = {
      {"forward", "forward"}, {"both", "forward + backward"}, {"cache", "decode"}};
  for (const Work* forward : ForwardWorks(works)) {
    const Setting& setting = forward->setting();
    const std::int64_t d = setting.dims.key_dim;
    if (forward->plan().engine == kDefinition || forward->name() == kDeltaRule) continue;
    const std::string title = fmt::format("d = {}", d);
    if (chart.panels.empty() || chart.panels.back().title != title) {
      report::Panel& panel = chart.panels.emplace_back();
      panel.title = title;
      panel.y = {.label = "times the delta rule", .min = 0};
      panel.references.push_back({.at = 1, .label = "delta rule"});
      for (const auto& [variant, name] : kinds) {
        panel.series.push_back({.name = name, .mark = report::Mark::kBars});
      }
    }
    report::Panel& panel = chart.panels.back();
    panel.categories.push_back(forward->name());
    for (std::size_t i = 0; i < std::size(kinds); ++i) {
      const char* const variant = kinds[i].first;
      const std::optional<double> times =
          Times(Find(works, forward->name(), d, variant), Find(works, kDeltaRule, d, variant));
      panel.series[i].y.push_back(times.value_or(std::numeric_limits<double>::quiet_NaN()));
    }
  }
  return chart;
}

}  // namespace ttr::tools
