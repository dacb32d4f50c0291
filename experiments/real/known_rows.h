/// Columns of a table that are known before their rows: calendars, plans, weather forecasts.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "experiments/data/table.h"
#include "experiments/real/forecast.h"

namespace ttr::experiments {

/// Error, which names line and column: an exogenous one, chosen behind those that are forecast, is
/// missing.
void CheckKnown(const TableRow& row, const ForecastOptions& options);

/// A table of the exogenous columns of rows to come.
class KnownRows {
 public:
  /// Nothing is known.
  KnownRows() = default;
  /// Reads it to its end. `read` chooses the exogenous columns. Error: a column or a value is
  /// missing, or there are fewer rows than `options.ahead`.
  KnownRows(const std::string& path, const TableOptions& read, const ForecastOptions& options);

  /// Those of the first rows, [rows, E].
  std::span<const double> First(std::int64_t rows) const;
  /// Error, which names the line: the table has a column of this name, with other times.
  void CheckTimes(const std::string& column, const std::vector<std::string>& times) const;

 private:
  std::string name_;
  std::vector<std::string> header_;
  std::vector<TableRow> rows_;
  std::vector<double> values_;
};

/// Such a table of many series, by the columns `by` of their ids and `time`.
class KnownPanel {
 public:
  KnownPanel() = default;
  /// As KnownRows, but for their number.
  KnownPanel(const std::string& path, const TableOptions& read, const std::string& by,
             const std::string& time, const ForecastOptions& options);

  /// Those of a series at these times, [rows, E]. Error: one that is not there.
  std::vector<double> Of(const std::string& id, const std::vector<std::string>& times,
                         const ForecastOptions& options) const;

 private:
  std::map<std::pair<std::string, std::string>, std::vector<double>> rows_;  // by id and time
};

}  // namespace ttr::experiments
