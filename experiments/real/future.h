/// The rows beyond the end of a table: their times and their forecasts.
#pragma once

#include <string>
#include <vector>

#include "experiments/data/table.h"
#include "experiments/real/forecast.h"
#include "experiments/real/forecast_table.h"
#include "experiments/real/known_rows.h"
#include "experiments/report/table.h"

namespace ttr::experiments {

struct Future {
  std::string time = "row";  ///< the column that tells the time; "row" where none does
  std::int64_t time_column = -1;
  std::string spacing{};             ///< of its times: "1 week"
  std::vector<std::string> times{};  ///< of the rows to come
  Forecasts forecasts;               ///< [methods, ahead, C]
};

/// The next `ahead` rows of a table that `run` has read to its end. Time goes on by `clock`, where
/// that has a column; else in the first
/// column that is not forecast and whose last stamps are dates spaced evenly, else in the first of
/// numbers spaced evenly (time_steps.h); else rows are numbered, from 1 for the table's first.
/// `known` has the exogenous columns of these rows; where it has that time, too, it must agree.
Future MakeFuture(ForecastRun& run, const TableReader& table, const ForecastTail& tail,
                  const RowClock& clock, const KnownRows& known);

/// Its rows as lines that follow those of ForecastTable(): of the table's own fields only the time
/// is known.
std::string FutureLines(const ForecastRun& run, const ForecastOptions& options,
                        const TableReader& table, Future& future);

/// A line a row: its time, then what ForecastTable() calls its forecasts.
report::Table FutureTable(const ForecastRun& run, const ForecastOptions& options, Future& future);

/// Parts of that table: columns of forecasts, and rows with these cells before their times.
void AddFutureColumns(const ForecastRun& run, const ForecastOptions& options, report::Table& table);
void AddFutureRows(const ForecastRun& run, const ForecastOptions& options, Future& future,
                   const std::vector<report::Cell>& first, report::Table& table);

/// Rows to come of the first column behind those that a chart shows.
void Extend(ForecastTail& tail, const ForecastRun& run, Future& future);

}  // namespace ttr::experiments
