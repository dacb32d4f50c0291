#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "experiments/report/axis.h"
#include "experiments/report/chart_script.h"
#include "experiments/report/gnuplot.h"
#include "experiments/report/palette.h"
#include "experiments/report/table.h"

namespace ttr::report {
namespace {

// The axes of a panel as they are drawn.
struct Axes {
  Axis x, y;
  Range xs, ys;
};

// Within a factor of three a logarithm is nearly straight, and would have few round ticks.
void Straighten(Axis& axis, const Range& range) {
  if (range.high < 3 * range.low) axis.scale = Scale::kLinear;
}

Axes AxesOf(const Panel& panel) {
  Axes axes = {panel.x, panel.y, {}, {}};
  std::vector<double> xs, ys;
  bool lines = !panel.series.empty();
  for (const Series& series : panel.series) {
    lines = lines && series.mark == Mark::kLine;
    for (std::size_t i = 0; i < series.y.size(); ++i) {
      xs.push_back(series.x.empty() ? static_cast<double>(i) : series.x[i]);
    }
    for (const auto* values : {&series.y, &series.low, &series.high}) {
      ys.insert(ys.end(), values->begin(), values->end());
    }
  }
  const bool bars = !panel.categories.empty();
  if (bars) {
    if (panel.horizontal) std::swap(xs, ys);
    Axis& names = panel.horizontal ? axes.y : axes.x;
    names.min = -.5;
    names.max = static_cast<double>(panel.categories.size()) - .5;
  }
  for (const Reference& reference : panel.references) {
    (reference.vertical ? xs : ys).push_back(reference.at);
  }
  // A line runs from edge to edge; air is for what has an extent of its own.
  axes.xs = AxisRange(axes.x, xs, bars && panel.horizontal, lines);
  axes.ys = AxisRange(axes.y, ys, bars && !panel.horizontal);
  // The values at the ends of level bars take room.
  if (bars && panel.horizontal) axes.xs.high += .16 * (axes.xs.high - axes.xs.low);
  Straighten(axes.x, axes.xs);
  Straighten(axes.y, axes.ys);
  return axes;
}

// Ticks at names, where the axis asks for them, or between few decades at 1, 2 and 5 of each; else
// where gnuplot has them.
std::string TicksAt(const Axis& axis, const Range& range, const std::vector<std::string>* names) {
  std::string ticks;
  const auto add = [&](const std::string& label, double at) {
    ticks += fmt::format("{}{} {}", ticks.empty() ? "(" : ", ", GnuplotQuoted(label), at);
  };
  for (std::size_t i = 0; names != nullptr && i < names->size(); ++i) {
    if (!(*names)[i].empty()) add((*names)[i], static_cast<double>(i));
  }
  for (const Tick& tick : axis.ticks) {
    if (tick.at >= range.low && tick.at <= range.high) add(tick.label, tick.at);
  }
  if (ticks.empty() && axis.scale == Scale::kLog10 && range.high < 200 * range.low) {
    double ten = std::pow(10, std::floor(std::log10(range.low)));
    for (; ten < range.high; ten *= 10) {
      for (const double at : {ten, 2 * ten, 5 * ten}) {
        if (at > .999 * range.low && at < 1.001 * range.high) add(fmt::format("{:g}", at), at);
      }
    }
  }
  return ticks.empty() ? "autofreq" : ticks + ")";
}

class PanelWriter {
 public:
  PanelWriter(const Panel& panel, const std::vector<Style>& styles)
      : panel_(panel), styles_(styles), axes_(AxesOf(panel)) {}

  std::string Write(bool turned) {
    const auto& [x, y, xs, ys] = axes_;
    const bool level = !panel_.categories.empty() && panel_.horizontal;
    const auto* names = panel_.categories.empty() ? nullptr : &panel_.categories;
    Scale('x', x, xs, level ? nullptr : names, turned ? "rotate by 30 right" : "offset 0,.2");
    Scale('y', y, ys, level ? names : nullptr, "offset .6,0");
    // Level bars run from top to bottom.
    if (level) Add("set yrange [{}:{}]\n", ys.high, ys.low);
    // The border is the axis from which the data rise.
    Add("unset grid\nset grid {} back lt 1 lc rgb '{}' lw 1 dt solid\n"
        "set border {} back lc rgb '{}' lw 1\n",
        level ? "xtics" : "ytics", kGridLine.light, level ? 2 : 1, kRule.light);
    for (const Reference& reference : panel_.references) Refer(reference);
    for (std::size_t s = 0; s < panel_.series.size(); ++s) {
      panel_.series[s].mark == Mark::kBars ? DrawBars(s) : DrawLine(panel_.series[s]);
    }
    // Bands first: they must hide no line. A plot needs one element at least; this one is never
    // seen.
    Add("plot NaN lc 0 notitle{}{}\n", bands_, marks_);
    return script_;
  }

 private:
  template <typename... Args>
  void Add(fmt::format_string<Args...> format, Args&&... args) {
    script_ += fmt::format(format, std::forward<Args>(args)...);
  }

  void Scale(char name, const Axis& axis, const Range& range, const std::vector<std::string>* names,
             const char* options) {
    const bool log = axis.scale != report::Scale::kLinear;
    const bool powers =
        axis.scale == report::Scale::kLog10 && (range.low < 1e-3 || range.high > 2e4);
    Add("set {0}range [{1}:{2}] noextend\nunset logscale {0}\n", name, range.low, range.high);
    if (log) Add("set logscale {} {}\n", name, axis.scale == report::Scale::kLog2 ? 2 : 10);
    std::string style = TextStyle(kTextSize, kMutedInk.light);
    // Only powers are typeset; names are shown as they are.
    if (names == nullptr) style += " enhanced";
    Add("set format {0} '{1}'\nset {0}tics {2} scale 0 norotate {3} {4}\n", name,
        powers ? "10^{%T}" : "%g", TicksAt(axis, range, names), options, style);
  }

  void Refer(const Reference& reference) {
    const bool upright = reference.vertical;
    const double place = upright ? Fraction(axes_.x, axes_.xs, reference.at)
                                 : Fraction(axes_.y, axes_.ys, reference.at);
    if (!(place >= 0 && place <= 1)) return;
    const auto point = [&](int along) {
      return upright ? fmt::format("first {}, graph {}", reference.at, along)
                     : fmt::format("graph {}, first {}", along, reference.at);
    };
    // The label of an upright line is on the side with more room.
    const char* side = !upright     ? "right offset 0,.6"
                       : place > .6 ? "right offset -.8,-.6"
                                    : "left offset .8,-.6";
    Add("set arrow from {} to {} nohead lc rgb '{}' lw 1 dt (4,3)\nset label {} at {} {} {}\n",
        point(0), point(1), kRule.light, GnuplotQuoted(reference.label), point(1), side,
        TextStyle(kTextSize, kMutedInk.light));
  }

  const Style& StyleOf(const Series& series) const {
    return *std::find_if(styles_.begin(), styles_.end(),
                         [&](const Style& style) { return style.name == series.name; });
  }

  void DrawLine(const Series& series) {
    const bool bounds = !series.low.empty();
    const bool log = axes_.y.scale != report::Scale::kLinear;
    const std::string block = OpenBlock();
    for (const std::size_t i : DrawnPoints(series)) {
      const double x = series.x.empty() ? static_cast<double>(i) : series.x[i];
      const double y = series.y[i];
      if (std::isnan(Fraction(axes_.x, axes_.xs, x) + Fraction(axes_.y, axes_.ys, y))) {
        Add("\n");  // A gap.
      } else if (bounds) {
        // A band that reaches zero has no lower edge on a logarithmic axis: it runs out of the
        // panel.
        const double low = log && series.low[i] <= 0 ? axes_.ys.low / 2 : series.low[i];
        Add("{} {} {} {}\n", x, y, low, series.high[i]);
      } else {
        Add("{} {}\n", x, y);
      }
    }
    Add("EOD\n");
    const Style& style = StyleOf(series);
    if (bounds && series.mark == Mark::kLine) {
      bands_ += fmt::format(
          ", {} using 1:3:4 with filledcurves fs transparent solid .16 noborder {} notitle", block,
          style.colour);
    } else if (bounds) {
      Whiskers(block, "1:3:(0):($4-$3)", style.colour);
    }
    marks_ +=
        fmt::format(", {} using 1:2 with {} {} notitle", block, PlotStyle(series.mark), style.look);
  }

  // gnuplot's own error bars come with a white halo, which a dark page shows.
  void Whiskers(const std::string& block, const char* columns, const std::string& colour) {
    marks_ += fmt::format(", {} using {} with vectors nohead {} lw 1.3 dt solid notitle", block,
                          columns, colour);
  }

  // One box a category; series of a panel stand beside each other.
  void DrawBars(std::size_t s) {
    const Series& series = panel_.series[s];
    const bool level = panel_.horizontal;
    const Axis& axis = level ? axes_.x : axes_.y;
    const Range& range = level ? axes_.xs : axes_.ys;
    const double zero = axis.scale == report::Scale::kLinear ? 0 : range.low;
    const double slot = .74 / static_cast<double>(panel_.series.size());
    const bool bounds = !series.low.empty();
    const std::string block = OpenBlock();
    for (std::size_t i = 0; i < series.y.size(); ++i) {
      const double y = series.y[i];
      if (std::isnan(Fraction(axis, range, y))) continue;
      const double begin = static_cast<double>(i) - .37 + slot * static_cast<double>(s);
      const double low = bounds ? series.low[i] : y, high = bounds ? series.high[i] : y;
      // Past the box and its whisker the value is written.
      Add("{} {} {} {} {} {} {} {} {}\n", begin + .47 * slot, y, zero, begin, begin + .94 * slot,
          low, high, std::fmax(std::max(y, zero), high), ShowReal(y, panel_.digits));
    }
    Add("EOD\n");
    marks_ += fmt::format(", {} using {} with boxxyerror fs solid .9 noborder {} notitle", block,
                          level ? "2:1:3:2:4:5" : "1:2:4:5:3:2", StyleOf(series).look);
    if (bounds) {
      Whiskers(block, level ? "6:1:($7-$6):(0)" : "1:6:(0):($7-$6)",
               fmt::format("lc rgb '{}'", kMutedInk.light));
    }
    if (level) {
      marks_ +=
          fmt::format(", {} using 8:1:(stringcolumn(9)) with labels left offset .8,0 {} notitle",
                      block, TextStyle(kTextSize, kMutedInk.light));
    }
  }

  // Opens a data block and returns its name; only numbers follow until its end. A later panel's
  // blocks take the place of an earlier one's, which are drawn by then.
  std::string OpenBlock() {
    const std::string name = fmt::format("$d{}", blocks_++);
    Add("{} << EOD\n", name);
    return name;
  }

  const Panel& panel_;
  const std::vector<Style>& styles_;
  const Axes axes_;
  std::string script_, bands_, marks_;
  int blocks_ = 0;
};

}  // namespace

std::string PanelScript(const Panel& panel, const std::vector<Style>& styles, bool turned) {
  return PanelWriter(panel, styles).Write(turned);
}

std::vector<std::size_t> DrawnPoints(const Series& series) {
  constexpr std::size_t kBuckets = 1200;  // About two a pixel column of the widest panel.
  const std::size_t count = series.y.size();
  const bool all = series.mark != Mark::kLine || count <= 4 * kBuckets;
  const std::size_t buckets = all ? count : kBuckets;
  std::vector<std::size_t> drawn;
  for (std::size_t b = 0; b < buckets; ++b) {
    const std::size_t begin = count * b / buckets, end = count * (b + 1) / buckets;
    // The first, a gap perhaps, gives way to whatever is less or greater.
    std::size_t least = begin, greatest = begin;
    for (std::size_t i = begin + 1; i < end; ++i) {
      if (std::isnan(series.y[i])) continue;
      if (!(series.y[i] >= series.y[least])) least = i;
      if (!(series.y[i] <= series.y[greatest])) greatest = i;
    }
    drawn.push_back(std::min(least, greatest));
    if (least != greatest) drawn.push_back(std::max(least, greatest));
  }
  return drawn;
}

}  // namespace ttr::report
