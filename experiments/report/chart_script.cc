#include "experiments/report/chart_script.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "experiments/report/gnuplot.h"
#include "experiments/report/palette.h"
#include "experiments/report/utf8.h"

namespace ttr::report {
namespace {

// Pixels.
constexpr double kWide = 760, kNarrow = 380;
constexpr double kEdge = 8;  // Free at the left and right of a picture.
constexpr double kGap = 28;  // Between panels.
constexpr double kLine = 18;
constexpr double kTitleSize = 16, kPanelTitleSize = 13.5;

// An estimate of a text's width; fonts differ by some percent.
double TextWidth(std::string_view text, double size) { return .56 * size * DisplayWidth(text); }

std::vector<std::string> WrapText(const std::string& text, double width, double size) {
  std::vector<std::string> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(' ', begin), text.size());
    const std::string word = text.substr(begin, end - begin);
    begin = end + 1;
    if (!lines.empty() && TextWidth(lines.back() + " " + word, size) <= width) {
      lines.back() += " " + word;
    } else {
      lines.push_back(word);
    }
  }
  return lines;
}

Style MakeStyle(const Series& series, std::size_t number) {
  Style style{.name = series.name, .mark = series.mark};
  std::string_view colour = kBaseline.light, dash = "(2,3)";
  int marker = 6;
  if (!series.muted) {
    colour = kSeriesColours[number % kSeriesColours.size()].light;
    dash = kDashes[number % kDashes.size()];
    marker = kMarkers[number % kMarkers.size()];
  }
  style.look = style.colour = fmt::format("lc rgb '{}'", colour);
  const bool points = series.mark == Mark::kPoints || series.mark == Mark::kLinePoints;
  const bool lines = series.mark == Mark::kLine || series.mark == Mark::kLinePoints;
  if (lines) style.look += fmt::format(" lw 1.8 dt {}", dash);
  if (points) style.look += fmt::format(" pt {} ps .65", marker);
  return style;
}

// One style a name, in order of appearance over all panels; baselines take no colour.
std::vector<Style> StylesOf(const Chart& chart) {
  std::vector<Style> styles;
  std::size_t coloured = 0;
  for (const Panel& panel : chart.panels) {
    for (const Series& series : panel.series) {
      const auto same = [&](const Style& style) { return style.name == series.name; };
      if (std::any_of(styles.begin(), styles.end(), same)) continue;
      styles.push_back(MakeStyle(series, coloured));
      // Bars that stand alone need no name: the panel's title says what they are.
      styles.back().named = panel.categories.empty() || panel.series.size() > 1;
      if (!series.muted) ++coloured;
    }
  }
  return styles;
}

class Script {
 public:
  Script(const Chart& chart, Format format, Picture picture)
      : chart_(chart),
        styles_(StylesOf(chart)),
        beside_(format == Format::kWide),
        svg_(picture == Picture::kSvg),
        width_(beside_ ? kWide : kNarrow) {}

  std::string Write() {
    double top = Header(), left = kEdge, lower = top;
    const auto columns = beside_ ? static_cast<double>(chart_.panels.size()) : 1;
    const double column = (width_ - 2 * kEdge + kGap) / columns - kGap;
    for (const Panel& panel : chart_.panels) {
      lower = std::max(lower, DrawPanel(panel, left, left + column, top));
      beside_ ? left += column + kGap : top = lower + 16;
    }
    return Terminal(lower + 10) + script_ + "unset multiplot\n";
  }

 private:
  template <typename... Args>
  void Add(fmt::format_string<Args...> format, Args&&... args) {
    script_ += fmt::format(format, std::forward<Args>(args)...);
  }

  // The height is known at the end; what stands before it calls it H.
  std::string Terminal(double height) const {
    // Twice as fine as a screen's pixels; a cairo point is 4/3 of a pixel.
    const std::string terminal =
        svg_ ? fmt::format("svg size {:.0f},{:.0f} fixed", width_, height)
             : fmt::format(
                   "pngcairo size {:.0f},{:.0f} background '#ffffff' fontscale 1.5 "
                   "linewidth 2 pointscale 2",
                   2 * width_, 2 * height);
    return fmt::format(
        "H = {:.0f}.\nset terminal {} font 'sans-serif,{}'\nset encoding utf8\nset output\n"
        "unset key\nset clip two\nset style fill solid noborder\nset multiplot\n",
        height, terminal, kTextSize);
  }

  // Positions in the whole picture, in pixels from its top left corner.
  std::string Across(double x) const { return fmt::format("screen {:.6f}", x / width_); }
  static std::string Down(double y) { return fmt::format("screen 1-{:.2f}/H", y); }

  // A line of text whose upper edge is at `y`; returns its lower edge.
  double Text(double x, double y, const std::string& text, const std::string& style,
              double line = kLine) {
    Add("set label {} at {}, {} {}\n", GnuplotQuoted(text), Across(x), Down(y + line / 2), style);
    return y + line;
  }

  // Title, subtitle and names of series; returns their lower edge.
  double Header() {
    const double room = width_ - 2 * kEdge;
    double y = 4;
    for (const std::string& line : WrapText(chart_.title, room, kTitleSize * 1.08)) {
      y = Text(kEdge, y, line, TextStyle(kTitleSize, kInk.light, ":Bold"), 22);
    }
    for (const std::string& line : WrapText(chart_.subtitle, room, kTextSize)) {
      y = Text(kEdge, y, line, TextStyle(kTextSize, kMutedInk.light));
    }
    y += 8;
    std::vector<Style> named;
    std::copy_if(styles_.begin(), styles_.end(), std::back_inserter(named),
                 [](const Style& style) { return style.named; });
    return styles_.size() > 1 && !named.empty() ? Names(named, y) : y;
  }

  // Samples and names of series: the key of a plot that shows nothing else.
  double Names(const std::vector<Style>& styles, double top) {
    double widest = 0;
    std::string plot = "plot [0:1] [0:1] NaN lc 0 notitle";
    for (const Style& style : styles) {
      widest = std::max(widest, .6 * kTextSize * DisplayWidth(style.name));  // as gnuplot has it
      plot += fmt::format(", keyentry with {} {} title {}", PlotStyle(style.mark), style.look,
                          GnuplotQuoted(style.name));
    }
    const auto fit = static_cast<std::size_t>((width_ - 2 * kEdge) / (widest + 48));
    const std::size_t columns = std::clamp<std::size_t>(fit, 1, styles.size());
    const std::size_t rows = (styles.size() + columns - 1) / columns;
    const double lower = top + kLine * static_cast<double>(rows);
    // gnuplot makes rows of a key as long as it finds room below, and columns of what is left.
    Add("set lmargin at screen 0\nset rmargin at screen 1\nset tmargin at {}\n"
        "set bmargin at screen 0\nset border 0\nunset tics\n"
        "set key at {}, {} left top vertical maxrows {} Left reverse samplen 2.5 width -4 spacing "
        "{} "
        "noenhanced textcolor rgb '{}'\n{}\nunset key\nunset label\n",
        Down(top), Across(kEdge / 2), Down(top), rows, svg_ ? 1 : 1.3, kInk.light, plot);
    return lower + 8;
  }

  // One panel in the columns from `left` to `right`; returns its lower edge.
  double DrawPanel(const Panel& panel, double left, double right, double top) {
    double y = top;
    if (!panel.title.empty()) {
      y = Text(left, y, panel.title, TextStyle(kPanelTitleSize, kInk.light, ":Bold"), kLine + 4);
    }
    // The name of the upright axis stands over it, where one reads it without turning one's head.
    if (!panel.y.label.empty()) {
      y = Text(left, y, panel.y.label, TextStyle(kTextSize, kMutedInk.light));
    }
    y += 8;
    // Level bars are as high as their number asks for, not as the panel happens to be.
    const auto bars = static_cast<double>(panel.categories.size());
    const bool level = panel.horizontal && bars > 0;
    double height = beside_ ? chart_.height : std::min(chart_.height, 240);
    if (level) height = bars * (10 + 12 * static_cast<double>(panel.series.size()));
    Add("set origin {:.6f},0\nset size {:.6f},1\nunset lmargin\nunset rmargin\n"
        "set tmargin at {}\nset bmargin at {}\nset xlabel {} offset 0,.2 {}\n",
        left / width_, (right - left) / width_, Down(y), Down(y + height),
        GnuplotQuoted(panel.x.label), TextStyle(kTextSize, kMutedInk.light));
    y += height + 22 + (panel.x.label.empty() ? 0 : kLine);
    double widest = 0;
    for (const auto& name : panel.categories) {
      widest = std::max(widest, TextWidth(name, kTextSize));
    }
    const bool turned = !level && bars > 0 && widest > (right - left - 40) / bars - 6;
    script_ += PanelScript(panel, styles_, turned);
    // Labels and lines belong to one plot command; those of the whole picture go with the first.
    Add("unset label\nunset arrow\n");
    return turned ? y + widest / 2 : y;
  }

  const Chart& chart_;
  const std::vector<Style> styles_;
  const bool beside_, svg_;
  const double width_;
  std::string script_;
};

}  // namespace

const char* PlotStyle(Mark mark) {
  switch (mark) {
    case Mark::kLine: return "lines";
    case Mark::kPoints: return "points";
    case Mark::kLinePoints: return "linespoints";
    case Mark::kBars: break;
  }
  return "boxes fs solid .9 noborder";
}

std::string TextStyle(double size, std::string_view colour, std::string_view weight) {
  return fmt::format("font 'sans-serif{},{}' textcolor rgb '{}' noenhanced", weight, size, colour);
}

std::string GnuplotScript(const Chart& chart, Format format, Picture picture) {
  return Script(chart, format, picture).Write();
}

}  // namespace ttr::report
