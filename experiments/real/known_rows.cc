#include "experiments/real/known_rows.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "experiments/real/row_clock.h"
#include "experiments/real/table_hints.h"
#include "ttr/error.h"

namespace ttr::experiments {

void CheckKnown(const TableRow& row, const ForecastOptions& options) {
  const std::size_t exogenous = options.exogenous.size();
  for (std::size_t e = 0; e < exogenous; ++e) {
    if (!std::isnan(row.values[row.values.size() - exogenous + e])) continue;
    throw Error("forecast", fmt::format("line {} column '{}'", row.line, options.exogenous[e]),
                "known in every row (--exogenous)", "missing");
  }
}

KnownRows::KnownRows(const std::string& path, const TableOptions& read,
                     const ForecastOptions& options)
    : name_(path) {
  HintedTable table(path, read);
  header_ = table.reader().header();
  TableRow row;
  while (table.Read([&] { return table.reader().Next(row); })) {
    CheckKnown(row, options);
    values_.insert(values_.end(), row.values.begin(), row.values.end());
    rows_.push_back(row);
  }
  if (static_cast<std::int64_t>(rows_.size()) >= options.ahead) return;
  throw Error("forecast", "--future " + path,
              fmt::format("of {} rows to come (--ahead)", options.ahead),
              fmt::format("of {}", rows_.size()));
}

std::span<const double> KnownRows::First(std::int64_t rows) const {
  if (rows_.empty()) return {};
  return std::span(values_).first(static_cast<std::size_t>(rows) * values_.size() / rows_.size());
}

void KnownRows::CheckTimes(const std::string& column, const std::vector<std::string>& times) const {
  const auto found = std::find(header_.begin(), header_.end(), column);
  if (found == header_.end()) return;
  const auto place = static_cast<std::size_t>(found - header_.begin());
  for (std::size_t k = 0; k < times.size(); ++k) {
    if (rows_[k].fields[place] == times[k]) continue;
    throw Error("forecast", fmt::format("line {} column '{}' of {}", rows_[k].line, column, name_),
                "'" + times[k] + "', the time of that row to come",
                "'" + rows_[k].fields[place] + "'");
  }
}

KnownPanel::KnownPanel(const std::string& path, const TableOptions& read, const std::string& by,
                       const std::string& time, const ForecastOptions& options) {
  HintedTable table(path, read);
  const std::int64_t ids = ColumnAt(table.reader(), "--by", by);
  const std::int64_t times = ColumnAt(table.reader(), "--time", time);
  TableRow row;
  while (table.Read([&] { return table.reader().Next(row); })) {
    CheckKnown(row, options);
    const auto [found, is_new] =
        rows_.emplace(std::pair(row.fields[ids], row.fields[times]), row.values);
    if (is_new) continue;
    throw Error("forecast", fmt::format("line {} column '{}' of {}", row.line, time, path),
                "another time than those of '" + row.fields[ids] + "' before it",
                "'" + row.fields[times] + "'");
  }
}

std::vector<double> KnownPanel::Of(const std::string& id, const std::vector<std::string>& times,
                                   const ForecastOptions& options) const {
  std::vector<double> known;
  if (options.exogenous.empty()) return known;
  for (const std::string& time : times) {
    const auto found = rows_.find({id, time});
    if (found == rows_.end()) {
      throw Error("forecast", "--future", "a row of '" + id + "' at '" + time + "'", "without one");
    }
    known.insert(known.end(), found->second.begin(), found->second.end());
  }
  return known;
}

}  // namespace ttr::experiments
