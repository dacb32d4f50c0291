#include "experiments/real/forecast_report.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

namespace ttr::experiments {

void SetMeta(const ForecastOptions& options, report::Table& table) {
  table.SetMetaJson("columns", options.columns);
  table.SetMeta("lags", options.lags);
  table.SetMeta("horizon", options.horizon);
  table.SetMeta("season", options.season);
  table.SetMeta("units", options.units == Units::kWindow ? "window" : "raw");
  table.SetMeta("step", options.gates.step);
  table.SetMeta("decay", options.gates.decay);
  if (!options.sparse_lags.empty()) table.SetMetaJson("lags", options.sparse_lags);
  if (!options.differences.empty()) table.SetMetaJson("differences", options.differences);
  if (!options.exogenous.empty()) table.SetMetaJson("exogenous", options.exogenous);
  if (options.logarithm) table.SetMetaJson("log", true);
  if (options.strategy != Strategy::kRecursive) {
    table.SetMeta("strategy", std::string(ToString(options.strategy)));
  }
  if (options.interval > 0) table.SetMeta("interval", options.interval);
  if (options.conformal > 0) table.SetMeta("interval_kind", "conformal");
  if (options.selects_bandwidth) table.SetMeta("bandwidth", "auto");
}

report::Table ErrorTable(const ForecastRun& run, const ForecastOptions& options) {
  report::Table table(fmt::format("Errors of forecasts {} row{} ahead", options.horizon,
                                  options.horizon == 1 ? "" : "s"));
  const bool several = options.columns.size() > 1;
  if (several) table.AddText("column");
  table.AddText("method").AddInteger("rows");
  table.AddReal("mae", 4, "", report::RealFormat::kSignificant);
  table.AddReal("rmse", 4, "", report::RealFormat::kSignificant);
  table.AddReal("rmse_of_naive", 3, "", report::RealFormat::kSignificant);
  if (options.interval > 0) {
    table.AddReal("coverage", 4, "", report::RealFormat::kSignificant);
    table.AddReal("width", 4, "", report::RealFormat::kSignificant);
    table.AddReal("loss", 4, "", report::RealFormat::kSignificant);
  }
  const std::vector<std::optional<FitQuality>> qualities = run.Qualities();
  const bool fits = std::any_of(qualities.begin(), qualities.end(),
                                [](const auto& quality) { return quality.has_value(); });
  if (fits) {
    table.AddReal("samples", 1);
    table.AddReal("condition", 3, "", report::RealFormat::kSignificant);
  }
  const std::vector<std::optional<double>> bandwidths = run.Bandwidths();
  if (options.selects_bandwidth) {
    table.AddReal("bandwidth", 3, "", report::RealFormat::kSignificant);
  }
  std::size_t method = 0;
  for (const ForecastErrors& errors : run.Errors()) {
    std::vector<report::Cell> cells;
    if (several) cells.emplace_back(errors.column);
    cells.emplace_back(errors.method);
    cells.emplace_back(errors.rows);
    for (const double error : {errors.mean_absolute, errors.root_mean_square, errors.relative}) {
      if (errors.rows > 0) {
        cells.emplace_back(error);
      } else {
        cells.emplace_back();
      }
    }
    if (options.interval > 0) {
      for (const double number : {errors.coverage, errors.width, errors.loss}) {
        cells.push_back(std::isnan(number) ? report::Cell() : report::Cell(number));
      }
    }
    if (fits) {
      const std::optional<FitQuality>& quality = qualities[method];
      cells.push_back(quality ? report::Cell(quality->samples) : report::Cell());
      cells.push_back(quality ? report::Cell(quality->condition) : report::Cell());
    }
    if (options.selects_bandwidth) {
      cells.push_back(bandwidths[method] ? report::Cell(*bandwidths[method]) : report::Cell());
    }
    method = (method + 1) % qualities.size();
    table.AddRow(std::move(cells));
  }
  SetMeta(options, table);
  return table;
}

namespace {

// The memory with the least error in the first column; methods().size() where none has one.
std::size_t BestMemory(const ForecastRun& run) {
  const std::vector<ForecastErrors> errors = run.Errors();
  const std::size_t methods = run.methods().size();
  std::size_t best = methods;
  for (std::size_t m = 0; m < methods; ++m) {
    if (!run.IsMemory(static_cast<std::int64_t>(m))) continue;
    const double error = errors[m].root_mean_square;
    if (std::isfinite(error) && (best == methods || error < errors[best].root_mean_square)) {
      best = m;
    }
  }
  return best;
}

std::vector<double> RowNumbers(const ForecastTail& tail, std::size_t rows) {
  std::vector<double> numbers(rows);
  for (std::size_t t = 0; t < rows; ++t) {
    numbers[t] = static_cast<double>(tail.first_row) + static_cast<double>(t);
  }
  return numbers;
}

bool HasYearFirst(const std::string& time) {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  return time.size() > 4 && std::all_of(time.begin(), time.begin() + 4, is_digit) &&
         !is_digit(time[4]);
}

// Some of the rows with their times: those where a year begins, if two or more do, else evenly, as
// many as there is room for.
std::vector<report::Tick> TimeTicks(const ForecastTail& tail) {
  constexpr std::size_t kMostYears = 5, kLetters = 30;
  const std::vector<std::string>& times = tail.times;
  std::vector<report::Tick> years, ticks;
  std::string before;
  std::size_t longest = 1;
  for (std::size_t t = 0; t < times.size(); ++t) {
    if (times[t].empty()) continue;
    longest = std::max(longest, times[t].size());
    const std::string year = HasYearFirst(times[t]) ? times[t].substr(0, 4) : before;
    const double row = static_cast<double>(tail.first_row) + static_cast<double>(t);
    if (year != before && !before.empty()) years.push_back({row, year});
    before = year;
  }
  if (years.size() >= 2) {
    const std::size_t each = (years.size() + kMostYears - 1) / kMostYears;
    for (std::size_t y = 0; y < years.size(); y += each) ticks.push_back(years[y]);
    return ticks;
  }
  const std::size_t count = std::max<std::size_t>(kLetters / longest, 1);
  for (std::size_t i = 0; i < count; ++i) {
    std::size_t t = (2 * i + 1) * times.size() / (2 * count);
    while (t < times.size() && times[t].empty()) ++t;
    if (t == times.size()) break;
    ticks.push_back({static_cast<double>(tail.first_row) + static_cast<double>(t), times[t]});
  }
  return ticks;
}

// The axis of a chart of the last rows: their times, where the table has such.
report::Axis RowAxis(const ForecastTail& tail) {
  if (tail.time.empty()) return {.label = "row"};
  return {.label = tail.time, .ticks = TimeTicks(tail)};
}

}  // namespace

report::Chart WatchChart(const ForecastRun& run, const ForecastOptions& options,
                         const ForecastTail& tail, const ConditionTrace& conditions) {
  report::Chart chart{.title = fmt::format("Forecasts of {}: do they keep what they promised?",
                                           options.columns.front())};
  const std::size_t best = BestMemory(run);
  report::Panel& errors = chart.panels.emplace_back();
  errors.title = "error: measured - forecast";
  errors.x = RowAxis(tail);
  errors.y = {.label = options.columns.front()};
  errors.references.push_back({.at = 0});
  const std::size_t rows = tail.values.size() - static_cast<std::size_t>(tail.ahead);
  if (best < run.methods().size()) {
    report::Series series{.name = run.methods()[best], .x = RowNumbers(tail, rows)};
    for (std::size_t t = 0; t < rows; ++t) {
      const double forecast = tail.forecasts[best][t];
      series.y.push_back(tail.values[t] - forecast);
      if (options.interval == 0) continue;
      series.low.push_back(tail.lower[best][t] - forecast);
      series.high.push_back(tail.upper[best][t] - forecast);
    }
    errors.series.push_back(std::move(series));
  }
  report::Panel fits{.title = "condition of the fit",
                     .x = {.label = "row"},
                     .y = {.label = "condition", .scale = report::Scale::kLog10}};
  const auto finite = [](double x) { return std::isfinite(x); };
  for (std::size_t m = 0; m < conditions.conditions().size(); ++m) {
    const std::vector<double>& values = conditions.conditions()[m];
    if (std::none_of(values.begin(), values.end(), finite)) continue;
    fits.series.push_back({.name = run.methods()[m], .x = conditions.rows(), .y = values});
  }
  if (!fits.series.empty()) chart.panels.push_back(std::move(fits));
  return chart;
}

report::Panel RowsPanel(const ForecastRun& run, const ForecastOptions& options,
                        const ForecastTail& tail) {
  report::Panel rows{.title = "the last rows"};
  if (options.interval > 0) {
    rows.title += fmt::format("; band: {:g} % interval", 100 * options.interval);
  }
  rows.x = RowAxis(tail);
  rows.y = {.label = options.columns.front()};
  const std::vector<double> number = RowNumbers(tail, tail.values.size());
  rows.series.push_back({.name = "measured", .x = number, .y = tail.values, .muted = true});
  const std::size_t best = BestMemory(run);
  if (best < run.methods().size()) {
    report::Series& forecast = rows.series.emplace_back();
    forecast = {.name = run.methods()[best], .x = number, .y = tail.forecasts[best]};
    if (options.interval > 0) {
      forecast.low = tail.lower[best];
      forecast.high = tail.upper[best];
    }
  }
  if (tail.ahead > 0) {
    const double last = number.back() - static_cast<double>(tail.ahead);
    rows.references.push_back({.at = last, .vertical = true, .label = "the table ends"});
    rows.title = fmt::format("last rows, next {}{}", tail.ahead,
                             rows.title.substr(std::string_view("the last rows").size()));
  }
  return rows;
}

report::Chart ForecastChart(const ForecastRun& run, const ForecastOptions& options,
                            const ForecastTail& tail) {
  std::vector<ForecastErrors> errors = run.Errors();
  errors.resize(run.methods().size());  // of the first column
  report::Chart chart{
      .title = fmt::format("Forecasts of {}", options.columns.front()),
      .subtitle = fmt::format("{} row{} ahead, from the last {}, learned in one pass",
                              options.horizon, options.horizon == 1 ? "" : "s", options.lags)};
  chart.panels.push_back(RowsPanel(run, options, tail));
  report::Panel& bars = chart.panels.emplace_back();
  bars.title = "error over the naive forecast's";
  bars.x = {.label = "less is better; 1: as the naive forecaster"};
  bars.horizontal = true;
  bars.categories = ShortNames(run.methods());
  report::Series relative{.name = "error", .mark = report::Mark::kBars};
  for (const ForecastErrors& error : errors) {
    relative.y.push_back(error.relative);
  }
  bars.series.push_back(std::move(relative));
  return chart;
}

}  // namespace ttr::experiments
