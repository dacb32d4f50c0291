#include "experiments/report/chart_script.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "experiments/report/chart_data.h"
#include "experiments/report/gnuplot.h"
#include "experiments/report/svg.h"
#include "experiments/report/table.h"

namespace ttr::report {
namespace {

constexpr int kPngScale = 2;  // Sharp on fine screens.

// Data are drawn in fractions of a panel and everything else in pixels, so the script knows neither
// units nor scales.
class Writer {
 public:
  Writer(const ChartLayout& layout, Picture picture) : layout_(layout), picture_(picture) {}

  std::string Write() {
    Terminal();
    for (const Text& text : layout_.texts) {
      Label(ScreenPoint(text.x, text.y), text.text, text.anchor, text.size, text.colour, text.bold);
    }
    for (const Swatch& swatch : layout_.swatches) LegendSample(swatch);
    for (const Leader& leader : layout_.leaders) {
      Line(ScreenPoint(leader.x0, leader.y0), ScreenPoint(leader.x1, leader.y1), kRule.light, .8, "");
    }
    for (const PanelLayout& panel : layout_.panels) {
      DrawPanel(panel);
      // Labels and lines belong to one plot command; those of the whole picture went with the first.
      script_ += "unset label\nunset arrow\nunset object\n";
    }
    script_ += "unset multiplot\n";
    return std::move(script_);
  }

 private:
  template <typename... Args>
  void Add(fmt::format_string<Args...> format, Args&&... args) {
    script_ += fmt::format(format, std::forward<Args>(args)...);
  }

  bool svg() const { return picture_ == Picture::kSvg; }
  std::string ScreenPoint(double x, double y) const {
    return fmt::format("screen {:.6f}, screen {:.6f}", x / layout_.width, 1 - y / layout_.height);
  }
  std::string Font(double size, bool bold) const {
    const std::string_view name = svg() ? (bold ? kSvgBold : kSvgFont)
                                        : (bold ? std::string_view("Sans:Bold") : "Sans");
    // A cairo point is 4/3 of a pixel.
    return GnuplotQuoted(fmt::format("{},{:.2f}", name, svg() ? size : size * .75));
  }

  void Terminal() {
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

  void Label(const std::string& at, const std::string& text, Anchor anchor, double size,
             std::string_view colour, bool bold, const char* layer = "") {
    const char* side = anchor == Anchor::kLeft ? "left" : anchor == Anchor::kRight ? "right" : "center";
    Add("set label {} at {} {} font {} textcolor rgb '{}' {}\n", GnuplotQuoted(text), at, side,
        Font(size, bold), colour, layer);
  }

  void Line(const std::string& from, const std::string& to, std::string_view colour, double width,
            std::string_view dash, const char* layer = "") {
    Add("set arrow from {} to {} nohead {} lc rgb '{}' lw {} {}\n", from, to, layer, colour, width,
        Dash(dash));
  }

  static std::string Dash(std::string_view dash) {
    return dash.empty() ? "dt solid" : fmt::format("dt {}", dash);
  }

  void LegendSample(const Swatch& swatch) {
    const SeriesStyle& style = layout_.styles[swatch.style];
    const double end = swatch.x + SwatchWidth(style);
    if (style.mark == Mark::kBars) {
      Add("set object rectangle from {} to {} fc rgb '{}' fs solid .9 noborder\n",
          ScreenPoint(swatch.x, swatch.y + 6), ScreenPoint(end, swatch.y - 6), style.colour);
      return;
    }
    if (style.mark != Mark::kPoints) {
      Line(ScreenPoint(swatch.x, swatch.y), ScreenPoint(end, swatch.y), style.colour, 1.8, style.dash);
    }
    if (style.mark != Mark::kLine) {
      Add("set label '' at {} point pt {} ps {} lc rgb '{}'\n",
          ScreenPoint((swatch.x + end) / 2, swatch.y), style.marker, kPointSize,
          style.colour);
    }
  }

  void Ticks(char axis, const std::vector<Tick>& ticks, const Axis& scale, const Range& range,
             std::string_view options) {
    Add("set {}tics (", axis);
    for (std::size_t i = 0; i < ticks.size(); ++i) {
      Add("{}{} {:.6f}", i > 0 ? ", " : "", GnuplotQuoted(ticks[i].label),
          Fraction(scale, range, ticks[i].at));
    }
    Add(") {} font {} textcolor rgb '{}'\n", options, Font(kTickSize, false), kMutedInk.light);
  }

  void DrawPanel(const PanelLayout& panel) {
    Add("set lmargin at screen {:.6f}\nset rmargin at screen {:.6f}\n", panel.left / layout_.width,
        panel.right / layout_.width);
    Add("set tmargin at screen {:.6f}\nset bmargin at screen {:.6f}\n",
        1 - panel.top / layout_.height, 1 - panel.bottom / layout_.height);
    const bool cells = panel.panel->heat_map.has_value();
    const bool named_rows = !panel.panel->categories.empty() && panel.panel->horizontal;
    Ticks('x', panel.x_ticks, panel.x_axis, panel.x,
          panel.turned == 0 ? "scale 0 offset 0,0.2"
                            : fmt::format("scale 0 rotate by {} right", panel.turned));
    Ticks('y', panel.y_ticks, panel.y_axis, panel.y, "scale 0 offset 0.6,0");
    script_ += "unset grid\n";
    if (!cells) {
      Add("set grid {} back lt 1 lc rgb '{}' lw 1 dt solid\n", named_rows ? "xtics" : "ytics",
          kGridLine.light);
      // The axis from which the data rise.
      Line("graph 0, graph 0", named_rows ? "graph 0, graph 1" : "graph 1, graph 0", kRule.light, 1,
           "");
    }
    for (const Reference& reference : panel.panel->references) DrawReference(panel, reference);
    // A plot needs one element at least; this one is never seen.
    std::string plot = "NaN notitle";
    if (cells) {
      DrawCells(panel, plot);
    } else {
      // Bands first: they must hide no line.
      for (std::size_t s = 0; s < panel.styles.size(); ++s) DrawBand(panel, s, plot);
      for (std::size_t s = 0; s < panel.styles.size(); ++s) DrawSeries(panel, s, plot);
    }
    Add("plot {}\n", plot);
  }

  void DrawReference(const PanelLayout& panel, const Reference& reference) {
    const double at = reference.vertical ? Fraction(panel.x_axis, panel.x, reference.at)
                                         : Fraction(panel.y_axis, panel.y, reference.at);
    if (!(at >= 0 && at <= 1)) return;
    const auto point = [&](double along) {
      return reference.vertical ? fmt::format("graph {:.6f}, graph {:.6f}", at, along)
                                : fmt::format("graph {:.6f}, graph {:.6f}", along, at);
    };
    Line(point(0), point(1), kRule.light, 1, "(4,3)");
    if (reference.label.empty()) return;
    const double width = panel.right - panel.left;
    const double height = panel.bottom - panel.top;
    if (reference.vertical) {
      // On the side with more room.
      const double side = at > .6 ? -1 : 1;
      Label(fmt::format("graph {:.6f}, graph {:.6f}", at + side * 6 / width, 1 - 7 / height),
            reference.label, side < 0 ? Anchor::kRight : Anchor::kLeft, kTickSize, kMutedInk.light,
            false);
    } else {
      Label(fmt::format("graph 1, graph {:.6f}", at + 9 / height), reference.label, Anchor::kRight,
            kTickSize, kMutedInk.light, false);
    }
  }

  // Opens a data block and returns its name.
  std::string Open() {
    const std::string name = fmt::format("$d{}", blocks_++);
    Add("{} << EOD\n", name);
    return name;
  }

  void DrawBand(const PanelLayout& panel, std::size_t s, std::string& plot) {
    const Series& series = panel.panel->series[s];
    if (series.low.empty() || series.mark != Mark::kLine) return;
    const std::string block = Open();
    for (const Point& p : DrawnPoints(panel, s)) {
      // A gap ends one piece of the band: an empty line.
      if (std::isnan(p.x) || std::isnan(p.low) || std::isnan(p.high)) {
        script_ += "\n";
      } else {
        Add("{:.5f} {:.5f} {:.5f}\n", p.x, p.low, p.high);
      }
    }
    script_ += "EOD\n";
    plot += fmt::format(", {} using 1:2:3 with filledcurves fs transparent solid .16 noborder "
                        "lc rgb '{}' notitle",
                        block, layout_.styles[panel.styles[s]].colour);
  }

  void DrawSeries(const PanelLayout& panel, std::size_t s, std::string& plot) {
    const Series& series = panel.panel->series[s];
    const SeriesStyle& style = layout_.styles[panel.styles[s]];
    if (series.mark == Mark::kBars) return DrawBars(panel, s, plot);
    const std::string block = Open();
    for (const Point& p : DrawnPoints(panel, s)) {
      if (std::isnan(p.x) || std::isnan(p.y)) {
        script_ += "\n";
      } else {
        Add("{:.5f} {:.5f} {:.5f} {:.5f}\n", p.x, p.y, p.low, p.high);
      }
    }
    script_ += "EOD\n";
    const std::string colour = fmt::format("lc rgb '{}'", style.colour);
    if (series.mark != Mark::kPoints) {
      plot += fmt::format(", {} using 1:2 with lines {} lw 1.8 {} notitle", block, colour,
                          Dash(style.dash));
    }
    if (series.mark == Mark::kLine) return;
    if (!series.low.empty()) {
      std::vector<Point> points = DrawnPoints(panel, s);
      DrawWhiskers(points, false, style.colour, plot);
    }
    plot += fmt::format(", {} using 1:2 with points {} pt {} ps {} notitle", block, colour,
                        style.marker, kPointSize);
  }

  // Upright or level lines from low to high. gnuplot's own error bars come with a white halo, which
  // a dark page shows.
  void DrawWhiskers(const std::vector<Point>& points, bool level, std::string_view colour,
                    std::string& plot) {
    const std::string block = Open();
    for (const Point& p : points) {
      if (std::isnan(p.x) || std::isnan(p.y) || std::isnan(p.low) || std::isnan(p.high)) continue;
      if (level) {
        Add("{:.5f} {:.5f}\n{:.5f} {:.5f}\n\n", p.low, p.y, p.high, p.y);
      } else {
        Add("{:.5f} {:.5f}\n{:.5f} {:.5f}\n\n", p.x, p.low, p.x, p.high);
      }
    }
    script_ += "EOD\n";
    plot += fmt::format(", {} using 1:2 with lines dt solid lc rgb '{}' lw 1.3 notitle", block,
                        colour);
  }

  // One box a category; series of a panel stand beside each other.
  void DrawBars(const PanelLayout& panel, std::size_t s, std::string& plot) {
    const Panel& data = *panel.panel;
    const Series& series = data.series[s];
    const Axis& axis = data.horizontal ? panel.x_axis : panel.y_axis;
    const Range& values = data.horizontal ? panel.x : panel.y;
    const auto place = [&](double value) { return Fraction(axis, values, value); };
    const double count = static_cast<double>(data.categories.size());
    const double slot = .74 / static_cast<double>(data.series.size());
    const double zero = axis.scale == Scale::kLinear ? place(0) : 0.0;
    std::vector<Point> whiskers;
    std::vector<std::string> shown;
    const std::string block = Open();
    for (std::size_t i = 0; i < series.y.size(); ++i) {
      const double end = place(series.y[i]);
      if (std::isnan(end)) continue;
      const double begin = static_cast<double>(i) + .13 + slot * static_cast<double>(s);
      double a = begin / count;
      double b = (begin + slot * .94) / count;
      if (data.horizontal) {  // From top to bottom.
        a = 1 - a;
        b = 1 - b;
      }
      Point whisker = {(a + b) / 2, end, end, end};
      if (!series.low.empty()) {
        whisker.low = place(series.low[i]);
        whisker.high = place(series.high[i]);
      }
      if (data.horizontal) {
        std::swap(whisker.x, whisker.y);
        Add("{:.5f} {:.5f} {:.5f} {:.5f} {:.5f} {:.5f}\n", end, whisker.y, zero, end, b, a);
      } else {
        Add("{:.5f} {:.5f} {:.5f} {:.5f} {:.5f} {:.5f}\n", whisker.x, end, a, b, zero, end);
      }
      whiskers.push_back(whisker);
      shown.push_back(ShowReal(series.y[i], data.digits));
    }
    script_ += "EOD\n";
    plot += fmt::format(", {} using 1:2:3:4:5:6 with boxxyerror fs solid .9 noborder lc rgb '{}' "
                        "notitle",
                        block, layout_.styles[panel.styles[s]].colour);
    if (!series.low.empty()) DrawWhiskers(whiskers, data.horizontal, kMutedInk.light, plot);
    for (std::size_t i = 0; data.horizontal && i < whiskers.size(); ++i) {
      const double past = std::fmax(std::max(whiskers[i].x, zero), whiskers[i].high);
      if (past <= 1.001) BarValue(panel, past, whiskers[i].y, shown[i]);
    }
  }

  void BarValue(const PanelLayout& panel, double x, double y, const std::string& text) {
    Label(fmt::format("graph {:.6f}, graph {:.6f}", x + 5 / (panel.right - panel.left), y), text,
          Anchor::kLeft, kTickSize, kMutedInk.light, false);
  }

  // The values' own extent, without air: the scale's ends are values that occur.
  static Range CellRange(const HeatMap& map) {
    Axis axis = {.min = map.min, .max = map.max};
    double low = std::numeric_limits<double>::infinity();
    double high = -low;
    for (const double value : map.values) {
      if (!std::isfinite(value)) continue;
      low = std::min(low, value);
      high = std::max(high, value);
    }
    if (low < axis.max.value_or(high) && !axis.min) axis.min = low;
    if (high > axis.min.value_or(low) && !axis.max) axis.max = high;
    return AxisRange(axis, map.values, false);
  }

  void DrawCells(const PanelLayout& panel, std::string& plot) {
    const HeatMap& map = *panel.panel->heat_map;
    const Range range = CellRange(map);
    const double columns = static_cast<double>(map.columns.size());
    const double rows = static_cast<double>(map.rows.size());
    const double width = (panel.right - panel.left) / columns;
    const double height = (panel.bottom - panel.top) / rows;
    // A small gap between cells; none between dense ones, which overlap a little to leave no seam.
    const double gap = std::min(width, height) > 10 ? 1 : -.2;
    const std::string block = Open();
    std::vector<std::pair<std::size_t, unsigned>> numbered;
    for (std::size_t i = 0; i < map.values.size(); ++i) {
      if (!std::isfinite(map.values[i])) continue;
      const auto column = static_cast<double>(i % map.columns.size());
      const auto row = static_cast<double>(map.rows.size() - 1 - i / map.columns.size());
      const unsigned colour = HeatColour((map.values[i] - range.low) / (range.high - range.low));
      Add("{:.5f} {:.5f} {:.5f} {:.5f} {:.5f} {:.5f} {}\n", (column + .5) / columns,
          (row + .5) / rows, (column + gap / width) / columns, (column + 1 - gap / width) / columns,
          (row + gap / height) / rows, (row + 1 - gap / height) / rows, colour);
      numbered.emplace_back(i, colour);
    }
    script_ += "EOD\n";
    plot += fmt::format(
        ", {} using 1:2:3:4:5:6:7 with boxxyerror fs solid noborder lc rgb variable notitle", block);
    double widest = 0;
    for (const auto& [i, colour] : numbered) {
      widest = std::max(widest, TextWidth(ShowReal(map.values[i], map.digits), 11));
    }
    if (height < 14 || widest > width - 4) return HeatKey(panel, range);
    for (const auto& [i, colour] : numbered) {
      const std::string text = ShowReal(map.values[i], map.digits);
      const auto column = static_cast<double>(i % map.columns.size());
      const auto row = static_cast<double>(map.rows.size() - 1 - i / map.columns.size());
      // Not the ink of the page: the cell's colour is the same by day and night.
      Label(fmt::format("graph {:.6f}, graph {:.6f}", (column + .5) / columns, (row + .5) / rows),
            text, Anchor::kCentre, 11, IsDark(colour) ? "#fdfdfd" : "#101112", false, "front");
    }
  }

  // What the colours mean, where cells are too small for numbers: above the panel, at the right.
  void HeatKey(const PanelLayout& panel, const Range& range) {
    constexpr int kSteps = 30;
    constexpr double kStep = 3;
    const int digits = panel.panel->heat_map->digits;
    const std::string high = ShowReal(range.high, digits);
    const double y = panel.top - 16;
    const double end = panel.right - TextWidth(high, kTickSize) - 6;
    const double begin = end - kSteps * kStep;
    for (int i = 0; i < kSteps; ++i) {
      Add("set object rectangle from {} to {} fc rgb {} fs solid noborder\n",
          ScreenPoint(begin + i * kStep, y + 5), ScreenPoint(begin + (i + 1) * kStep + .2, y - 5),
          HeatColour((i + .5) / kSteps));
    }
    Label(ScreenPoint(begin - 6, y), ShowReal(range.low, digits), Anchor::kRight, kTickSize,
          kMutedInk.light, false);
    Label(ScreenPoint(end + 6, y), high, Anchor::kLeft, kTickSize, kMutedInk.light, false);
  }

  static constexpr double kPointSize = .65;

  const ChartLayout& layout_;
  const Picture picture_;
  std::string script_;
  int blocks_ = 0;
};

}  // namespace

std::string GnuplotScript(const ChartLayout& layout, Picture picture) {
  return Writer(layout, picture).Write();
}

}  // namespace ttr::report
