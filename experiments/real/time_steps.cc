#include "experiments/real/time_steps.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <utility>
#include <vector>

#include "experiments/real/stamp_text.h"

namespace ttr::experiments {
namespace {

namespace chrono = std::chrono;
using Order = Stamp::Order;

constexpr std::int64_t kSecondsADay = 86'400;

std::int64_t PowerOfTen(int digits) {
  std::int64_t power = 1;
  for (; digits > 0; --digits) power *= 10;
  return power;
}

std::int64_t UnitsADay(const Stamp& stamp) { return kSecondsADay * PowerOfTen(stamp.digits); }

chrono::year_month_day Date(const Stamp& stamp) {
  return chrono::sys_days(chrono::days(stamp.days));
}

std::int64_t Months(const Stamp& stamp) {
  const auto date = Date(stamp);
  return 12 * static_cast<int>(date.year()) + static_cast<unsigned>(date.month()) - 1;
}

unsigned Day(const Stamp& stamp) { return static_cast<unsigned>(Date(stamp).day()); }

unsigned LastDay(std::int64_t months) {
  const chrono::year_month month(chrono::year(static_cast<int>(months / 12)),
                                 chrono::month(static_cast<unsigned>(months % 12 + 1)));
  return static_cast<unsigned>((month / chrono::last).day());
}

// Monday is 1.
unsigned Weekday(std::int64_t days) {
  return chrono::weekday(chrono::sys_days(chrono::days(days))).iso_encoding();
}

// Units since a beginning that all stamps share.
std::int64_t Moment(const Stamp& stamp) {
  return stamp.order == Order::kNumber ? stamp.units : stamp.days * UnitsADay(stamp) + stamp.units;
}

// The difference that all neighbours have; 0 for none, or where they stand still.
template <class Value>
std::int64_t CommonStep(const std::vector<Stamp>& stamps, Value value) {
  const std::int64_t step = value(stamps[1]) - value(stamps[0]);
  for (std::size_t i = 2; i < stamps.size(); ++i) {
    if (value(stamps[i]) - value(stamps[i - 1]) != step) return 0;
  }
  return step;
}

// The day of the month that all stamps keep, as far as their months have it; 0 if none.
unsigned CommonDay(const std::vector<Stamp>& stamps) {
  const auto ends = [](const Stamp& stamp) { return Day(stamp) == LastDay(Months(stamp)); };
  unsigned day = 0;
  for (const Stamp& stamp : stamps) day = std::max(day, Day(stamp));
  for (const Stamp& stamp : stamps) {
    if (stamp.units != stamps[0].units) return 0;
    if (Day(stamp) != day && !ends(stamp)) return 0;
  }
  return std::all_of(stamps.begin(), stamps.end(), ends) ? 31 : day;
}

bool AreWeekdays(const std::vector<Stamp>& stamps) {
  for (std::size_t i = 0; i < stamps.size(); ++i) {
    if (Weekday(stamps[i].days) > 5 || stamps[i].units != stamps[0].units) return false;
    if (i == 0) continue;
    const std::int64_t expected = Weekday(stamps[i - 1].days) == 5 ? 3 : 1;
    if (stamps[i].days - stamps[i - 1].days != expected) return false;
  }
  return true;
}

std::string Counted(std::int64_t count, const char* unit) {
  return fmt::format("{} {}{}", count, unit, count == 1 || count == -1 ? "" : "s");
}

}  // namespace

std::optional<TimeSteps> TimeSteps::Read(std::span<const std::string> texts, Order order) {
  std::vector<Stamp> stamps;
  for (const std::string& text : texts) {
    const std::optional<Stamp> stamp = ParseStamp(text, order);
    if (!stamp || (!stamps.empty() && !stamp->IsLike(stamps[0]))) return std::nullopt;
    stamps.push_back(*stamp);
  }
  TimeSteps steps;
  steps.last_ = stamps.back();
  const bool is_date = order != Order::kNumber;
  if (is_date) {
    steps.step_ = CommonStep(stamps, Months);
    steps.day_ = CommonDay(stamps);
    steps.kind_ = Kind::kMonths;
    if (steps.step_ != 0 && steps.day_ != 0) return steps;
  }
  steps.step_ = CommonStep(stamps, Moment);
  steps.kind_ = Kind::kFixed;
  if (steps.step_ != 0) return steps;
  steps.kind_ = Kind::kWeekdays;
  if (is_date && AreWeekdays(stamps)) return steps;
  return std::nullopt;
}

std::optional<TimeSteps> TimeSteps::Of(std::span<const std::string> stamps) {
  if (stamps.size() < 3) return std::nullopt;
  if (auto steps = Read(stamps, Order::kYearFirst)) return steps;
  if (auto steps = Read(stamps, Order::kNumber)) return steps;
  auto day_first = Read(stamps, Order::kDayFirst);
  auto month_first = Read(stamps, Order::kMonthFirst);
  if (day_first && month_first) return std::nullopt;
  return day_first ? day_first : month_first;
}

namespace {

// What most of them are, the smallest of several.
std::int64_t MostCommon(std::vector<std::int64_t> numbers) {
  std::sort(numbers.begin(), numbers.end());
  std::int64_t best = 0;
  std::ptrdiff_t most = 0;
  for (auto one = numbers.begin(); one != numbers.end();) {
    const auto end = std::upper_bound(one, numbers.end(), *one);
    if (end - one > most) {
      most = end - one;
      best = *one;
    }
    one = end;
  }
  return best;
}

template <class Value>
std::int64_t CommonestStep(const std::vector<Stamp>& stamps, Value value) {
  std::vector<std::int64_t> steps;
  for (std::size_t i = 1; i < stamps.size(); ++i) {
    steps.push_back(value(stamps[i]) - value(stamps[i - 1]));
  }
  return MostCommon(std::move(steps));
}

// Monday to Friday alone, and not every day of the week.
bool AreMostlyWeekdays(const std::vector<Stamp>& stamps) {
  bool over_weekend = false;
  for (std::size_t i = 0; i < stamps.size(); ++i) {
    if (Weekday(stamps[i].days) > 5 || stamps[i].units != stamps[0].units) return false;
    over_weekend = over_weekend || (i > 0 && stamps[i].days - stamps[i - 1].days == 3);
  }
  return over_weekend;
}

// From Monday to Friday, between two days of these.
std::int64_t WeekdaysBetween(std::int64_t from, std::int64_t to) {
  const std::int64_t weeks = (to - from) / 7;
  std::int64_t count = 5 * weeks;
  for (std::int64_t day = from + 7 * weeks; day < to; ++day) {
    count += Weekday(day + 1) <= 5 ? 1 : 0;
  }
  return count;
}

}  // namespace

std::optional<TimeSteps> TimeSteps::ReadMost(std::span<const std::string> texts, Order order) {
  std::vector<Stamp> stamps;
  for (const std::string& text : texts) {
    const std::optional<Stamp> stamp = ParseStamp(text, order);
    if (!stamp || (!stamps.empty() && !stamp->IsLike(stamps[0]))) return std::nullopt;
    if (!stamps.empty() && Moment(*stamp) <= Moment(stamps.back())) return std::nullopt;
    stamps.push_back(*stamp);
  }
  TimeSteps steps;
  steps.last_ = stamps.back();
  const bool is_date = order != Order::kNumber;
  steps.day_ = is_date ? CommonDay(stamps) : 0;
  steps.step_ = CommonestStep(stamps, Months);
  steps.kind_ = Kind::kMonths;
  if (steps.day_ == 0 || steps.step_ == 0) {
    steps.step_ = CommonestStep(stamps, Moment);
    const bool daily = is_date && steps.step_ == UnitsADay(stamps[0]);
    steps.kind_ = daily && AreMostlyWeekdays(stamps) ? Kind::kWeekdays : Kind::kFixed;
  }
  std::size_t regular = 0;
  for (std::size_t i = 1; i < stamps.size(); ++i) {
    regular += steps.Steps(stamps[i - 1], stamps[i]) == 1 ? 1 : 0;
  }
  if (2 * regular < stamps.size() - 1) return std::nullopt;
  return steps;
}

std::optional<TimeSteps> TimeSteps::OfMost(std::span<const std::string> stamps, bool numbers) {
  if (stamps.size() < 2) return std::nullopt;
  if (auto steps = ReadMost(stamps, Order::kYearFirst)) return steps;
  if (numbers) {
    if (auto steps = ReadMost(stamps, Order::kNumber)) return steps;
  }
  auto day_first = ReadMost(stamps, Order::kDayFirst);
  auto month_first = ReadMost(stamps, Order::kMonthFirst);
  if (day_first && month_first) return std::nullopt;
  return day_first ? day_first : month_first;
}

std::int64_t TimeSteps::Steps(const Stamp& from, const Stamp& to) const {
  const auto whole = [](std::int64_t apart, std::int64_t step) {
    return apart > 0 && apart % step == 0 ? apart / step : 0;
  };
  if (kind_ == Kind::kFixed) return whole(Moment(to) - Moment(from), step_);
  if (from.units != to.units || to.days <= from.days) return 0;
  if (kind_ == Kind::kMonths) {
    const auto fits = [&](const Stamp& stamp) {
      return Day(stamp) == std::min(day_, LastDay(Months(stamp)));
    };
    return fits(from) && fits(to) ? whole(Months(to) - Months(from), step_) : 0;
  }
  return Weekday(from.days) <= 5 && Weekday(to.days) <= 5 ? WeekdaysBetween(from.days, to.days) : 0;
}

bool TimeSteps::Reads(const std::string& text) const {
  const std::optional<Stamp> stamp = ParseStamp(text, last_.order);
  return stamp && stamp->IsLike(last_);
}

std::int64_t TimeSteps::Between(const std::string& from, const std::string& to) const {
  if (!Reads(from) || !Reads(to)) return 0;
  return Steps(*ParseStamp(from, last_.order), *ParseStamp(to, last_.order));
}

bool TimeSteps::Rises(const std::string& from, const std::string& to) const {
  return Moment(*ParseStamp(from, last_.order)) < Moment(*ParseStamp(to, last_.order));
}

TimeSteps TimeSteps::Behind(const std::string& last) const {
  TimeSteps steps = *this;
  steps.last_ = *ParseStamp(last, last_.order);
  return steps;
}

std::string TimeSteps::After(std::int64_t steps) const {
  Stamp stamp = last_;
  switch (kind_) {
    case Kind::kMonths: {
      const std::int64_t months = Months(last_) + steps * step_;
      const chrono::year_month_day date(chrono::year(static_cast<int>(months / 12)),
                                        chrono::month(static_cast<unsigned>(months % 12 + 1)),
                                        chrono::day(std::min(day_, LastDay(months))));
      stamp.days = chrono::sys_days(date).time_since_epoch().count();
      break;
    }
    case Kind::kWeekdays:
      for (; steps > 0; --steps) stamp.days += Weekday(stamp.days) == 5 ? 3 : 1;
      break;
    case Kind::kFixed: {
      const std::int64_t moment = Moment(last_) + steps * step_;
      if (!IsDate()) {
        stamp.units = moment;
        break;
      }
      const std::int64_t day = UnitsADay(last_);
      stamp.units = (moment % day + day) % day;
      stamp.days = (moment - stamp.units) / day;
      break;
    }
  }
  return WriteStamp(stamp);
}

std::string TimeSteps::Spacing() const {
  if (kind_ == Kind::kWeekdays) return "weekdays";
  if (kind_ == Kind::kMonths) {
    return step_ % 12 == 0 ? Counted(step_ / 12, "year") : Counted(step_, "month");
  }
  if (!IsDate()) {
    Stamp step = last_;
    step.units = step_;
    step.width = 0;
    return WriteStamp(step);
  }
  const std::int64_t second = PowerOfTen(last_.digits);
  constexpr std::array<std::pair<std::int64_t, const char*>, 5> kUnits = {
      {{7 * kSecondsADay, "week"},
       {kSecondsADay, "day"},
       {3600, "hour"},
       {60, "minute"},
       {1, "second"}}};
  for (const auto& [seconds, name] : kUnits) {
    if (step_ % (seconds * second) == 0) return Counted(step_ / (seconds * second), name);
  }
  return fmt::format("{} seconds", static_cast<double>(step_) / static_cast<double>(second));
}

}  // namespace ttr::experiments
