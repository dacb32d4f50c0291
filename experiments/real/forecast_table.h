/// A table in, the same table with forecasts beside it out.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "experiments/data/table.h"
#include "experiments/real/forecast.h"
#include "experiments/real/row_clock.h"

namespace ttr::experiments {

/// The end of the table: what one column of a chart shows, the last rows of the first chosen
/// column, and what tells how time goes on.
struct ForecastTail {
  static constexpr std::size_t kRows = 400;
  static constexpr std::size_t kStamps = 100;

  std::int64_t first_row = 1;                  // number of the first row in it
  std::vector<double> values;                  // as measured, NaN where missing
  std::vector<std::vector<double>> forecasts;  // of each method
  std::vector<std::vector<double>> lower;      // bounds of their intervals, NaN where there is none
  std::vector<std::vector<double>> upper;
  std::string time;                             // name of the column of times; empty: none
  std::vector<std::string> times;               // of each of `values`, empty where unknown
  std::deque<std::vector<std::string>> fields;  // of the last kStamps rows, every column
  std::int64_t ahead = 0;                       // rows at the end that the table does not have

  /// One more row of a method's bounds.
  void AddBounds(const ForecastRun& run, std::int64_t method, double forecast, double margin);
};

struct ForecastTableOptions {
  std::int64_t block = 512;   ///< rows taken together; 1 for a live stream
  std::int64_t ahead = 0;     ///< rows that are looked ahead for their exogenous columns
  RowClock* clock = nullptr;  ///< rows that it misses are read, too, as missing values
  /// Called after every block with the number of its rows.
  std::function<void(std::int64_t)> progress{};
};

/// The fields of a row's forecasts, by column and method, are added to `fields`.
void AddForecasts(const ForecastRun& run, Forecasts& forecasts, std::int64_t row,
                  std::vector<std::string>& fields);

/// The names of these fields.
std::vector<std::string> ForecastNames(const ForecastRun& run,
                                       const std::vector<std::string>& columns);

/// Reads `table` to its end and hands every line of the result (with its line end) to `write`: the
/// header first, then as many rows as the table has. A row is the table's own fields, then one
/// column a method: METHOD, or with several chosen columns `COLUMN METHOD`; where the run gives
/// intervals each memory's is followed by `METHOD.lower` and `METHOD.upper`. What is not there is
/// an empty field. Lines of a block come together, each before the next block is read. Absent rows
/// (`clock`) are read and have no line; their exogenous columns, those that are chosen behind the
/// ones that are forecast, are those of the row before.
///
/// Throws Error where the table has a column of such a name already, or an exogenous one is
/// missing.
ForecastTail ForecastTable(TableReader& table, ForecastRun& run,
                           const ForecastTableOptions& options,
                           const std::function<void(std::string_view)>& write);

}  // namespace ttr::experiments
