// Charts that other programs describe, as JSON.
#pragma once

#include <string_view>

#include "experiments/report/chart.h"

namespace ttr::report {

// The chart of a JSON object with the names of chart.h:
//
//   {"title": "Recall", "subtitle": "mean of 3 seeds", "panels": [
//     {"title": "P = 64", "x": {"label": "tokens", "scale": "log2"}, "y": {"min": 0, "max": 1},
//      "series": [{"name": "RLS", "mark": "line_points", "x": [256, 512], "y": [0.99, null]}]}]}
//
// Scales are linear, log10, log2; marks line, points, line_points; null is a gap. What is absent is
// as in an empty chart. Throws ttr::Error for anything else.
Chart ChartFromJson(std::string_view text);

}  // namespace ttr::report
