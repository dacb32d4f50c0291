/// Many series in one long table: a row says which series it belongs to and when it was.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "experiments/data/table.h"
#include "experiments/real/forecast.h"
#include "experiments/real/forecast_table.h"
#include "experiments/real/known_rows.h"
#include "experiments/real/time_steps.h"
#include "experiments/report/chart.h"
#include "experiments/report/table.h"

namespace ttr::experiments {

struct PanelSeries {
  std::string id;
  std::vector<std::size_t> rows;  ///< of the table, by rising time
};

/// The table, whole: series stand in it in any order.
struct Panel {
  std::vector<std::string> header{};
  std::vector<TableRow> rows{};
  std::vector<PanelSeries> series{};  ///< in the order in which they come
  std::int64_t by = 0;                ///< the column of ids
  std::int64_t time = -1;  ///< the column of times; -1: rows follow each other as they stand
  std::optional<TimeSteps> steps{};  ///< of all series
  std::int64_t absent = 0;           ///< rows between those of a series
};

/// Reads it to its end. `time` may be empty. Error, which names series and line: an id that is
/// missing, times that are no stamps, that are not evenly spaced, or come twice.
Panel ReadPanel(TableReader& table, const std::string& by, const std::string& time);

/// What the series come to.
struct PanelForecasts {
  std::vector<std::string> lines{};  ///< of the table's rows, in their order, then of rows to come
  std::string header{};
  report::Table errors;                  ///< a line a method, over all series
  report::Table each;                    ///< a line a series and method
  std::optional<report::Table> ahead{};  ///< rows to come
  report::Chart chart{};                 ///< of the first series
  std::vector<std::string> notes{};
};

/// A run of its own for each series, side by side; `known` has the exogenous columns of rows to
/// come.
PanelForecasts ForecastPanel(const Panel& panel, const ForecastOptions& options,
                             const KnownPanel& known,
                             const std::function<void(std::int64_t)>& progress);

}  // namespace ttr::experiments
