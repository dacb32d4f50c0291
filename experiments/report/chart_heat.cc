#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "experiments/report/chart_canvas.h"
#include "experiments/report/palette.h"
#include "experiments/report/table.h"

namespace ttr::report {
namespace {

// The values' own extent, without air: the scale's ends are values that occur.
Range CellRange(const HeatMap& map) {
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

// What the colours mean, where cells are too small for numbers: above the panel, at the right.
void HeatKey(Canvas& canvas, const PanelLayout& panel, const Range& range) {
  constexpr int kSteps = 30;
  constexpr double kStep = 3;
  const int digits = panel.panel->heat_map->digits;
  const std::string high = ShowReal(range.high, digits);
  const double y = panel.top - 16;
  const double end = panel.right - TextWidth(high, kTickSize) - 6;
  const double begin = end - kSteps * kStep;
  for (int i = 0; i < kSteps; ++i) {
    canvas.Add("set object rectangle from {} to {} fc rgb {} fs solid noborder\n",
               canvas.ScreenPoint(begin + i * kStep, y + 5),
               canvas.ScreenPoint(begin + (i + 1) * kStep + .2, y - 5),
               HeatColour((i + .5) / kSteps));
  }
  canvas.Label(canvas.ScreenPoint(begin - 6, y), ShowReal(range.low, digits), Anchor::kRight,
               kTickSize, kMutedInk.light, false);
  canvas.Label(canvas.ScreenPoint(end + 6, y), high, Anchor::kLeft, kTickSize, kMutedInk.light,
               false);
}

}  // namespace

void DrawCells(Canvas& canvas, const PanelLayout& panel, std::string& plot) {
  const HeatMap& map = *panel.panel->heat_map;
  const Range range = CellRange(map);
  const double columns = static_cast<double>(map.columns.size());
  const double rows = static_cast<double>(map.rows.size());
  const double width = (panel.right - panel.left) / columns;
  const double height = (panel.bottom - panel.top) / rows;
  // A small gap between cells; none between dense ones, which overlap a little to leave no seam.
  const double gap = std::min(width, height) > 10 ? 1 : -.2;
  const std::string block = canvas.OpenBlock();
  std::vector<std::pair<std::size_t, unsigned>> numbered;
  for (std::size_t i = 0; i < map.values.size(); ++i) {
    if (!std::isfinite(map.values[i])) continue;
    const auto column = static_cast<double>(i % map.columns.size());
    const auto row = static_cast<double>(map.rows.size() - 1 - i / map.columns.size());
    const unsigned colour = HeatColour((map.values[i] - range.low) / (range.high - range.low));
    canvas.Add("{:.5f} {:.5f} {:.5f} {:.5f} {:.5f} {:.5f} {}\n", (column + .5) / columns,
               (row + .5) / rows, (column + gap / width) / columns,
               (column + 1 - gap / width) / columns, (row + gap / height) / rows,
               (row + 1 - gap / height) / rows, colour);
    numbered.emplace_back(i, colour);
  }
  canvas.CloseBlock();
  plot += fmt::format(
      ", {} using 1:2:3:4:5:6:7 with boxxyerror fs solid noborder lc rgb variable notitle", block);
  double widest = 0;
  for (const auto& [i, colour] : numbered) {
    widest = std::max(widest, TextWidth(ShowReal(map.values[i], map.digits), 11));
  }
  if (height < 14 || widest > width - 4) return HeatKey(canvas, panel, range);
  for (const auto& [i, colour] : numbered) {
    const std::string text = ShowReal(map.values[i], map.digits);
    const auto column = static_cast<double>(i % map.columns.size());
    const auto row = static_cast<double>(map.rows.size() - 1 - i / map.columns.size());
    // Not the ink of the page: the cell's colour is the same by day and night.
    canvas.Label(canvas.PanelPoint((column + .5) / columns, (row + .5) / rows), text,
                 Anchor::kCentre, 11, IsDark(colour) ? "#fdfdfd" : "#101112", false, "front");
  }
}

}  // namespace ttr::report
