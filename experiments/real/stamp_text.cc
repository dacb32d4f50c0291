#include "experiments/real/stamp_text.h"

#include <fmt/core.h>

#include <chrono>
#include <cstdlib>

namespace ttr::experiments {
namespace {

namespace chrono = std::chrono;
using Order = Stamp::Order;

constexpr std::size_t kMostDigits = 15;  // of a number; it fits an int64, and so do all sums
constexpr std::size_t kMostFraction = 6;

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// Takes parts of a text off its front.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : rest_(text) {}

  std::string_view rest() const { return rest_; }

  bool Take(char c) {
    if (rest_.empty() || rest_.front() != c) return false;
    rest_.remove_prefix(1);
    return true;
  }
  char TakeOneOf(std::string_view characters) {
    if (rest_.empty() || characters.find(rest_.front()) == characters.npos) return 0;
    const char c = rest_.front();
    rest_.remove_prefix(1);
    return c;
  }
  // All digits that follow.
  std::string_view TakeDigits() {
    std::size_t count = 0;
    while (count < rest_.size() && IsDigit(rest_[count])) ++count;
    const std::string_view digits = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return digits;
  }
  // So many digits as a number; -1 where they are not there.
  std::int64_t TakeNumber(std::size_t count) {
    std::int64_t value = 0;
    if (rest_.size() < count) return -1;
    for (std::size_t i = 0; i < count; ++i) {
      if (!IsDigit(rest_[i])) return -1;
      value = 10 * value + (rest_[i] - '0');
    }
    rest_.remove_prefix(count);
    return value;
  }

 private:
  std::string_view rest_;
};

std::optional<Stamp> ParseNumber(std::string_view text) {
  Scanner scan(text);
  Stamp stamp;
  const bool negative = scan.Take('-');
  const std::string_view whole = scan.TakeDigits();
  std::string_view fraction;
  if (scan.Take('.')) fraction = scan.TakeDigits();
  if (whole.empty() || !scan.rest().empty() || whole.size() + fraction.size() > kMostDigits) {
    return std::nullopt;
  }
  for (const std::string_view part : {whole, fraction}) {
    for (const char c : part) stamp.units = 10 * stamp.units + (c - '0');
  }
  if (negative) stamp.units = -stamp.units;
  stamp.digits = static_cast<int>(fraction.size());
  if (whole.size() > 1 && whole.front() == '0') stamp.width = static_cast<int>(whole.size());
  return stamp;
}

bool ParseDate(Scanner& scan, Stamp& stamp) {
  std::int64_t year = 0, month = 0, day = 1;
  if (stamp.order == Order::kYearFirst) {
    year = scan.TakeNumber(4);
    stamp.separator = scan.TakeOneOf("-/.");
    month = scan.TakeNumber(2);
    stamp.has_day = stamp.separator == 0 || scan.Take(stamp.separator);
    if (stamp.has_day) day = scan.TakeNumber(2);
  } else {
    const std::int64_t first = scan.TakeNumber(2);
    stamp.separator = scan.TakeOneOf("-/.");
    const std::int64_t second = scan.TakeNumber(2);
    if (stamp.separator == 0 || !scan.Take(stamp.separator)) return false;
    year = scan.TakeNumber(4);
    const bool day_first = stamp.order == Order::kDayFirst;
    if (!day_first && stamp.separator == '.') return false;  // nobody writes so
    day = day_first ? first : second;
    month = day_first ? second : first;
  }
  if (year < 0 || month < 0 || day < 0) return false;
  const chrono::year_month_day date(chrono::year(static_cast<int>(year)),
                                    chrono::month(static_cast<unsigned>(month)),
                                    chrono::day(static_cast<unsigned>(day)));
  if (!date.ok()) return false;
  stamp.days = chrono::sys_days(date).time_since_epoch().count();
  return true;
}

bool ParseClock(Scanner& scan, Stamp& stamp) {
  const std::int64_t hour = scan.TakeNumber(2);
  const std::int64_t minute = scan.Take(':') ? scan.TakeNumber(2) : -1;
  std::int64_t second = 0;
  std::string_view fraction;
  stamp.seconds = scan.Take(':');
  if (stamp.seconds) second = scan.TakeNumber(2);
  if (stamp.seconds && scan.Take('.')) fraction = scan.TakeDigits();
  if (hour < 0 || hour > 23 || minute < 0 || minute > 59 || second < 0 || second > 59 ||
      fraction.size() > kMostFraction) {
    return false;
  }
  stamp.units = 3600 * hour + 60 * minute + second;
  for (const char c : fraction) stamp.units = 10 * stamp.units + (c - '0');
  stamp.digits = static_cast<int>(fraction.size());
  stamp.rest = scan.rest();
  return stamp.rest.empty() || stamp.rest == "Z" || stamp.rest[0] == '+' || stamp.rest[0] == '-';
}

std::string WriteNumber(std::int64_t units, int digits, int width) {
  std::int64_t power = 1;
  for (int i = 0; i < digits; ++i) power *= 10;
  const std::int64_t size = std::abs(units);
  std::string text = fmt::format("{}{:0{}}", units < 0 ? "-" : "", size / power, width);
  if (digits > 0) text += fmt::format(".{:0{}}", size % power, digits);
  return text;
}

}  // namespace

bool Stamp::IsLike(const Stamp& other) const {
  return order == other.order && separator == other.separator && has_day == other.has_day &&
         clock == other.clock && seconds == other.seconds && digits == other.digits &&
         rest == other.rest;
}

std::optional<Stamp> ParseStamp(std::string_view text, Stamp::Order order) {
  if (order == Order::kNumber) return ParseNumber(text);
  Scanner scan(text);
  Stamp stamp{.order = order};
  if (!ParseDate(scan, stamp)) return std::nullopt;
  if (scan.rest().empty()) return stamp;
  stamp.clock = scan.TakeOneOf("T ");
  if (stamp.clock == 0 || !stamp.has_day || !ParseClock(scan, stamp)) return std::nullopt;
  return stamp;
}

std::string WriteStamp(const Stamp& stamp) {
  if (stamp.order == Order::kNumber) {
    return WriteNumber(stamp.units, stamp.digits, stamp.width);
  }
  const chrono::year_month_day date = chrono::sys_days(chrono::days(stamp.days));
  const auto year = static_cast<int>(date.year());
  const auto month = static_cast<unsigned>(date.month());
  const auto day = static_cast<unsigned>(date.day());
  const std::string_view between(&stamp.separator, stamp.separator == 0 ? 0 : 1);
  std::string text;
  if (stamp.order == Order::kYearFirst) {
    text = fmt::format("{:04}{}{:02}", year, between, month);
    if (stamp.has_day) text += fmt::format("{}{:02}", between, day);
  } else {
    const bool day_first = stamp.order == Order::kDayFirst;
    text = fmt::format("{:02}{}{:02}{}{:04}", day_first ? day : month, between,
                       day_first ? month : day, between, year);
  }
  if (stamp.clock == 0) return text;
  std::int64_t power = 1;
  for (int i = 0; i < stamp.digits; ++i) power *= 10;
  const std::int64_t seconds = stamp.units / power;
  text += fmt::format("{}{:02}:{:02}", stamp.clock, seconds / 3600, seconds / 60 % 60);
  if (stamp.seconds) {
    text += fmt::format(":{}", WriteNumber(stamp.units % (60 * power), stamp.digits, 2));
  }
  return text + stamp.rest;
}

}  // namespace ttr::experiments
