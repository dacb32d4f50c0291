#include "experiments/report/chart_canvas.h"

#include "experiments/report/gnuplot.h"
#include "experiments/report/svg.h"

namespace ttr::report {
namespace {

constexpr int kPngScale = 2;  // Sharp on fine screens.

}  // namespace

std::string Canvas::ScreenPoint(double x, double y) const {
  return fmt::format("screen {:.6f}, screen {:.6f}", x / layout_.width, 1 - y / layout_.height);
}

std::string Canvas::PanelPoint(double x, double y) {
  return fmt::format("graph {:.6f}, graph {:.6f}", x, y);
}

std::string Canvas::Font(double size, bool bold) const {
  const std::string_view name =
      svg() ? (bold ? kSvgBold : kSvgFont) : (bold ? std::string_view("Sans:Bold") : "Sans");
  // A cairo point is 4/3 of a pixel.
  return GnuplotQuoted(fmt::format("{},{:.2f}", name, svg() ? size : size * .75));
}

void Canvas::Terminal() {
  script_ += "set encoding utf8\n";
  if (svg()) {
    Add("set terminal svg size {},{} fixed noenhanced font {}\n", layout_.width, layout_.height,
        Font(kTickSize, false));
  } else {
    Add("set terminal pngcairo size {},{} noenhanced background '#ffffff' font {} fontscale {} "
        "linewidth {} pointscale {}\n",
        layout_.width * kPngScale, layout_.height * kPngScale, Font(kTickSize, false), kPngScale,
        kPngScale, kPngScale);
  }
  script_ +=
      "set output\nset datafile missing 'NaN'\nunset key\nunset colorbox\n"
      "set border 0\nset clip two\nset style fill solid noborder\n"
      "set xrange [0:1]\nset yrange [0:1]\nset multiplot\n";
}

void Canvas::Label(const std::string& at, const std::string& text, Anchor anchor, double size,
                   std::string_view colour, bool bold, const char* layer) {
  const char* side = anchor == Anchor::kLeft    ? "left"
                     : anchor == Anchor::kRight ? "right"
                                                : "center";
  Add("set label {} at {} {} font {} textcolor rgb '{}' {}\n", GnuplotQuoted(text), at, side,
      Font(size, bold), colour, layer);
}

void Canvas::Line(const std::string& from, const std::string& to, std::string_view colour,
                  double width, std::string_view dash) {
  Add("set arrow from {} to {} nohead lc rgb '{}' lw {} {}\n", from, to, colour, width, Dash(dash));
}

std::string Canvas::Dash(std::string_view dash) {
  return dash.empty() ? "dt solid" : fmt::format("dt {}", dash);
}

std::string Canvas::OpenBlock() {
  const std::string name = fmt::format("$d{}", blocks_++);
  Add("{} << EOD\n", name);
  return name;
}

}  // namespace ttr::report
