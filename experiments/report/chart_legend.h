// Where the names of series go: at the ends of their lines, or in rows above the panels.
#pragma once

#include "experiments/report/chart_layout.h"

namespace ttr::report {

// Whether names stand at the ends of the lines.
bool UseDirectLegend(const Chart& chart, Format format, const ChartLayout& layout);

// Room for them at the right of a panel.
double DirectLegendWidth(const ChartLayout& layout);

// Places names at the right of a panel, each as near to its series' end as the others allow.
void PlaceNames(const PanelLayout& panel, ChartLayout& layout);

// Rows of samples and names from `top` on; returns the height they take.
double PlaceLegend(double top, ChartLayout& layout);

}  // namespace ttr::report
