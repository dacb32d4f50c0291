#include "experiments/report/chart_layout.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "experiments/report/chart_check.h"
#include "experiments/report/chart_legend.h"
#include "experiments/report/utf8.h"

namespace ttr::report {
namespace {

constexpr double kWideWidth = 760;
constexpr double kNarrowWidth = 380;
constexpr double kPanelGap = 28;

std::vector<std::string> WrapText(const std::string& text, double width, double size) {
  std::vector<std::string> lines;
  std::string line;
  std::size_t begin = 0;
  while (begin < text.size()) {
    const std::size_t end = std::min(text.find(' ', begin), text.size());
    const std::string word = text.substr(begin, end - begin);
    begin = end + 1;
    if (!line.empty() && TextWidth(line + " " + word, size) > width) {
      lines.push_back(std::move(line));
      line.clear();
    }
    line += (line.empty() ? "" : " ") + word;
  }
  if (!line.empty()) lines.push_back(std::move(line));
  return lines;
}

// One style a name, in order of appearance over all panels; baselines take no colour.
void AssignStyles(const Chart& chart, ChartLayout& layout) {
  std::size_t coloured = 0;
  for (std::size_t p = 0; p < chart.panels.size(); ++p) {
    for (const Series& series : chart.panels[p].series) {
      const auto same = std::find_if(layout.styles.begin(), layout.styles.end(),
                                     [&](const SeriesStyle& s) { return s.name == series.name; });
      layout.panels[p].styles.push_back(static_cast<std::size_t>(same - layout.styles.begin()));
      if (same != layout.styles.end()) continue;
      SeriesStyle style = {series.name, kBaseline.light, "(2,3)", 6, series.mark};
      if (!series.muted) {
        style.colour = kSeriesColours[coloured % kSeriesColours.size()].light;
        style.dash = kDashes[coloured % kDashes.size()];
        style.marker = kMarkers[coloured % kMarkers.size()];
        ++coloured;
      }
      layout.styles.push_back(style);
    }
  }
}

std::vector<Tick> CategoryTicks(const std::vector<std::string>& names) {
  std::vector<Tick> ticks;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (!names[i].empty()) ticks.push_back({static_cast<double>(i), names[i]});
  }
  return ticks;
}

void FindRanges(const Panel& panel, PanelLayout& out) {
  out.x_axis = panel.x;
  out.y_axis = panel.y;
  std::vector<double> xs;
  std::vector<double> ys;
  bool bars = false;
  for (const Series& series : panel.series) {
    bars = bars || series.mark == Mark::kBars;
    for (std::size_t i = 0; i < series.y.size(); ++i) {
      xs.push_back(series.x.empty() ? static_cast<double>(i) : series.x[i]);
    }
    for (const auto* values : {&series.y, &series.low, &series.high}) {
      ys.insert(ys.end(), values->begin(), values->end());
    }
  }
  const auto categories = [](Axis& axis, const std::vector<std::string>& names) {
    axis.min = -.5;
    axis.max = static_cast<double>(names.size()) - .5;
    axis.ticks = CategoryTicks(names);
  };
  if (panel.heat_map) {
    categories(out.x_axis, panel.heat_map->columns);
    categories(out.y_axis, {panel.heat_map->rows.rbegin(), panel.heat_map->rows.rend()});
  } else if (!panel.categories.empty()) {
    if (panel.horizontal) {
      std::swap(xs, ys);
      categories(out.y_axis, {panel.categories.rbegin(), panel.categories.rend()});
    } else {
      categories(out.x_axis, panel.categories);
    }
  }
  for (const Reference& reference : panel.references) {
    (reference.vertical ? xs : ys).push_back(reference.at);
  }
  out.x = AxisRange(out.x_axis, xs, bars && panel.horizontal);
  out.y = AxisRange(out.y_axis, ys, bars && !panel.horizontal);
  // A line runs from edge to edge; air is for what has an extent of its own.
  const bool lines_only = std::all_of(panel.series.begin(), panel.series.end(),
                                      [](const Series& s) { return s.mark == Mark::kLine; });
  if (lines_only && !panel.heat_map && !xs.empty()) {
    Axis tight = out.x_axis;
    const auto usable = [&](double x) {
      return std::isfinite(x) && (tight.scale == Scale::kLinear || x > 0);
    };
    xs.erase(std::remove_if(xs.begin(), xs.end(), [&](double x) { return !usable(x); }), xs.end());
    if (xs.empty()) return;
    const auto [low, high] = std::minmax_element(xs.begin(), xs.end());
    if (*low < *high) {
      if (!tight.min) out.x.low = *low;
      if (!tight.max) out.x.high = *high;
    }
  }
}

double WidestLabel(const std::vector<Tick>& ticks) {
  double widest = 0;
  for (const Tick& tick : ticks) widest = std::max(widest, TextWidth(tick.label, kTickSize));
  return widest;
}

// How far the names of columns are turned: not where they fit side by side, upright where the first
// would else run out of the picture.
int NameAngle(const PanelLayout& panel) {
  if (panel.x_axis.ticks.empty() || panel.x_ticks.empty()) return 0;
  const double width = panel.right - panel.left;
  const double slot = width / static_cast<double>(panel.x_ticks.size());
  const double widest = WidestLabel(panel.x_ticks);
  if (widest <= slot - 6) return 0;
  const double first = panel.left + width * Fraction(panel.x_axis, panel.x, panel.x_ticks[0].at);
  return .87 * TextWidth(panel.x_ticks[0].label, kTickSize) < first && slot > 24 ? 30 : 90;
}

// Titles, margins and ticks of one panel in the column [left, right]; returns its lower edge.
double PlacePanel(PanelLayout& panel, double left, double right, double top, double height,
                  double right_margin, ChartLayout& layout) {
  const Panel& data = *panel.panel;
  FindRanges(data, panel);
  panel.y_ticks = AxisTicks(panel.y_axis, panel.y, static_cast<int>(height / 44));
  panel.left = left + WidestLabel(panel.y_ticks) + 10;
  panel.right = right - right_margin;
  if (data.horizontal && !data.categories.empty()) panel.right -= 44;  // Values at the bars' ends.
  panel.x_ticks =
      AxisTicks(panel.x_axis, panel.x, static_cast<int>((panel.right - panel.left) / 58));
  // Half of the last label stands outside.
  if (!panel.x_ticks.empty() && right_margin == 0) {
    panel.right -= TextWidth(panel.x_ticks.back().label, kTickSize) / 2;
  }
  panel.turned = NameAngle(panel);

  double y = top;
  if (!data.title.empty()) {
    layout.texts.push_back(
        {left, y + kLine / 2, data.title, Anchor::kLeft, 13.5, kInk.light, true});
    y += kLine + 4;
  }
  // The name of the upright axis stands over it, where one reads it without turning one's head.
  if (!data.y.label.empty()) {
    layout.texts.push_back(
        {left, y + kLine / 2, data.y.label, Anchor::kLeft, kTextSize, kMutedInk.light, false});
    y += kLine;
  } else if (data.heat_map) {
    y += kLine;  // For the key of its colours.
  }
  panel.top = y + 8;
  panel.bottom = panel.top + height;
  y = panel.bottom + 22;
  y += std::sin(panel.turned * std::numbers::pi / 180) * WidestLabel(panel.x_ticks);
  if (!data.x.label.empty()) {
    layout.texts.push_back({(panel.left + panel.right) / 2, y + kLine / 2 - 1, data.x.label,
                            Anchor::kCentre, kTextSize, kMutedInk.light, false});
    y += kLine;
  }
  return y;
}

}  // namespace

double TextWidth(std::string_view text, double size) { return .56 * size * DisplayWidth(text); }

ChartLayout LayOut(const Chart& chart, Format format) {
  CheckChart(chart);
  ChartLayout layout;
  layout.width = format == Format::kWide ? kWideWidth : kNarrowWidth;
  layout.panels.resize(chart.panels.size());
  for (std::size_t p = 0; p < chart.panels.size(); ++p) layout.panels[p].panel = &chart.panels[p];
  AssignStyles(chart, layout);

  double y = 4;
  for (const auto& line : WrapText(chart.title, layout.width - 2 * kEdge, kTitleSize * 1.08)) {
    layout.texts.push_back({kEdge, y + 11, line, Anchor::kLeft, kTitleSize, kInk.light, true});
    y += 22;
  }
  for (const auto& line : WrapText(chart.subtitle, layout.width - 2 * kEdge, kTextSize)) {
    layout.texts.push_back(
        {kEdge, y + kLine / 2, line, Anchor::kLeft, kTextSize, kMutedInk.light, false});
    y += kLine;
  }
  y += 8;

  const bool direct = UseDirectLegend(chart, format, layout);
  const bool on_top = !direct && chart.legend != Legend::kNone && layout.styles.size() > 1;
  if (on_top) y += PlaceLegend(y, layout);
  const double right_margin = direct ? DirectLegendWidth(layout) : 0;

  const bool beside = format == Format::kWide;
  const double count = beside ? static_cast<double>(chart.panels.size()) : 1;
  const double column = (layout.width - 2 * kEdge - kPanelGap * (count - 1)) / count;
  const double height = beside ? chart.height : std::min(chart.height, 240);
  double lower = y;
  for (std::size_t p = 0; p < layout.panels.size(); ++p) {
    PanelLayout& panel = layout.panels[p];
    const double left = kEdge + (beside ? static_cast<double>(p) * (column + kPanelGap) : 0);
    const double top = beside || p == 0 ? y : lower + 16;
    // Bars are as high as their number asks for, not as the panel happens to be.
    const bool listed = panel.panel->horizontal && !panel.panel->categories.empty();
    const double bars = static_cast<double>(panel.panel->categories.size()) *
                        (10 + 12 * static_cast<double>(panel.panel->series.size()));
    lower = std::max(
        beside ? lower : 0.0,
        PlacePanel(panel, left, left + column, top, listed ? bars : height, right_margin, layout));
    if (direct) PlaceNames(panel, layout);
  }
  layout.height = std::ceil(lower + 6);
  return layout;
}

}  // namespace ttr::report
