#include "experiments/real/future.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "experiments/real/forecast_report.h"
#include "experiments/real/time_steps.h"

namespace ttr::experiments {
namespace {

struct TimeColumn {
  std::int64_t column = -1;
  TimeSteps steps;
};

std::optional<TimeColumn> FindTime(const TableReader& table, const ForecastTail& tail) {
  std::optional<TimeColumn> found;
  std::vector<std::string> stamps;
  for (std::size_t column = 0; column < table.header().size(); ++column) {
    const auto index = static_cast<std::int64_t>(column);
    const auto& chosen = table.chosen();
    if (std::find(chosen.begin(), chosen.end(), index) != chosen.end()) continue;
    stamps.clear();
    for (const auto& fields : tail.fields) stamps.push_back(fields[column]);
    const std::optional<TimeSteps> steps = TimeSteps::Of(stamps);
    if (!steps || (found && !steps->IsDate())) continue;
    found = {.column = index, .steps = *steps};
    if (steps->IsDate()) break;
  }
  return found;
}

}  // namespace

Future MakeFuture(ForecastRun& run, const TableReader& table, const ForecastTail& tail,
                  const RowClock& clock, const KnownRows& known) {
  const std::int64_t ahead = run.options().ahead;
  Future future{.forecasts = run.Ahead(known.First(ahead))};
  std::optional<TimeColumn> time;
  if (const auto steps = clock.Last()) {
    time = {.column = clock.column(), .steps = *steps};
  } else {
    time = FindTime(table, tail);
  }
  if (time) {
    future.time = table.header()[time->column];
    future.time_column = time->column;
    future.spacing = time->steps.Spacing();
  }
  const auto rows = tail.first_row - 1 + static_cast<std::int64_t>(tail.values.size());
  for (std::int64_t k = 1; k <= ahead; ++k) {
    future.times.push_back(time ? time->steps.After(k) : std::to_string(rows + k));
  }
  if (time) known.CheckTimes(future.time, future.times);
  return future;
}

std::string FutureLines(const ForecastRun& run, const ForecastOptions& options,
                        const TableReader& table, Future& future) {
  std::string text;
  std::vector<std::string> fields;
  for (std::int64_t k = 0; k < options.ahead; ++k) {
    fields.assign(table.header().size(), "");
    if (future.time_column >= 0) fields[future.time_column] = future.times[k];
    AddForecasts(run, future.forecasts, k, fields);
    text += report::CsvLine(fields) + "\n";
  }
  return text;
}

void AddFutureColumns(const ForecastRun& run, const ForecastOptions& options,
                      report::Table& table) {
  for (const std::string& name : ForecastNames(run, options.columns)) {
    table.AddReal(name, 6, "", report::RealFormat::kSignificant);
  }
}

void AddFutureRows(const ForecastRun& run, const ForecastOptions& options, Future& future,
                   const std::vector<report::Cell>& first, report::Table& table) {
  const auto methods = static_cast<std::int64_t>(run.methods().size());
  const auto columns = static_cast<std::int64_t>(options.columns.size());
  const auto cell = [](double number, bool there) {
    return there ? report::Cell(number) : report::Cell();
  };
  for (std::int64_t k = 0; k < options.ahead; ++k) {
    std::vector<report::Cell> cells = first;
    cells.emplace_back(future.times[k]);
    for (std::int64_t c = 0; c < columns; ++c) {
      for (std::int64_t m = 0; m < methods; ++m) {
        const double forecast = future.forecasts.At(m, k)[c];
        cells.push_back(cell(forecast, future.forecasts.Made(m, k, c)));
        if (!run.HasIntervals(m)) continue;
        const double margin = future.forecasts.Margin(m, k)[c];
        const auto [lower, upper] = run.IntervalOf(m, forecast, margin);
        for (const double bound : {lower, upper}) {
          cells.push_back(cell(bound, !std::isnan(margin)));
        }
      }
    }
    table.AddRow(std::move(cells));
  }
}

report::Table FutureTable(const ForecastRun& run, const ForecastOptions& options, Future& future) {
  report::Table table(
      fmt::format("Forecasts of the next {} row{}", options.ahead, options.ahead == 1 ? "" : "s"));
  table.AddText(future.time);
  AddFutureColumns(run, options, table);
  AddFutureRows(run, options, future, {}, table);
  SetMeta(options, table);
  table.SetMeta("ahead", options.ahead);
  if (future.time_column >= 0) table.SetMeta("spacing", future.spacing);
  return table;
}

void Extend(ForecastTail& tail, const ForecastRun& run, Future& future) {
  tail.ahead = static_cast<std::int64_t>(future.times.size());
  for (std::int64_t k = 0; k < tail.ahead; ++k) {
    tail.values.push_back(std::numeric_limits<double>::quiet_NaN());
    tail.times.push_back(tail.time.empty() ? std::string() : future.times[k]);
    for (std::size_t m = 0; m < run.methods().size(); ++m) {
      const auto method = static_cast<std::int64_t>(m);
      tail.forecasts[m].push_back(future.forecasts.At(method, k)[0]);
      tail.AddBounds(run, method, future.forecasts.At(method, k)[0],
                     future.forecasts.Margin(method, k)[0]);
    }
  }
}

}  // namespace ttr::experiments
