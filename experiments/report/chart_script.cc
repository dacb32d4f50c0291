#include "experiments/report/chart_script.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
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
constexpr double kTitleLine = 22;
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

// One style a name; baselines take no colour. A name gets the first style that no other name of its
// panel has: panels with names of their own may use one style for two.
std::vector<Style> StylesOf(const Chart& chart) {
  std::vector<Style> styles;
  std::map<std::string, std::size_t> numbers;
  for (const Panel& panel : chart.panels) {
    std::set<std::size_t> taken;
    for (const Series& series : panel.series) {
      const auto found = numbers.find(series.name);
      if (found != numbers.end()) taken.insert(found->second);
    }
    std::size_t free = 0;
    for (const Series& series : panel.series) {
      const auto same = [&](const Style& style) { return style.name == series.name; };
      if (std::any_of(styles.begin(), styles.end(), same)) continue;
      while (taken.contains(free)) ++free;
      styles.push_back(MakeStyle(series, free));
      // Bars that stand alone need no name: the panel's title says what they are.
      styles.back().named = panel.categories.empty() || panel.series.size() > 1;
      if (!series.muted) numbers[series.name] = free++;
    }
  }
  return styles;
}

// The named ones of a panel's series.
std::vector<Style> NamedIn(const Panel& panel, const std::vector<Style>& styles) {
  std::vector<Style> named;
  for (const Style& style : styles) {
    const auto is_it = [&](const Series& series) { return series.name == style.name; };
    if (style.named && std::any_of(panel.series.begin(), panel.series.end(), is_it)) {
      named.push_back(style);
    }
  }
  return named;
}

// Do all panels that name series name the same ones? One legend above the panels is enough then.
bool ShareNames(const Chart& chart, const std::vector<Style>& styles) {
  const auto all =
      std::count_if(styles.begin(), styles.end(), [](const Style& style) { return style.named; });
  return std::all_of(chart.panels.begin(), chart.panels.end(), [&](const Panel& panel) {
    const std::vector<Style> named = NamedIn(panel, styles);
    return named.empty() || named.size() == static_cast<std::size_t>(all);
  });
}

// Names of series in columns of equal width.
struct Legend {
  Legend(std::vector<Style> named, double width) : styles(std::move(named)) {
    double widest = 0;
    for (const Style& style : styles) {
      widest = std::max(widest, .6 * kTextSize * DisplayWidth(style.name));  // as gnuplot has it
    }
    const auto fit = static_cast<std::size_t>(width / (widest + 48));
    const auto count = std::max<std::size_t>(styles.size(), 1);
    const std::size_t columns = std::clamp<std::size_t>(fit, 1, count);
    rows = (styles.size() + columns - 1) / columns;
  }
  double Height() const { return rows == 0 ? 0 : kLine * static_cast<double>(rows) + 8; }

  std::vector<Style> styles;
  std::size_t rows;
};

class Script {
 public:
  Script(const Chart& chart, Format format, Picture picture)
      : chart_(chart),
        styles_(StylesOf(chart)),
        shares_names_(ShareNames(chart, styles_)),
        beside_(format == Format::kWide),
        svg_(picture == Picture::kSvg),
        width_(beside_ ? kWide : kNarrow) {}

  std::string Write() {
    double top = Header(), left = kEdge, lower = top;
    const auto columns = beside_ ? static_cast<double>(chart_.panels.size()) : 1;
    const double column = (width_ - 2 * kEdge + kGap) / columns - kGap;
    double head = 0;  // of the highest, so that panels side by side begin side by side
    for (const Panel& panel : chart_.panels) head = std::max(head, HeadHeight(panel, column));
    for (const Panel& panel : chart_.panels) {
      if (!beside_) head = HeadHeight(panel, column);
      lower = std::max(lower, DrawPanel(panel, left, left + column, top, head));
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
    return shares_names_ ? Names(LegendOf(styles_, room), kEdge, y) : y;
  }

  // The legend names those of `styles` that have a name; a chart of one style needs none.
  Legend LegendOf(const std::vector<Style>& styles, double width) const {
    std::vector<Style> named;
    if (styles_.size() > 1) {
      std::copy_if(styles.begin(), styles.end(), std::back_inserter(named),
                   [](const Style& style) { return style.named; });
    }
    return {std::move(named), width};
  }

  // What a panel has of its own where panels differ.
  Legend LegendOf(const Panel& panel, double width) const {
    return LegendOf(shares_names_ ? std::vector<Style>() : NamedIn(panel, styles_), width);
  }

  // Samples and names of series: the key of a plot that shows nothing else.
  double Names(const Legend& legend, double left, double top) {
    if (legend.styles.empty()) return top;
    std::string plot = "plot [0:1] [0:1] NaN lc 0 notitle";
    for (const Style& style : legend.styles) {
      plot += fmt::format(", keyentry with {} {} title {}", PlotStyle(style.mark), style.look,
                          GnuplotQuoted(style.name));
    }
    // gnuplot makes rows of a key as long as it finds room below, and columns of what is left.
    Add("set origin 0,0\nset size 1,1\nset lmargin at screen 0\nset rmargin at screen 1\n"
        "set tmargin at {}\nset bmargin at screen 0\nset border 0\nunset tics\nunset grid\n"
        "unset xlabel\nunset logscale\n"
        "set key at {}, {} left top vertical maxrows {} Left reverse samplen 2.5 width -4 spacing "
        "{} "
        "noenhanced textcolor rgb '{}'\n{}\nunset key\nunset label\n",
        Down(top), Across(left - kEdge / 2), Down(top), legend.rows, svg_ ? 1 : 1.3, kInk.light,
        plot);
    return top + legend.Height();
  }

  std::vector<std::string> TitleLines(const Panel& panel, double width) const {
    return WrapText(panel.title, width, kPanelTitleSize * 1.08);
  }

  // Title, names and the name of the upright axis.
  double HeadHeight(const Panel& panel, double width) const {
    return kTitleLine * static_cast<double>(TitleLines(panel, width).size()) +
           LegendOf(panel, width).Height() + (panel.y.label.empty() ? 0 : kLine);
  }

  // One panel in the columns from `left` to `right`, below a head so high; returns its lower edge.
  double DrawPanel(const Panel& panel, double left, double right, double top, double head) {
    double y = top;
    for (const std::string& line : TitleLines(panel, right - left)) {
      y = Text(left, y, line, TextStyle(kPanelTitleSize, kInk.light, ":Bold"), kTitleLine);
    }
    Names(LegendOf(panel, right - left), left, y);
    y = top + head;
    // The name of the upright axis stands over it, where one reads it without turning one's head.
    if (!panel.y.label.empty()) {
      Text(left, y - kLine, panel.y.label, TextStyle(kTextSize, kMutedInk.light));
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
  const bool shares_names_, beside_, svg_;
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
