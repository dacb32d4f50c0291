#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "experiments/report/chart_canvas.h"
#include "experiments/report/chart_data.h"
#include "experiments/report/table.h"

namespace ttr::report {
namespace {

void DrawBand(Canvas& canvas, const PanelLayout& panel, std::size_t s, std::string& plot) {
  const Series& series = panel.panel->series[s];
  if (series.low.empty() || series.mark != Mark::kLine) return;
  const std::string block = canvas.OpenBlock();
  for (const Point& p : DrawnPoints(panel, s)) {
    // A gap ends one piece of the band: an empty line.
    if (std::isnan(p.x) || std::isnan(p.low) || std::isnan(p.high)) {
      canvas.Add("\n");
    } else {
      canvas.Add("{:.5f} {:.5f} {:.5f}\n", p.x, p.low, p.high);
    }
  }
  canvas.CloseBlock();
  plot += fmt::format(
      ", {} using 1:2:3 with filledcurves fs transparent solid .16 noborder "
      "lc rgb '{}' notitle",
      block, canvas.layout().styles[panel.styles[s]].colour);
}

// Upright or level lines from low to high. gnuplot's own error bars come with a white halo, which
// a dark page shows.
void DrawWhiskers(Canvas& canvas, const std::vector<Point>& points, bool level,
                  std::string_view colour, std::string& plot) {
  const std::string block = canvas.OpenBlock();
  for (const Point& p : points) {
    if (std::isnan(p.x) || std::isnan(p.y) || std::isnan(p.low) || std::isnan(p.high)) continue;
    if (level) {
      canvas.Add("{:.5f} {:.5f}\n{:.5f} {:.5f}\n\n", p.low, p.y, p.high, p.y);
    } else {
      canvas.Add("{:.5f} {:.5f}\n{:.5f} {:.5f}\n\n", p.x, p.low, p.x, p.high);
    }
  }
  canvas.CloseBlock();
  plot +=
      fmt::format(", {} using 1:2 with lines dt solid lc rgb '{}' lw 1.3 notitle", block, colour);
}

void BarValue(Canvas& canvas, const PanelLayout& panel, double x, double y,
              const std::string& text) {
  canvas.Label(canvas.PanelPoint(x + 5 / (panel.right - panel.left), y), text, Anchor::kLeft,
               kTickSize, kMutedInk.light, false);
}

// One box a category; series of a panel stand beside each other.
void DrawBars(Canvas& canvas, const PanelLayout& panel, std::size_t s, std::string& plot) {
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
  const std::string block = canvas.OpenBlock();
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
      canvas.Add("{:.5f} {:.5f} {:.5f} {:.5f} {:.5f} {:.5f}\n", end, whisker.y, zero, end, b, a);
    } else {
      canvas.Add("{:.5f} {:.5f} {:.5f} {:.5f} {:.5f} {:.5f}\n", whisker.x, end, a, b, zero, end);
    }
    whiskers.push_back(whisker);
    shown.push_back(ShowReal(series.y[i], data.digits));
  }
  canvas.CloseBlock();
  plot += fmt::format(
      ", {} using 1:2:3:4:5:6 with boxxyerror fs solid .9 noborder lc rgb '{}' "
      "notitle",
      block, canvas.layout().styles[panel.styles[s]].colour);
  if (!series.low.empty()) DrawWhiskers(canvas, whiskers, data.horizontal, kMutedInk.light, plot);
  for (std::size_t i = 0; data.horizontal && i < whiskers.size(); ++i) {
    const double past = std::fmax(std::max(whiskers[i].x, zero), whiskers[i].high);
    if (past <= 1.001) BarValue(canvas, panel, past, whiskers[i].y, shown[i]);
  }
}

void DrawMarks(Canvas& canvas, const PanelLayout& panel, std::size_t s, std::string& plot) {
  const Series& series = panel.panel->series[s];
  const SeriesStyle& style = canvas.layout().styles[panel.styles[s]];
  if (series.mark == Mark::kBars) return DrawBars(canvas, panel, s, plot);
  const std::string block = canvas.OpenBlock();
  for (const Point& p : DrawnPoints(panel, s)) {
    if (std::isnan(p.x) || std::isnan(p.y)) {
      canvas.Add("\n");
    } else {
      canvas.Add("{:.5f} {:.5f} {:.5f} {:.5f}\n", p.x, p.y, p.low, p.high);
    }
  }
  canvas.CloseBlock();
  const std::string colour = fmt::format("lc rgb '{}'", style.colour);
  if (series.mark != Mark::kPoints) {
    plot += fmt::format(", {} using 1:2 with lines {} lw 1.8 {} notitle", block, colour,
                        canvas.Dash(style.dash));
  }
  if (series.mark == Mark::kLine) return;
  if (!series.low.empty()) {
    std::vector<Point> points = DrawnPoints(panel, s);
    DrawWhiskers(canvas, points, false, style.colour, plot);
  }
  plot += fmt::format(", {} using 1:2 with points {} pt {} ps {} notitle", block, colour,
                      style.marker, kPointSize);
}

}  // namespace

void DrawSeries(Canvas& canvas, const PanelLayout& panel, std::string& plot) {
  // Bands first: they must hide no line.
  for (std::size_t s = 0; s < panel.styles.size(); ++s) DrawBand(canvas, panel, s, plot);
  for (std::size_t s = 0; s < panel.styles.size(); ++s) DrawMarks(canvas, panel, s, plot);
}

}  // namespace ttr::report
