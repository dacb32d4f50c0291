// A laid-out chart as a gnuplot script.
#pragma once

#include <string>

#include "experiments/report/chart_layout.h"

namespace ttr::report {

enum class Picture { kSvg, kPng };

std::string GnuplotScript(const ChartLayout& layout, Picture picture);

}  // namespace ttr::report
