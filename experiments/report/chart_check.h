// What a chart must fulfil before it is drawn.
#pragma once

#include "experiments/report/chart.h"

namespace ttr::report {

// Throws ttr::Error that names the panel and the series: lengths that differ, no panel, a heat map
// whose cells do not fill it.
void CheckChart(const Chart& chart);

}  // namespace ttr::report
