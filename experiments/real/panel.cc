#include "experiments/real/panel.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <unordered_map>
#include <utility>

#include "experiments/real/row_clock.h"
#include "ttr/error.h"

namespace ttr::experiments {
namespace {

std::vector<std::string> StampsOf(const Panel& panel, const std::vector<std::size_t>& rows) {
  std::vector<std::string> stamps;
  for (const std::size_t row : rows) stamps.push_back(panel.rows[row].fields[panel.time]);
  return stamps;
}

// Those as long as most are, once each, in their order as numbers, or as texts where they are none:
// good enough to see how they go on.
std::vector<std::string> Sorted(std::vector<std::string> stamps) {
  std::map<std::size_t, std::int64_t> lengths;
  for (const std::string& stamp : stamps) ++lengths[stamp.size()];
  const bool dates = stamps.front().find_first_not_of("0123456789.") != std::string::npos;
  const auto most =
      std::max_element(lengths.begin(), lengths.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  if (dates) std::erase_if(stamps, [&](const auto& stamp) { return stamp.size() != most->first; });
  std::vector<std::pair<double, std::string>> keyed;
  for (std::string& stamp : stamps) {
    double value = 0;
    if (!ParseValue(stamp, value) || std::isnan(value)) value = 0;
    keyed.emplace_back(value, std::move(stamp));
  }
  std::sort(keyed.begin(), keyed.end());
  keyed.erase(std::unique(keyed.begin(), keyed.end()), keyed.end());
  stamps.clear();
  for (auto& [value, stamp] : keyed) stamps.push_back(std::move(stamp));
  return stamps;
}

[[noreturn]] void Fail(const Panel& panel, const PanelSeries& series, std::size_t row,
                       const std::string& required) {
  throw Error("forecast",
              fmt::format("line {} column '{}' of '{}'", panel.rows[row].line,
                          panel.header[panel.time], series.id),
              required, "'" + panel.rows[row].fields[panel.time] + "'");
}

// By rising time; absent rows are counted.
void SortSeries(Panel& panel, PanelSeries& series) {
  const TimeSteps& steps = *panel.steps;
  const auto stamp = [&](std::size_t row) -> const std::string& {
    return panel.rows[row].fields[panel.time];
  };
  for (const std::size_t row : series.rows) {
    if (!steps.Reads(stamp(row))) Fail(panel, series, row, "a time as most others");
  }
  std::stable_sort(series.rows.begin(), series.rows.end(),
                   [&](std::size_t a, std::size_t b) { return steps.Rises(stamp(a), stamp(b)); });
  for (std::size_t i = 1; i < series.rows.size(); ++i) {
    const std::size_t before = series.rows[i - 1], row = series.rows[i];
    const std::int64_t between = steps.Between(stamp(before), stamp(row));
    if (between >= 1 && between <= RowClock::kMostAbsent) {
      panel.absent += between - 1;
      continue;
    }
    if (stamp(before) == stamp(row)) {
      Fail(panel, series, row,
           fmt::format("another time than that of line {}", panel.rows[before].line));
    }
    Fail(panel, series, row,
         fmt::format("a whole number of steps of {} behind '{}' (line {}), {} at the most",
                     steps.Spacing(), stamp(before), panel.rows[before].line,
                     RowClock::kMostAbsent));
  }
}

void FindSteps(Panel& panel) {
  const auto longest =
      std::max_element(panel.series.begin(), panel.series.end(),
                       [](const auto& a, const auto& b) { return a.rows.size() < b.rows.size(); });
  const std::vector<std::string> stamps = StampsOf(panel, longest->rows);
  panel.steps = TimeSteps::OfMost(stamps, /*numbers=*/true);
  if (!panel.steps) panel.steps = TimeSteps::OfMost(Sorted(stamps), /*numbers=*/true);
  if (panel.steps) return;
  Fail(panel, *longest, longest->rows.front(),
       "one of dates or numbers, of which most have one step to the next");
}

}  // namespace

Panel ReadPanel(TableReader& table, const std::string& by, const std::string& time) {
  Panel panel{.header = table.header(), .by = ColumnAt(table, "--by", by)};
  if (!time.empty()) panel.time = ColumnAt(table, "--time", time);
  std::unordered_map<std::string, std::size_t> places;
  TableRow row;
  while (table.Next(row)) {
    const std::string& id = row.fields[panel.by];
    if (id.empty()) {
      throw Error("forecast", fmt::format("line {} column '{}'", row.line, by),
                  "the name of a series", "empty");
    }
    const auto [found, is_new] = places.emplace(id, panel.series.size());
    if (is_new) panel.series.push_back({.id = id, .rows = {}});
    panel.series[found->second].rows.push_back(panel.rows.size());
    panel.rows.push_back(row);
  }
  if (panel.series.empty()) throw Error("forecast", "the table", "of one row or more", "empty");
  if (panel.time < 0) return panel;
  FindSteps(panel);
  for (PanelSeries& series : panel.series) SortSeries(panel, series);
  return panel;
}

}  // namespace ttr::experiments
