// A series as the points that are drawn.
#pragma once

#include <vector>

#include "experiments/report/chart_layout.h"

namespace ttr::report {

// In fractions of the panel, (0, 0) at its lower left; NaN is a gap.
struct Point {
  double x, y, low, high;
};

// The points of series `s` of a panel, far-off ones brought near. A line with many more points than
// the picture has columns is thinned to the least and the greatest of each column, which draw the
// same picture.
std::vector<Point> DrawnPoints(const PanelLayout& panel, std::size_t s);

}  // namespace ttr::report
