// Charts described as data and drawn by gnuplot, as SVG and PNG.
//
//   Chart chart{.title = "One-step loss", .subtitle = "mean of 20 seeds, band: two standard
//   errors"}; Panel& panel = chart.panels.emplace_back(); panel.x = {.label = "token"}; panel.y =
//   {.label = "loss", .scale = Scale::kLog10}; panel.series.push_back({.name = "weighted_rls", .x =
//   t, .y = loss, .low = lo, .high = hi}); panel.references.push_back({.at = 64, .vertical = true,
//   .label = "the law changes"}); SaveChart(chart, "out/figure2");  // out/figure2.svg and
//   out/figure2.png
//
// Colours are Okabe and Ito's, told apart by the colour-blind, and each series has a dash pattern
// and a marker of its own besides. The SVG has no background and carries a style for dark pages.
// A chart gives the same bytes every time.
//
// Errors: ttr::Error when the description has no meaning; ttr::SystemError when gnuplot is missing
// or fails, or a file cannot be written.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace ttr::report {

enum class Scale { kLinear, kLog10, kLog2 };

struct Tick {
  double at = 0;
  std::string label = {};
};

struct Axis {
  std::string label = {};
  Scale scale = Scale::kLinear;
  std::optional<double> min = std::nullopt;  // Absent: from the data.
  std::optional<double> max = std::nullopt;
  std::vector<Tick> ticks = {};  // Empty: at round numbers.
};

enum class Mark { kLine, kPoints, kLinePoints, kBars };

// Points that are not finite, or not positive on a logarithmic axis, are gaps.
struct Series {
  std::string name = {};
  std::vector<double> x = {};  // Empty: 0, 1, 2, ... (the category of a bar)
  std::vector<double> y = {};
  std::vector<double> low = {};  // Both or none: a band around a line, bars around points and bars.
  std::vector<double> high = {};
  Mark mark = Mark::kLine;
  bool muted = false;  // Grey, for a baseline that others are compared with.
};

// A thin line across the panel.
struct Reference {
  double at = 0;
  bool vertical = false;
  std::string label = {};
};

struct Panel {
  std::string title = {};
  Axis x = {};
  Axis y = {};
  std::vector<Series> series = {};
  std::vector<Reference> references = {};
  // Names along the axis of a bar chart. Horizontal bars run from top to bottom, with the value
  // (`y` of the series, on the x axis) written at their end.
  std::vector<std::string> categories = {};
  bool horizontal = false;
  int digits = 3;
};

// Series of one name have one colour in all panels. Where there are two or more, their names stand
// above the panels, or in each panel where panels show different ones.
struct Chart {
  std::string title = {};
  std::string subtitle = {};
  std::vector<Panel> panels = {};  // Side by side.
  int height = 280;                // Pixels of a panel's data area.
};

enum class Format { kWide, kNarrow };  // Narrow: for a phone, panels below one another.

std::string RenderSvg(const Chart& chart, Format format = Format::kWide);
std::string RenderPng(const Chart& chart);

// Writes STEM.svg and STEM.png, both or neither.
void SaveChart(const Chart& chart, const std::filesystem::path& stem);

}  // namespace ttr::report
