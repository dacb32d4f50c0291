/// Rows that a table leaves out, by its column of times: an absent time is a missing row.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "experiments/data/table.h"
#include "experiments/real/time_steps.h"

namespace ttr::experiments {

class RowClock {
 public:
  static constexpr std::size_t kLooksAt = 1000;         ///< rows that tell the spacing
  static constexpr std::int64_t kMostAbsent = 100'000;  ///< between two rows

  /// None: rows follow each other.
  RowClock() = default;
  /// A clock of the table that begins with these rows: the column that is `wanted`, whose times are
  /// to rise evenly to its end (Error: that they do not), or where none is, the first of dates that
  /// is not forecast and begins so, as long as it does.
  RowClock(const TableReader& table, std::span<const TableRow> first, const std::string& wanted);

  /// The time's column; -1: none, or none any more.
  std::int64_t column() const { return steps_ ? column_ : -1; }
  /// Rows that are absent between the last one and this.
  std::int64_t AbsentBefore(const TableRow& row);
  /// Those so far.
  std::int64_t absent() const { return absent_; }
  /// Steps behind the last row; none without a column, or before a row.
  std::optional<TimeSteps> Last() const;
  /// What there is to say of it at the end; or nothing.
  std::string Note() const;

 private:
  std::int64_t column_ = -1;
  std::string name_;
  bool wanted_ = false;
  std::optional<TimeSteps> steps_;
  std::string last_;
  std::int64_t absent_ = 0;
  std::int64_t first_line_ = 0;  // behind the first that is absent
  std::int64_t lost_line_ = 0;   // from which on times are uneven
};

/// The place of a column by its name. Error: there is none, or two.
std::int64_t ColumnAt(const TableReader& table, const std::string& option, const std::string& name);

}  // namespace ttr::experiments
