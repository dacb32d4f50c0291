#include "experiments/report/chart_script.h"

#include <fmt/core.h>

#include <string>
#include <string_view>
#include <vector>

#include "experiments/report/chart_canvas.h"
#include "experiments/report/gnuplot.h"

namespace ttr::report {
namespace {

void LegendSample(Canvas& canvas, const Swatch& swatch) {
  const SeriesStyle& style = canvas.layout().styles[swatch.style];
  const double end = swatch.x + SwatchWidth(style);
  if (style.mark == Mark::kBars) {
    canvas.Add("set object rectangle from {} to {} fc rgb '{}' fs solid .9 noborder\n",
               canvas.ScreenPoint(swatch.x, swatch.y + 6), canvas.ScreenPoint(end, swatch.y - 6),
               style.colour);
    return;
  }
  if (style.mark != Mark::kPoints) {
    canvas.Line(canvas.ScreenPoint(swatch.x, swatch.y), canvas.ScreenPoint(end, swatch.y),
                style.colour, 1.8, style.dash);
  }
  if (style.mark != Mark::kLine) {
    canvas.Add("set label '' at {} point pt {} ps {} lc rgb '{}'\n",
               canvas.ScreenPoint((swatch.x + end) / 2, swatch.y), style.marker, kPointSize,
               style.colour);
  }
}

void Ticks(Canvas& canvas, char axis, const std::vector<Tick>& ticks, const Axis& scale,
           const Range& range, std::string_view options) {
  canvas.Add("set {}tics (", axis);
  for (std::size_t i = 0; i < ticks.size(); ++i) {
    canvas.Add("{}{} {:.6f}", i > 0 ? ", " : "", GnuplotQuoted(ticks[i].label),
               Fraction(scale, range, ticks[i].at));
  }
  canvas.Add(") {} font {} textcolor rgb '{}'\n", options, canvas.Font(kTickSize, false),
             kMutedInk.light);
}

void DrawReference(Canvas& canvas, const PanelLayout& panel, const Reference& reference) {
  const double at = reference.vertical ? Fraction(panel.x_axis, panel.x, reference.at)
                                       : Fraction(panel.y_axis, panel.y, reference.at);
  if (!(at >= 0 && at <= 1)) return;
  const auto point = [&](double along) {
    return reference.vertical ? canvas.PanelPoint(at, along) : canvas.PanelPoint(along, at);
  };
  canvas.Line(point(0), point(1), kRule.light, 1, "(4,3)");
  if (reference.label.empty()) return;
  const double width = panel.right - panel.left;
  const double height = panel.bottom - panel.top;
  if (reference.vertical) {
    // On the side with more room.
    const double side = at > .6 ? -1 : 1;
    canvas.Label(canvas.PanelPoint(at + side * 6 / width, 1 - 7 / height), reference.label,
                 side < 0 ? Anchor::kRight : Anchor::kLeft, kTickSize, kMutedInk.light, false);
  } else {
    canvas.Label(fmt::format("graph 1, graph {:.6f}", at + 9 / height), reference.label,
                 Anchor::kRight, kTickSize, kMutedInk.light, false);
  }
}

void DrawPanel(Canvas& canvas, const PanelLayout& panel) {
  canvas.Add("set lmargin at screen {:.6f}\nset rmargin at screen {:.6f}\n",
             panel.left / canvas.layout().width, panel.right / canvas.layout().width);
  canvas.Add("set tmargin at screen {:.6f}\nset bmargin at screen {:.6f}\n",
             1 - panel.top / canvas.layout().height, 1 - panel.bottom / canvas.layout().height);
  const bool cells = panel.panel->heat_map.has_value();
  const bool named_rows = !panel.panel->categories.empty() && panel.panel->horizontal;
  Ticks(canvas, 'x', panel.x_ticks, panel.x_axis, panel.x,
        panel.turned == 0 ? "scale 0 offset 0,0.2"
                          : fmt::format("scale 0 rotate by {} right", panel.turned));
  Ticks(canvas, 'y', panel.y_ticks, panel.y_axis, panel.y, "scale 0 offset 0.6,0");
  canvas.Add("unset grid\n");
  if (!cells) {
    canvas.Add("set grid {} back lt 1 lc rgb '{}' lw 1 dt solid\n", named_rows ? "xtics" : "ytics",
               kGridLine.light);
    // The axis from which the data rise.
    canvas.Line("graph 0, graph 0", named_rows ? "graph 0, graph 1" : "graph 1, graph 0",
                kRule.light, 1, "");
  }
  for (const Reference& reference : panel.panel->references)
    DrawReference(canvas, panel, reference);
  // A plot needs one element at least; this one is never seen.
  std::string plot = "NaN notitle";
  if (cells) {
    DrawCells(canvas, panel, plot);
  } else {
    DrawSeries(canvas, panel, plot);
  }
  canvas.Add("plot {}\n", plot);
}

}  // namespace

std::string GnuplotScript(const ChartLayout& layout, Picture picture) {
  Canvas canvas(layout, picture);
  canvas.Terminal();
  for (const Text& text : layout.texts) {
    canvas.Label(canvas.ScreenPoint(text.x, text.y), text.text, text.anchor, text.size, text.colour,
                 text.bold);
  }
  for (const Swatch& swatch : layout.swatches) LegendSample(canvas, swatch);
  for (const Leader& leader : layout.leaders) {
    canvas.Line(canvas.ScreenPoint(leader.x0, leader.y0), canvas.ScreenPoint(leader.x1, leader.y1),
                kRule.light, .8, "");
  }
  for (const PanelLayout& panel : layout.panels) {
    DrawPanel(canvas, panel);
    // Labels and lines belong to one plot command; those of the whole picture went with the first.
    canvas.Add("unset label\nunset arrow\nunset object\n");
  }
  canvas.Add("unset multiplot\n");
  return canvas.TakeScript();
}

}  // namespace ttr::report
