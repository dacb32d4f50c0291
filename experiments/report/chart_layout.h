// Where everything of a chart goes, in pixels from the top left corner. gnuplot only draws it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "experiments/report/axis.h"
#include "experiments/report/chart.h"
#include "experiments/report/palette.h"

namespace ttr::report {

inline constexpr double kTitleSize = 16;
inline constexpr double kTextSize = 12.5;
inline constexpr double kTickSize = 12;
inline constexpr double kLine = 18;  // Height of a line of text.
inline constexpr double kEdge = 8;   // Free at the left and right of a picture.

enum class Anchor { kLeft, kCentre, kRight };

struct Text {
  double x = 0;
  double y = 0;  // Of its middle.
  std::string text;
  Anchor anchor = Anchor::kLeft;
  double size = kTextSize;
  std::string_view colour = kInk.light;
  bool bold = false;
};

// How a series looks wherever it appears.
struct SeriesStyle {
  std::string name;
  std::string_view colour;
  std::string_view dash;
  int marker = 7;
  Mark mark = Mark::kLine;
};

struct Swatch {
  double x = 0;
  double y = 0;
  std::size_t style = 0;
};

// A thin line from the end of a series to its name, where the name had to make room.
struct Leader {
  double x0, y0, x1, y1;
};

struct PanelLayout {
  const Panel* panel = nullptr;
  double left = 0, right = 0, top = 0, bottom = 0;  // Of the data area.
  Axis x_axis, y_axis;                              // As drawn: those of bars are made here.
  Range x, y;
  std::vector<Tick> x_ticks, y_ticks;
  int turned = 0;                   // Degrees, for names too long to stand side by side.
  std::vector<std::size_t> styles;  // One a series.
};

struct ChartLayout {
  double width = 0, height = 0;
  std::vector<SeriesStyle> styles;
  std::vector<PanelLayout> panels;
  std::vector<Text> texts;
  std::vector<Swatch> swatches;
  std::vector<Leader> leaders;
};

// Width of a series' sample in the legend.
double SwatchWidth(const SeriesStyle& style);

// Throws ttr::Error when the chart has no meaning.
ChartLayout LayOut(const Chart& chart, Format format);

// An estimate of a text's width; fonts differ by some percent.
double TextWidth(std::string_view text, double size);

}  // namespace ttr::report
