#include "experiments/real/row_clock.h"

#include <fmt/core.h>

#include <algorithm>

#include "experiments/real/table_hints.h"
#include "ttr/error.h"

namespace ttr::experiments {
namespace {

constexpr std::size_t kFewestTimes = 10;  // rows that tell of themselves that they are times

std::optional<TimeSteps> StepsIn(std::span<const TableRow> rows, std::int64_t column,
                                 bool numbers) {
  std::vector<std::string> stamps;
  for (const TableRow& row : rows) {
    if (row.fields.size() <= static_cast<std::size_t>(column)) return std::nullopt;
    stamps.push_back(row.fields[column]);
  }
  return TimeSteps::OfMost(stamps, numbers);
}

// In these rows, or as many of the first that it is so, kFewestTimes at the least.
std::optional<TimeSteps> StepsInMost(std::span<const TableRow> rows, std::int64_t column,
                                     bool numbers) {
  std::optional<TimeSteps> steps = StepsIn(rows, column, numbers);
  for (std::size_t n = rows.size() / 2; n >= kFewestTimes && !steps; n /= 2) {
    steps = StepsIn(rows.first(n), column, numbers);
  }
  return steps;
}

}  // namespace

std::int64_t ColumnAt(const TableReader& table, const std::string& option,
                      const std::string& name) {
  const std::vector<std::string>& header = table.header();
  const auto found = std::find(header.begin(), header.end(), name);
  if (found != header.end() && std::find(found + 1, header.end(), name) == header.end()) {
    return found - header.begin();
  }
  const std::string nearest = NearestName(name, header);
  throw Error(
      "forecast", option, "one column of the table",
      "'" + name + "'" +
          (found == header.end() && !nearest.empty() ? "; did you mean '" + nearest + "'?" : ""));
}

RowClock::RowClock(const TableReader& table, std::span<const TableRow> first,
                   const std::string& wanted)
    : wanted_(!wanted.empty()) {
  if (wanted_) {
    column_ = ColumnAt(table, "--time", wanted);
    name_ = wanted;
    // Where times are uneven later on, the error is of that line.
    steps_ = StepsInMost(first, column_, /*numbers=*/true);
    if (steps_) return;
    throw Error("forecast", "--time '" + wanted + "'",
                "a column of dates or numbers that rise from row to row, most of them by one step",
                "another one");
  }
  const std::vector<std::string>& header = table.header();
  for (std::size_t c = 0; c < header.size() && !steps_; ++c) {
    const auto column = static_cast<std::int64_t>(c);
    const auto& chosen = table.chosen();
    if (std::find(chosen.begin(), chosen.end(), column) != chosen.end()) continue;
    // Times may be uneven later on, which is said at that line.
    if (first.size() >= kFewestTimes) steps_ = StepsInMost(first, column, /*numbers=*/false);
    column_ = column;
    name_ = header[c];
  }
}

std::int64_t RowClock::AbsentBefore(const TableRow& row) {
  if (!steps_) return 0;
  const std::string& stamp = row.fields[column_];
  if (last_.empty() && steps_->Reads(stamp)) {
    last_ = stamp;
    return 0;
  }
  const std::int64_t steps = steps_->Between(last_, stamp);
  if (steps >= 1 && steps <= kMostAbsent) {
    if (steps > 1 && absent_ == 0) first_line_ = row.line;
    absent_ += steps - 1;
    last_ = stamp;
    return steps - 1;
  }
  if (wanted_) {
    throw Error("forecast", fmt::format("line {} column '{}'", row.line, name_),
                fmt::format("a whole number of steps of {} behind {}, {} at the most",
                            steps_->Spacing(), last_, kMostAbsent),
                stamp);
  }
  lost_line_ = row.line;
  steps_.reset();
  return 0;
}

std::optional<TimeSteps> RowClock::Last() const {
  if (!steps_ || last_.empty()) return std::nullopt;
  return steps_->Behind(last_);
}

std::string RowClock::Note() const {
  std::string note;
  if (absent_ > 0) {
    note = fmt::format("{} row{} absent by '{}', the first before line {}: missing values", absent_,
                       absent_ == 1 ? " is" : "s are", name_, first_line_);
  }
  if (lost_line_ > 0) {
    note += fmt::format("{}from line {} on '{}' is uneven: rows follow each other",
                        note.empty() ? "" : "; ", lost_line_, name_);
  }
  return note;
}

}  // namespace ttr::experiments
