// Ranges of a chart's axes.
#pragma once

#include <vector>

#include "experiments/report/chart.h"

namespace ttr::report {

struct Range {
  double low = 0;
  double high = 1;
};

// What an axis shows: the data's extent with a little air, unless the axis fixes its ends. Throws
// ttr::Error when these contradict one another. `from_zero`: bars, which start there;
// `tight`: without air.
Range AxisRange(const Axis& axis, const std::vector<double>& values, bool from_zero,
                bool tight = false);

// Where `value` lies between the range's ends, 0 to 1; NaN when it has no place on the axis: not
// finite, or not positive on a logarithmic one.
double Fraction(const Axis& axis, const Range& range, double value);

}  // namespace ttr::report
