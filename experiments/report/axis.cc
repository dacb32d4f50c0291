#include "experiments/report/axis.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "ttr/error.h"

namespace ttr::report {
namespace {

constexpr double kAir = .04;  // Share of the extent left free at an end that the data decide.

bool IsLog(const Axis& axis) { return axis.scale != Scale::kLinear; }

// The axis's own coordinate, in which it is linear.
double Coordinate(const Axis& axis, double value) { return IsLog(axis) ? std::log(value) : value; }

double Value(const Axis& axis, double coordinate) {
  return IsLog(axis) ? std::exp(coordinate) : coordinate;
}

bool HasPlace(const Axis& axis, double value) {
  return std::isfinite(value) && (!IsLog(axis) || value > 0);
}

}  // namespace

Range AxisRange(const Axis& axis, const std::vector<double>& values, bool from_zero, bool tight) {
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
  const double air = tight ? 0 : kAir * (to - from);
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

double Fraction(const Axis& axis, const Range& range, double value) {
  if (!HasPlace(axis, value)) return std::numeric_limits<double>::quiet_NaN();
  const double low = Coordinate(axis, range.low);
  return (Coordinate(axis, value) - low) / (Coordinate(axis, range.high) - low);
}

}  // namespace ttr::report
