#include "experiments/report/chart_legend.h"

#include <algorithm>
#include <cmath>

namespace ttr::report {
namespace {

constexpr double kGap = 8;  // Between the end of a series and its name.

double WidestName(const ChartLayout& layout) {
  double widest = 0;
  for (const auto& style : layout.styles) {
    widest = std::max(widest, TextWidth(style.name, kTextSize));
  }
  return widest;
}

}  // namespace

double SwatchWidth(const SeriesStyle& style) { return style.mark == Mark::kBars ? 12 : 26; }

bool UseDirectLegend(const Chart& chart, Format format, const ChartLayout& layout) {
  if (chart.legend == Legend::kDirect) return true;
  if (chart.legend != Legend::kAuto || chart.panels.size() != 1) return false;
  const Panel& panel = chart.panels[0];
  const bool lines = std::none_of(panel.series.begin(), panel.series.end(), [](const Series& s) {
    return s.mark == Mark::kBars || s.mark == Mark::kPoints;
  });
  return lines && format == Format::kWide && layout.styles.size() > 1 &&
         WidestName(layout) < .3 * layout.width &&
         static_cast<double>(layout.styles.size()) * kLine < chart.height;
}

void PlaceNames(const PanelLayout& panel, ChartLayout& layout) {
  struct Name {
    double end, y;
    std::size_t style;
  };
  std::vector<Name> names;
  for (std::size_t s = 0; s < panel.styles.size(); ++s) {
    const Series& series = panel.panel->series[s];
    double fraction = .5;
    for (const double y : series.y) {
      const double place = Fraction(panel.y_axis, panel.y, y);
      if (std::isfinite(place)) fraction = std::clamp(place, 0.0, 1.0);
    }
    const double y = panel.bottom - fraction * (panel.bottom - panel.top);
    names.push_back({y, y, panel.styles[s]});
  }
  // Lines that end together keep their order.
  std::sort(names.begin(), names.end(), [](const Name& a, const Name& b) {
    return a.end != b.end ? a.end < b.end : a.style < b.style;
  });
  // Spread: neighbours that overlap share their displacement, until none do.
  constexpr double kSpacing = 16;
  for (int round = 0; round < 200; ++round) {
    bool moved = false;
    for (std::size_t i = 1; i < names.size(); ++i) {
      const double overlap = kSpacing - (names[i].y - names[i - 1].y);
      if (overlap < .1) continue;
      names[i - 1].y -= overlap / 2;
      names[i].y += overlap / 2;
      moved = true;
    }
    for (Name& name : names) name.y = std::clamp(name.y, panel.top, panel.bottom);
    if (!moved) break;
  }
  for (const Name& name : names) {
    const SeriesStyle& style = layout.styles[name.style];
    layout.leaders.push_back({panel.right + 1, name.end, panel.right + kGap - 1, name.y});
    layout.texts.push_back({panel.right + kGap + 2, name.y, style.name, Anchor::kLeft, kTextSize,
                            style.colour, false});
  }
}

double PlaceLegend(double top, ChartLayout& layout) {
  double x = kEdge;
  double y = top + kLine / 2;
  for (std::size_t s = 0; s < layout.styles.size(); ++s) {
    const double sample = SwatchWidth(layout.styles[s]) + 6;
    const double width = sample + TextWidth(layout.styles[s].name, kTextSize);
    if (x > kEdge && x + width > layout.width - kEdge) {
      x = kEdge;
      y += kLine + 2;
    }
    layout.swatches.push_back({x, y, s});
    layout.texts.push_back({x + sample, y, layout.styles[s].name});
    x += width + 20;
  }
  return y + kLine / 2 + 8 - top;
}

double DirectLegendWidth(const ChartLayout& layout) { return WidestName(layout) + kGap + 4; }

}  // namespace ttr::report
