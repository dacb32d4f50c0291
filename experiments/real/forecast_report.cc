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
  if (options.interval > 0) table.SetMeta("interval", options.interval);
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

report::Chart ForecastChart(const ForecastRun& run, const ForecastOptions& options,
                            const ForecastTail& tail) {
  const std::size_t naive = options.season == 0 ? 1 : 2;  // methods that are no memory
  std::vector<ForecastErrors> errors = run.Errors();
  errors.resize(run.methods().size());  // of the first column
  std::size_t best = errors.size();
  for (std::size_t m = naive; m < errors.size(); ++m) {
    const double error = errors[m].root_mean_square;
    if (std::isfinite(error) && (best == errors.size() || error < errors[best].root_mean_square)) {
      best = m;
    }
  }

  report::Chart chart{
      .title = fmt::format("Forecasts of {}", options.columns.front()),
      .subtitle = fmt::format("{} row{} ahead, from the last {}, learned in one pass",
                              options.horizon, options.horizon == 1 ? "" : "s", options.lags)};
  report::Panel& rows = chart.panels.emplace_back();
  rows.title = "the last rows";
  if (options.interval > 0) {
    rows.title += fmt::format("; band: {:g} % interval", 100 * options.interval);
  }
  rows.x = {.label = "row"};
  rows.y = {.label = options.columns.front()};
  std::vector<double> number(tail.values.size());
  for (std::size_t t = 0; t < number.size(); ++t) {
    number[t] = static_cast<double>(tail.first_row) + static_cast<double>(t);
  }
  rows.series.push_back({.name = "measured", .x = number, .y = tail.values, .muted = true});
  if (best < errors.size()) {
    report::Series& forecast = rows.series.emplace_back();
    forecast = {.name = errors[best].method, .x = number, .y = tail.forecasts[best]};
    if (options.interval > 0) {
      for (std::size_t t = 0; t < number.size(); ++t) {
        forecast.low.push_back(forecast.y[t] - tail.margins[best][t]);
        forecast.high.push_back(forecast.y[t] + tail.margins[best][t]);
      }
    }
  }

  if (tail.ahead > 0) {
    const double last = number.back() - static_cast<double>(tail.ahead);
    rows.references.push_back({.at = last, .vertical = true, .label = "the table ends"});
    rows.title = fmt::format("last rows, next {}{}", tail.ahead,
                             rows.title.substr(std::string_view("the last rows").size()));
  }

  report::Panel& bars = chart.panels.emplace_back();
  bars.title = "error over the naive forecast's";
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
