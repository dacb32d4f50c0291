#include "experiments/report/chart_data.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace ttr::report {
namespace {

constexpr std::size_t kBuckets = 1200;  // About two a pixel column of the widest panel.
constexpr double kFar = 20;             // Panels away; beyond, only the direction matters.

double Near(double fraction) { return std::clamp(fraction, -kFar, kFar); }

// Replaces each run of points by its least and greatest, in their order.
std::vector<Point> Thin(const std::vector<Point>& points) {
  std::vector<Point> out;
  for (std::size_t b = 0; b < kBuckets; ++b) {
    const std::size_t begin = points.size() * b / kBuckets;
    const std::size_t end = points.size() * (b + 1) / kBuckets;
    std::size_t least = end;
    std::size_t greatest = end;
    Point extent = points[begin];
    for (std::size_t i = begin; i < end; ++i) {
      if (std::isnan(points[i].y)) continue;
      if (least == end || points[i].y < points[least].y) least = i;
      if (greatest == end || points[i].y > points[greatest].y) greatest = i;
      // fmin and fmax pass over a missing bound.
      extent.low = std::fmin(extent.low, points[i].low);
      extent.high = std::fmax(extent.high, points[i].high);
    }
    if (least == end) {
      out.push_back(points[begin]);
      continue;
    }
    for (const std::size_t i : {std::min(least, greatest), std::max(least, greatest)}) {
      out.push_back({points[i].x, points[i].y, extent.low, extent.high});
    }
  }
  return out;
}

}  // namespace

std::vector<Point> DrawnPoints(const PanelLayout& panel, std::size_t s) {
  const Series& series = panel.panel->series[s];
  const bool bounds = !series.low.empty();
  const double none = std::numeric_limits<double>::quiet_NaN();
  std::vector<Point> points;
  points.reserve(series.y.size());
  for (std::size_t i = 0; i < series.y.size(); ++i) {
    const double x = series.x.empty() ? static_cast<double>(i) : series.x[i];
    const auto y = [&](double value) { return Near(Fraction(panel.y_axis, panel.y, value)); };
    Point point = {Near(Fraction(panel.x_axis, panel.x, x)), y(series.y[i]), none, none};
    if (bounds) {
      point.low = y(series.low[i]);
      point.high = y(series.high[i]);
      // A band that reaches zero has no lower edge on a logarithmic axis: it runs out of the panel.
      const bool log = panel.y_axis.scale != Scale::kLinear;
      if (log && series.low[i] <= 0 && !std::isnan(point.high)) point.low = -kFar;
    }
    points.push_back(point);
  }
  const bool thin = series.mark == Mark::kLine && points.size() > 4 * kBuckets;
  return thin ? Thin(points) : points;
}

}  // namespace ttr::report
