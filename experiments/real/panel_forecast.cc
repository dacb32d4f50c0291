// Runs of a panel's series, and what they come to together.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <utility>

#include "experiments/real/forecast_report.h"
#include "experiments/real/future.h"
#include "experiments/real/panel.h"
#include "experiments/report/table.h"
#include "ttr/error.h"
#include "ttr/executor.h"

namespace ttr::experiments {
namespace {

constexpr std::size_t kDrawn = 2;  // series, side by side

// One series: its values with the absent ones, and where the table's rows are among them.
struct SeriesRows {
  std::vector<double> values;
  std::vector<double> known;  // exogenous columns; an absent row has those of the row before
  std::vector<std::int64_t> places;
};

struct SeriesRun {
  explicit SeriesRun(const ForecastOptions& options) : run(options) {}

  ForecastRun run;
  std::vector<std::vector<std::string>> fields;  // of the forecasts of the table's rows
  std::optional<Future> future;
  ForecastTail tail;  // of the first series alone
};

SeriesRows RowsOf(const Panel& panel, const PanelSeries& series, const ForecastOptions& options) {
  SeriesRows filled;
  const std::size_t columns = options.columns.size();
  const auto own = static_cast<std::ptrdiff_t>(columns);
  for (std::size_t i = 0; i < series.rows.size(); ++i) {
    const TableRow& row = panel.rows[series.rows[i]];
    CheckKnown(row, options);
    if (i > 0 && panel.steps) {
      const TableRow& before = panel.rows[series.rows[i - 1]];
      const std::int64_t steps =
          panel.steps->Between(before.fields[panel.time], row.fields[panel.time]);
      filled.values.resize(filled.values.size() + static_cast<std::size_t>(steps - 1) * columns,
                           std::numeric_limits<double>::quiet_NaN());
      for (std::int64_t k = 1; k < steps; ++k) {
        filled.known.insert(filled.known.end(), before.values.begin() + own, before.values.end());
      }
    }
    filled.places.push_back(static_cast<std::int64_t>(filled.values.size() / columns));
    filled.values.insert(filled.values.end(), row.values.begin(), row.values.begin() + own);
    filled.known.insert(filled.known.end(), row.values.begin() + own, row.values.end());
  }
  return filled;
}

void KeepTail(const Panel& panel, const PanelSeries& series, const SeriesRows& filled,
              Forecasts& forecasts, SeriesRun& one) {
  const std::size_t columns = forecasts.At(0, 0).size();
  const auto rows = static_cast<std::int64_t>(filled.values.size() / columns);
  const auto methods = static_cast<std::int64_t>(one.run.methods().size());
  const std::int64_t first = std::max<std::int64_t>(rows - 2 * ForecastTail::kStamps, 0);
  one.tail.first_row = first + 1;
  for (auto* of_methods : {&one.tail.forecasts, &one.tail.lower, &one.tail.upper}) {
    of_methods->resize(one.run.methods().size());
  }
  one.tail.times.resize(static_cast<std::size_t>(rows - first));
  if (panel.steps) {
    one.tail.time = panel.header[panel.time];
    for (std::size_t r = 0; r < series.rows.size(); ++r) {
      const std::int64_t place = filled.places[r] - first;
      if (place < 0) continue;
      one.tail.times[static_cast<std::size_t>(place)] =
          panel.rows[series.rows[r]].fields[panel.time];
    }
  }
  for (std::int64_t t = first; t < rows; ++t) {
    one.tail.values.push_back(filled.values[static_cast<std::size_t>(t) * columns]);
    for (std::int64_t m = 0; m < methods; ++m) {
      one.tail.forecasts[m].push_back(forecasts.At(m, t)[0]);
      one.tail.AddBounds(one.run, m, forecasts.At(m, t)[0], forecasts.Margin(m, t)[0]);
    }
  }
}

std::vector<std::string> TimesAhead(const Panel& panel, const PanelSeries& series,
                                    std::int64_t ahead) {
  std::vector<std::string> times;
  const std::string& last =
      panel.steps ? panel.rows[series.rows.back()].fields[panel.time] : series.id;
  for (std::int64_t k = 1; k <= ahead; ++k) {
    const auto rows = static_cast<std::int64_t>(series.rows.size());
    times.push_back(panel.steps ? panel.steps->Behind(last).After(k) : std::to_string(rows + k));
  }
  return times;
}

std::unique_ptr<SeriesRun> RunSeries(const Panel& panel, const PanelSeries& series,
                                     const ForecastOptions& options, const KnownPanel& known,
                                     bool drawn) {
  auto one = std::make_unique<SeriesRun>(options);
  const SeriesRows filled = RowsOf(panel, series, options);
  Forecasts forecasts = one->run.Next(filled.values, filled.known);
  for (const std::int64_t place : filled.places) {
    AddForecasts(one->run, forecasts, place, one->fields.emplace_back());
  }
  if (drawn) KeepTail(panel, series, filled, forecasts, *one);
  if (options.ahead == 0) return one;
  std::vector<std::string> times = TimesAhead(panel, series, options.ahead);
  std::optional<Forecasts> ahead = one->run.AheadIfAny(known.Of(series.id, times, options));
  if (!ahead) return one;
  one->future = Future{.times = std::move(times), .forecasts = *std::move(ahead)};
  if (drawn) Extend(one->tail, one->run, *one->future);
  return one;
}

report::Cell CellOf(double number) {
  return std::isfinite(number) ? report::Cell(number) : report::Cell();
}

// Sums over series of one method.
struct MethodSums {
  std::int64_t series = 0, rows = 0, intervals = 0;
  double logarithms = 0, inside = 0;
  std::int64_t grown = 0;
};

void AddErrorColumns(const ForecastOptions& options, report::Table& table) {
  const auto significant = report::RealFormat::kSignificant;
  table.AddInteger("rows").AddReal("rmse_of_naive", 3, "", significant);
  if (options.interval > 0) table.AddReal("coverage", 4, "", significant);
}

// A line a series and method into `each`, all series of a method into `sums`.
void AddErrors(const std::string& id, const ForecastRun& run, const ForecastOptions& options,
               report::Table& each, std::vector<MethodSums>& sums) {
  const std::vector<ForecastErrors> all = run.Errors();
  for (std::size_t i = 0; i < all.size(); ++i) {
    const ForecastErrors& errors = all[i];
    std::vector<report::Cell> cells = {id,
                                       errors.column,
                                       errors.method,
                                       errors.rows,
                                       CellOf(errors.mean_absolute),
                                       CellOf(errors.root_mean_square),
                                       CellOf(errors.relative)};
    if (options.interval > 0) cells.push_back(CellOf(errors.coverage));
    each.AddRow(std::move(cells));
    MethodSums& sum = sums[i % run.methods().size()];
    if (!(errors.relative > 0) || !std::isfinite(errors.relative)) continue;
    ++sum.series;
    sum.rows += errors.rows;
    sum.logarithms += std::log(errors.relative);
    sum.intervals += errors.intervals;
    if (errors.intervals > 0) {
      sum.inside += errors.coverage * static_cast<double>(errors.intervals);
    }
    sum.grown += errors.growth > 0 ? 1 : 0;
  }
}

report::Table SumTable(const std::vector<std::string>& methods, const ForecastOptions& options,
                       const std::vector<MethodSums>& sums) {
  report::Table table("Errors over all series");
  table.AddText("method").AddInteger("series");
  AddErrorColumns(options, table);
  for (std::size_t m = 0; m < methods.size(); ++m) {
    const MethodSums& sum = sums[m];
    std::vector<report::Cell> cells = {methods[m], sum.series, sum.rows};
    cells.push_back(CellOf(std::exp(sum.logarithms / static_cast<double>(sum.series))));
    if (options.interval > 0) {
      cells.push_back(CellOf(sum.inside / static_cast<double>(sum.intervals)));
    }
    table.AddRow(std::move(cells));
  }
  SetMeta(options, table);
  return table;
}

std::vector<std::string> NotesOf(const Panel& panel, const ForecastOptions& options,
                                 const std::vector<std::string>& methods,
                                 const std::vector<MethodSums>& sums, std::int64_t silent,
                                 const std::string& first_silent) {
  std::vector<std::string> notes;
  if (panel.steps) {
    notes.push_back(fmt::format("'{}' goes on by {}; {} absent rows are missing values",
                                panel.header[panel.time], panel.steps->Spacing(), panel.absent));
  } else {
    notes.push_back("rows of a series follow each other as they stand (--time COLUMN tells more)");
  }
  if (silent > 0) {
    notes.push_back(
        fmt::format("{} of {} series have too few rows for a forecast: '{}' is the first", silent,
                    panel.series.size(), first_silent));
  }
  for (std::size_t m = 0; m < methods.size(); ++m) {
    const MethodSums& sum = sums[m];
    const double level = options.interval;
    const double share = sum.inside / static_cast<double>(sum.intervals);
    if (level > 0 && sum.intervals >= 1000 && std::abs(share - level) > .03) {
      notes.push_back(fmt::format("intervals of {} were to hold {:g} of the rows and held {:.3f}",
                                  methods[m], level, share));
    }
    if (sum.grown > 0 && methods[m] != "naive" && methods[m] != "seasonal_naive") {
      notes.push_back(fmt::format("the last errors of {} have grown in {} series (drift)",
                                  methods[m], sum.grown));
    }
  }
  return notes;
}

// The table's rows with their forecasts, then the rows to come.
std::vector<std::string> LinesOf(const Panel& panel, const ForecastOptions& options,
                                 std::vector<std::unique_ptr<SeriesRun>>& runs) {
  std::vector<std::string> lines(panel.rows.size());
  for (std::size_t s = 0; s < runs.size(); ++s) {
    for (std::size_t i = 0; i < runs[s]->fields.size(); ++i) {
      const std::size_t row = panel.series[s].rows[i];
      std::vector<std::string> fields = panel.rows[row].fields;
      fields.insert(fields.end(), runs[s]->fields[i].begin(), runs[s]->fields[i].end());
      lines[row] = report::CsvLine(fields) + "\n";
    }
  }
  for (std::size_t s = 0; s < runs.size(); ++s) {
    if (!runs[s]->future) continue;
    for (std::int64_t k = 0; k < options.ahead; ++k) {
      std::vector<std::string> fields(panel.header.size());
      fields[panel.by] = panel.series[s].id;
      if (panel.time >= 0) fields[panel.time] = runs[s]->future->times[k];
      AddForecasts(runs[s]->run, runs[s]->future->forecasts, k, fields);
      lines.push_back(report::CsvLine(fields) + "\n");
    }
  }
  return lines;
}

report::Table AheadTable(const Panel& panel, const ForecastOptions& options,
                         std::vector<std::unique_ptr<SeriesRun>>& runs) {
  report::Table table(fmt::format("Forecasts of the next {} row{} of every series", options.ahead,
                                  options.ahead == 1 ? "" : "s"));
  table.AddText(panel.header[panel.by]);
  table.AddText(panel.time >= 0 ? panel.header[panel.time] : "row");
  AddFutureColumns(runs.front()->run, options, table);
  for (std::size_t s = 0; s < runs.size(); ++s) {
    if (!runs[s]->future) continue;
    AddFutureRows(runs[s]->run, options, *runs[s]->future, {report::Cell(panel.series[s].id)},
                  table);
  }
  SetMeta(options, table);
  return table;
}

}  // namespace

PanelForecasts ForecastPanel(const Panel& panel, const ForecastOptions& options,
                             const KnownPanel& known,
                             const std::function<void(std::int64_t)>& progress) {
  const std::size_t count = panel.series.size();
  std::vector<std::unique_ptr<SeriesRun>> runs(count);
  // In parts, so that one sees how far it is.
  constexpr std::size_t kPart = 64;
  for (std::size_t first = 0; first < count; first += kPart) {
    const std::size_t part = std::min(kPart, count - first);
    DefaultExecutor().Run(static_cast<std::int64_t>(part), [&](std::int64_t i) {
      const std::size_t s = first + static_cast<std::size_t>(i);
      try {
        runs[s] = RunSeries(panel, panel.series[s], options, known, s < kDrawn);
      } catch (const Error& error) {
        throw Error("series '" + panel.series[s].id + "': " + error.what());
      }
    });
    progress(static_cast<std::int64_t>(part));
  }

  PanelForecasts result{.errors = report::Table(""),
                        .each = report::Table("Errors of every series")};
  const std::vector<std::string>& methods = runs.front()->run.methods();
  result.each.AddText(panel.header[panel.by]).AddText("column").AddText("method");
  result.each.AddInteger("rows").AddReal("mae", 4).AddReal("rmse", 4).AddReal("rmse_of_naive", 3);
  if (options.interval > 0) result.each.AddReal("coverage", 4);
  std::vector<MethodSums> sums(methods.size());
  std::int64_t silent = 0;
  std::string first_silent;
  for (std::size_t s = 0; s < count; ++s) {
    AddErrors(panel.series[s].id, runs[s]->run, options, result.each, sums);
    if (options.ahead == 0 || runs[s]->future) continue;
    if (silent++ == 0) first_silent = panel.series[s].id;
  }
  result.errors = SumTable(methods, options, sums);
  result.notes = NotesOf(panel, options, methods, sums, silent, first_silent);
  std::vector<std::string> header = panel.header;
  for (const std::string& name : ForecastNames(runs.front()->run, options.columns)) {
    if (std::find(header.begin(), header.end(), name) != header.end()) {
      throw Error("forecast", "every column of the table",
                  "named otherwise than the forecasts beside it", "'" + name + "'");
    }
    header.push_back(name);
  }
  result.header = report::CsvLine(header) + "\n";
  result.lines = LinesOf(panel, options, runs);
  if (options.ahead > 0) result.ahead = AheadTable(panel, options, runs);
  result.chart = {.title = "Forecasts of the first series"};
  for (std::size_t s = 0; s < std::min(count, kDrawn); ++s) {
    report::Panel drawn = RowsPanel(runs[s]->run, options, runs[s]->tail);
    drawn.title = panel.series[s].id;
    result.chart.panels.push_back(std::move(drawn));
  }
  return result;
}

}  // namespace ttr::experiments
