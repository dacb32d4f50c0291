// What a chart's gnuplot script is written with: text, lines, data blocks. Panels are drawn in
// fractions of themselves and everything else in pixels, so a script knows neither units nor
// scales.
#pragma once

#include <fmt/core.h>

#include <string>
#include <string_view>
#include <utility>

#include "experiments/report/chart_layout.h"
#include "experiments/report/chart_script.h"

namespace ttr::report {

inline constexpr double kPointSize = .65;

class Canvas {
 public:
  Canvas(const ChartLayout& layout, Picture picture) : layout_(layout), picture_(picture) {}

  template <typename... Args>
  void Add(fmt::format_string<Args...> format, Args&&... args) {
    script_ += fmt::format(format, std::forward<Args>(args)...);
  }

  const ChartLayout& layout() const { return layout_; }
  // A point of the whole picture, in pixels from its top left corner.
  std::string ScreenPoint(double x, double y) const;
  // A point of the current panel, in fractions from its lower left corner.
  static std::string PanelPoint(double x, double y);
  std::string Font(double size, bool bold) const;
  static std::string Dash(std::string_view dash);

  void Terminal();
  void Label(const std::string& at, const std::string& text, Anchor anchor, double size,
             std::string_view colour, bool bold, const char* layer = "");
  void Line(const std::string& from, const std::string& to, std::string_view colour, double width,
            std::string_view dash);

  // Opens a data block and returns its name; only numbers follow until CloseBlock().
  std::string OpenBlock();
  void CloseBlock() { script_ += "EOD\n"; }

  std::string TakeScript() { return std::move(script_); }

 private:
  bool svg() const { return picture_ == Picture::kSvg; }

  const ChartLayout& layout_;
  const Picture picture_;
  std::string script_;
  int blocks_ = 0;
};

// What a panel shows; each adds its data to the script and its elements to the plot command.
void DrawSeries(Canvas& canvas, const PanelLayout& panel, std::string& plot);
void DrawCells(Canvas& canvas, const PanelLayout& panel, std::string& plot);

}  // namespace ttr::report
