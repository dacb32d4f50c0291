#include "experiments/report/axis.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "experiments/report/table.h"
#include "ttr/error.h"

namespace ttr::report {
namespace {

constexpr double kAir = .04;  // Share of the extent left free at an end that the data decide.

bool IsLog(const Axis& axis) { return axis.scale != Scale::kLinear; }

// The axis's own coordinate, in which it is linear.
double Coordinate(const Axis& axis, double value) {
  switch (axis.scale) {
    case Scale::kLog10: return std::log10(value);
    case Scale::kLog2: return std::log2(value);
    case Scale::kLinear: break;
  }
  return value;
}

double Value(const Axis& axis, double coordinate) {
  switch (axis.scale) {
    case Scale::kLog10: return std::pow(10, coordinate);
    case Scale::kLog2: return std::exp2(coordinate);
    case Scale::kLinear: break;
  }
  return coordinate;
}

bool HasPlace(const Axis& axis, double value) {
  return std::isfinite(value) && (!IsLog(axis) || value > 0);
}

std::string Superscript(int number) {
  static constexpr const char* kDigits[] = {"⁰", "¹", "²", "³", "⁴", "⁵", "⁶", "⁷", "⁸", "⁹"};
  std::string out;
  for (const char c : std::to_string(number)) out += c == '-' ? "⁻" : kDigits[c - '0'];
  return out;
}

std::vector<Tick> LinearTicks(const Range& range, int wanted) {
  const double rough = (range.high - range.low) / std::max(1, wanted);
  const double power = std::pow(10, std::floor(std::log10(rough)));
  double step = power;
  for (const double factor : {2.0, 5.0, 10.0}) {  // The nearest, by ratio.
    if (rough * rough > step * factor * power) step = factor * power;
  }
  const int digits = std::max(0, static_cast<int>(-std::floor(std::log10(step * 1.001))));
  const double largest = std::max(std::abs(range.low), std::abs(range.high));
  std::vector<Tick> ticks;
  const double first = std::ceil(range.low / step - 1e-9);
  for (double i = first; i * step <= range.high + 1e-9 * step; ++i) {
    const double at = i == 0 ? 0 : i * step;
    const bool plain = digits <= 6 && largest < 1e7;
    ticks.push_back({at, plain ? fmt::format("{:.{}f}", at, digits) : fmt::format("{:.3g}", at)});
    if (ticks.size() > 100) break;  // A range at the limit of double precision.
  }
  return ticks;
}

std::vector<Tick> Log2Ticks(const Range& range, int wanted) {
  const int first = static_cast<int>(std::ceil(std::log2(range.low) - 1e-9));
  const int last = static_cast<int>(std::floor(std::log2(range.high) + 1e-9));
  const int stride = std::max(1, (last - first + wanted) / std::max(1, wanted));
  std::vector<Tick> ticks;
  for (int power = first; power <= last; power += stride) {
    const double at = std::exp2(power);
    const bool plain = power >= -3 && power <= 20;
    ticks.push_back({at, plain ? ExactReal(at) : "2" + Superscript(power)});
  }
  return ticks;
}

std::vector<Tick> Log10Ticks(const Range& range, int wanted) {
  const int first = static_cast<int>(std::floor(std::log10(range.low) + 1e-9));
  const int last = static_cast<int>(std::ceil(std::log10(range.high) - 1e-9));
  const int stride = std::max(1, (last - first + wanted) / std::max(1, wanted));
  const bool plain = first >= -4 && last <= 5;
  std::vector<Tick> ticks;
  for (int power = first; power <= last; power += stride) {
    // Between few decades, 2 and 5 help to read values.
    for (const int factor : {1, 2, 5}) {
      if (factor > 1 && last - first > 2) continue;
      const double at = factor * std::pow(10, power);
      if (at < range.low * .999999 || at > range.high * 1.000001) continue;
      const std::string head = factor == 1 ? "" : std::to_string(factor) + "·";
      const std::string label = plain ? fmt::format("{:.{}f}", at, std::max(0, -power))
                                      : head + "10" + Superscript(power);
      ticks.push_back({at, label});
    }
  }
  return ticks;
}

}  // namespace

Range AxisRange(const Axis& axis, const std::vector<double>& values, bool from_zero) {
  double low = std::numeric_limits<double>::infinity();
  double high = -low;
  for (const double value : values) {
    if (!HasPlace(axis, value)) continue;
    low = std::min(low, value);
    high = std::max(high, value);
  }
  for (const auto& end : {axis.min, axis.max}) {
    if (end && !HasPlace(axis, *end)) {
      throw Error(fmt::format("[chart] the end of axis {} must be finite{} but is {}", axis.label,
                              IsLog(axis) ? " and positive" : "", *end));
    }
  }
  if (from_zero && !IsLog(axis)) {
    low = std::min(low, 0.0);
    high = std::max(high, 0.0);
  }
  if (low > high) {  // Nothing to show: any range will do.
    low = axis.min.value_or(axis.max ? *axis.max / 2 : IsLog(axis) ? .1 : 0.0);
    high = axis.max.value_or(IsLog(axis) ? low * 10 : low + 1);
  }
  double from = Coordinate(axis, low);
  double to = Coordinate(axis, high);
  // One value, or values that agree to rounding: a range wide enough for readable ticks.
  if (to - from <= 1e-9 * std::max(std::abs(from), std::abs(to))) {
    const double spread = IsLog(axis) ? .5 : from == 0 ? 1 : std::abs(from) * .1;
    from -= spread;
    to += spread;
  }
  const double air = kAir * (to - from);
  Range range = {Value(axis, from - air), Value(axis, to + air)};
  // Air does not carry a quantity that is never negative below zero.
  if (!IsLog(axis) && low >= 0) range.low = std::max(range.low, 0.0);
  if (!IsLog(axis) && high <= 0 && low < 0) range.high = std::min(range.high, 0.0);
  if (axis.min) range.low = *axis.min;
  if (axis.max) range.high = *axis.max;
  if (!(range.low < range.high)) {
    throw Error(fmt::format("[chart] axis {} must run upwards but runs from {} to {}", axis.label,
                            range.low, range.high));
  }
  return range;
}

std::vector<Tick> AxisTicks(const Axis& axis, const Range& range, int wanted) {
  if (axis.ticks.empty()) {
    if (axis.scale == Scale::kLog10) {
      std::vector<Tick> ticks = Log10Ticks(range, wanted);
      // A range within one decade may hold no such number.
      return ticks.size() >= 2 ? ticks : LinearTicks(range, wanted);
    }
    if (axis.scale == Scale::kLog2) {
      std::vector<Tick> ticks = Log2Ticks(range, wanted);
      return ticks.size() >= 2 ? ticks : LinearTicks(range, wanted);
    }
    return LinearTicks(range, wanted);
  }
  std::vector<Tick> ticks;
  for (const Tick& tick : axis.ticks) {
    const double place = Fraction(axis, range, tick.at);
    if (place >= -1e-9 && place <= 1 + 1e-9) ticks.push_back(tick);
  }
  return ticks;
}

double Fraction(const Axis& axis, const Range& range, double value) {
  if (!HasPlace(axis, value)) return std::numeric_limits<double>::quiet_NaN();
  const double low = Coordinate(axis, range.low);
  return (Coordinate(axis, value) - low) / (Coordinate(axis, range.high) - low);
}

}  // namespace ttr::report
