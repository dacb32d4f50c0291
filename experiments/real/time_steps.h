/// Time stamps that go on beyond the last one, where they are spaced evenly.
///
/// Read: dates, year first (1958-03-29, 1958/03/29, 19580329, 1958-03), or day or month first with
/// a year of four digits (29.03.1958, 29/03/1958, 03/29/1958: which of both, the spacing tells, or
/// else nothing is read); behind a date a time of day, T14:05, 14:05:30 or 14:05:30.250, and what
/// follows all of them alike (Z, +01:00); and plain numbers (years, rows, Unix seconds) with as
/// many digits behind the point each. Clocks are not moved for summer.
///
/// Even spacing: months (the day of the month is the same, or the month's last), weekdays (Monday
/// to Friday), or any fixed time. Stamps that go on are written as those that were read.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace ttr::experiments {

/// A stamp in parts: how it is written, and when it is.
struct Stamp {
  enum class Order { kNumber, kYearFirst, kDayFirst, kMonthFirst };

  Order order = Order::kNumber;
  char separator = 0;    ///< between the parts of a date; 0: none
  bool has_day = true;   ///< else a year and a month
  char clock = 0;        ///< between date and time of day; 0: no time of day
  bool seconds = false;  ///< are seconds written?
  int digits = 0;        ///< behind the point, of seconds or a number
  int width = 0;         ///< of a number with zeros before it
  std::string rest{};    ///< what follows, Z or +01:00

  std::int64_t days = 0;   ///< since 1970-01-01
  std::int64_t units = 0;  ///< since midnight, or the number: in units of 10^-digits

  /// Are both written alike?
  bool IsLike(const Stamp& other) const;
};

class TimeSteps {
 public:
  /// Steps between the last stamps of a column, three or more, the oldest first; absent where they
  /// are uneven.
  static std::optional<TimeSteps> Of(std::span<const std::string> stamps);

  /// Steps between dates, or between numbers where those will do, that rise and of which some may
  /// be absent: what most neighbours have between them, two or more. Absent where fewer than half
  /// have that, or a stamp is none.
  static std::optional<TimeSteps> OfMost(std::span<const std::string> stamps, bool numbers);

  /// From one stamp to a later one; 0 where that is no whole number of them, or a text is no stamp.
  std::int64_t Between(const std::string& from, const std::string& to) const;
  /// Does `from` lie before `to`? Both are stamps.
  bool Rises(const std::string& from, const std::string& to) const;
  /// These steps behind another last stamp.
  TimeSteps Behind(const std::string& last) const;
  /// Is it a stamp as the others are?
  bool Reads(const std::string& text) const;

  /// The stamp `steps` after the last one.
  std::string After(std::int64_t steps) const;
  /// "1 week", "2 months", "15 minutes", "weekdays"; "1" for numbers.
  std::string Spacing() const;
  /// Plain numbers may count anything; dates are times.
  bool IsDate() const { return last_.order != Stamp::Order::kNumber; }

 private:
  enum class Kind { kFixed, kMonths, kWeekdays };

  static std::optional<TimeSteps> Read(std::span<const std::string> stamps, Stamp::Order order);
  static std::optional<TimeSteps> ReadMost(std::span<const std::string> stamps, Stamp::Order order);
  std::int64_t Steps(const Stamp& from, const Stamp& to) const;

  Stamp last_;
  Kind kind_ = Kind::kFixed;
  std::int64_t step_ = 0;  // units, or months
  unsigned day_ = 1;       // of the month, 31 for its last
};

}  // namespace ttr::experiments
