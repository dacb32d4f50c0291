/// What a run of forecasts comes to: a table of errors and a picture.
#pragma once

#include "experiments/real/forecast.h"
#include "experiments/real/forecast_table.h"
#include "experiments/report/chart.h"
#include "experiments/report/table.h"

namespace ttr::experiments {

/// One line a column and method: rows scored, MAE, RMSE, and RMSE relative to the naive
/// forecaster's. With intervals: the share of rows inside them, their mean width, and the loss.
/// Where there are least-squares memories: how many pairs count in them, and the condition of their
/// Gram matrix.
report::Table ErrorTable(const ForecastRun& run, const ForecastOptions& options);

/// What the run was asked for, as the metadata of its tables.
void SetMeta(const ForecastOptions& options, report::Table& table);

/// The last rows as measured and as the best memory and the naive forecaster said, with its
/// intervals, and on into the rows to come (Extend() in future.h), beside bars of all errors on the
/// first column.
report::Chart ForecastChart(const ForecastRun& run, const ForecastOptions& options,
                            const ForecastTail& tail);

/// Its first panel alone.
report::Panel RowsPanel(const ForecastRun& run, const ForecastOptions& options,
                        const ForecastTail& tail);

/// Errors of the best memory in the last rows, with what its intervals allowed, and the condition
/// of every least-squares memory as rows came.
report::Chart WatchChart(const ForecastRun& run, const ForecastOptions& options,
                         const ForecastTail& tail, const ConditionTrace& conditions);

}  // namespace ttr::experiments
