// A chart as a gnuplot script. gnuplot scales axes, finds ticks and side margins, and draws; the
// script says where panels, titles and names go.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "experiments/report/chart.h"

namespace ttr::report {

inline constexpr double kTextSize = 12;

enum class Picture { kSvg, kPng };

// The script of a chart whose series have the lengths that chart.h asks for.
std::string GnuplotScript(const Chart& chart, Format format, Picture picture);

// How a series looks wherever it appears.
struct Style {
  std::string name = {};
  std::string colour = {};  // "lc rgb '#0072b2'"
  std::string look = {};    // colour, dashes and marker
  Mark mark = Mark::kLine;
  bool named = true;  // above the panels
};

// gnuplot's word for a mark.
const char* PlotStyle(Mark mark);

// gnuplot's words for a text, such as those of a label or of ticks.
std::string TextStyle(double size, std::string_view colour, std::string_view weight = "");

// Scales, ticks, references, data and the plot command of one panel. Names under upright bars are
// turned where they have no room side by side.
std::string PanelScript(const Panel& panel, const std::vector<Style>& styles, bool turned);

// Points of a line, by index of its series. A line with many more points than a picture has columns
// keeps the least and the greatest of each column, which draw the same picture.
std::vector<std::size_t> DrawnPoints(const Series& series);

}  // namespace ttr::report
