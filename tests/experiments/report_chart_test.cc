#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <regex>
#include <set>

#include "experiments/report/atomic_file.h"
#include "experiments/report/axis.h"
#include "experiments/report/chart.h"
#include "experiments/report/chart_json.h"
#include "experiments/report/chart_script.h"
#include "experiments/report/gnuplot.h"
#include "experiments/report/palette.h"
#include "experiments/report/svg.h"
#include "tests/experiments/report_support.h"
#include "ttr/error.h"

namespace ttr::report {
namespace {

namespace fs = std::filesystem;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Every element opened is closed in turn: what an XML parser asks for first.
bool Balanced(const std::string& xml) {
  std::vector<std::string> open;
  for (std::size_t at = xml.find('<'); at != std::string::npos; at = xml.find('<', at + 1)) {
    const std::size_t end = xml.find('>', at);
    if (end == std::string::npos) return false;
    const std::string tag = xml.substr(at + 1, end - at - 1);
    if (tag[0] == '?' || tag[0] == '!' || tag.back() == '/') continue;
    if (tag[0] != '/') {
      open.push_back(tag.substr(0, tag.find_first_of(" \t\n")));
    } else if (open.empty() || open.back() != tag.substr(1)) {
      return false;
    } else {
      open.pop_back();
    }
  }
  return open.empty();
}

Chart TwoLines() {
  Chart chart{.title = "Loss & <b>more</b>", .subtitle = "it's `date` $(date) @x"};
  Panel& panel = chart.panels.emplace_back();
  panel.x.label = "token";
  panel.y = {.label = "loss_t", .scale = Scale::kLog10};
  panel.series.push_back({.name = "weighted_rls{step: longhorn}",
                          .x = {0, 1, 2, 3},
                          .y = {1, .1, kNan, .01},
                          .low = {.9, 0, kNan, .005},
                          .high = {1.1, .2, kNan, .02}});
  panel.series.push_back({.name = "naïve_\"one\"", .y = {.5, -1, .5, .5}, .muted = true});
  panel.references.push_back({.at = 1.5, .vertical = true, .label = "the law changes"});
  return chart;
}

// The texts of an SVG, with those that are set in pieces (powers) as one.
std::vector<std::string> Texts(const std::string& svg) {
  std::vector<std::string> texts;
  for (std::size_t at = svg.find("<text>"); at != std::string::npos; at = svg.find("<text>", at)) {
    const std::size_t end = svg.find("</text>", at);
    texts.push_back(std::regex_replace(svg.substr(at, end - at), std::regex("<[^>]*>|\\s"), ""));
    at = end;
  }
  return texts;
}

// The ticks of an axis from `low` to `high`.
std::vector<std::string> Ticks(Scale scale, double low, double high) {
  Chart chart;
  chart.panels.push_back({.x = {.scale = scale, .min = low, .max = high}});
  chart.panels.back().y = {.min = 0, .max = .001};
  std::vector<std::string> texts = Texts(RenderSvg(chart));
  std::erase_if(texts, [](const std::string& text) { return text.starts_with("0.000"); });
  return texts;
}

bool Has(const std::vector<std::string>& texts, const std::string& text) {
  return std::find(texts.begin(), texts.end(), text) != texts.end();
}

TEST(Axis, LinearTicksAreRound) {
  const auto ticks = Ticks(Scale::kLinear, 0, 1);
  EXPECT_GE(ticks.size(), 6u);
  EXPECT_TRUE(Has(ticks, "0.2") && Has(ticks, "0.6"));
  EXPECT_TRUE(Has(Ticks(Scale::kLinear, 0, 256), "50"));
  const auto around = Ticks(Scale::kLinear, -1, 1);
  EXPECT_GE(around.size(), 5u);
  EXPECT_TRUE(Has(around, "0") && Has(around, "-0.5"));
}

TEST(Axis, TicksStandWhereTheyAreAskedFor) {
  Chart chart;
  chart.panels.push_back({.x = {.ticks = {{2, "May"}, {3, "June"}, {9, "never"}}}});
  chart.panels.back().series.push_back({.name = "a", .x = {1, 2, 3}, .y = {10, 20, 30}});
  const auto texts = Texts(RenderSvg(chart));
  EXPECT_TRUE(Has(texts, "May") && Has(texts, "June"));
  EXPECT_FALSE(Has(texts, "never") || Has(texts, "1.5"));
}

TEST(Chart, NamesStandOnceWherePanelsShareThemElseInEachPanel) {
  const auto names = [](const std::vector<std::vector<std::string>>& panels, Format format) {
    Chart chart;
    for (const std::vector<std::string>& series : panels) {
      Panel& panel = chart.panels.emplace_back();
      for (const std::string& name : series) panel.series.push_back({.name = name, .y = {1, 2}});
    }
    std::vector<std::string> found;
    for (const std::string& text : Texts(RenderSvg(chart, format))) {
      if (text.starts_with("name")) found.push_back(text);
    }
    return found;
  };
  using Names = std::vector<std::string>;
  for (const Format format : {Format::kWide, Format::kNarrow}) {
    EXPECT_EQ(names({{"name1", "name2"}, {"name2", "name1"}}, format), (Names{"name1", "name2"}));
    EXPECT_EQ(names({{"name1", "name2"}, {"name2", "name3"}}, format),
              (Names{"name1", "name2", "name2", "name3"}));
  }
}

TEST(Axis, LogarithmicTicksArePowers) {
  const auto ten = Ticks(Scale::kLog10, 1e-3, 1);
  EXPECT_TRUE(Has(ten, "0.001") && Has(ten, "0.01") && Has(ten, "0.1") && Has(ten, "1"));
  EXPECT_TRUE(Has(Ticks(Scale::kLog10, 1e-12, 1), "10-12"));
  const auto two = Ticks(Scale::kLog2, 256, 4096);
  EXPECT_TRUE(Has(two, "256") && Has(two, "4096"));
  EXPECT_TRUE(Has(Ticks(Scale::kLog10, 90, 900), "200")) << "between few decades";
  EXPECT_GE(Ticks(Scale::kLog2, 1.1, 1.9).size(), 3u);
}

TEST(Axis, RangeCoversTheDataAndPassesOverGaps) {
  const Range range = AxisRange({}, {kNan, 2, 10, INFINITY}, false);
  EXPECT_LT(range.low, 2);
  EXPECT_GE(range.low, 0);  // values are never negative
  EXPECT_GT(range.high, 10);
  EXPECT_LT(range.high, 11);
  EXPECT_EQ(AxisRange({}, {2, 10}, true).low, 0);
  const Range log = AxisRange({.scale = Scale::kLog10}, {-1, 0, .01, 1}, false);
  EXPECT_GT(log.low, .005);
  EXPECT_LT(log.low, .01);
  for (const auto& values : {std::vector<double>{}, {3}, {0, 0}, {kNan}, {1e-300}, {-7, -7}}) {
    for (const Scale scale : {Scale::kLinear, Scale::kLog10, Scale::kLog2}) {
      const Axis axis = {.scale = scale};
      const Range any = AxisRange(axis, values, false);
      EXPECT_LT(any.low, any.high);
      EXPECT_FALSE(Ticks(scale, any.low, any.high).empty());
    }
  }
  EXPECT_THROW(AxisRange({.min = 2., .max = 1.}, {}, false), Error);
  EXPECT_THROW(AxisRange({.scale = Scale::kLog10, .min = 0.}, {}, false), Error);
}

// Where the full circles of a picture stand, in pixels.
std::vector<std::pair<double, double>> Markers(const std::string& svg) {
  std::vector<std::pair<double, double>> found;
  const std::regex use("gpPt6' transform='translate\\(([0-9.]+),([0-9.]+)\\)");
  for (auto at = std::sregex_iterator(svg.begin(), svg.end(), use); at != std::sregex_iterator();
       ++at) {
    found.emplace_back(std::stod((*at)[1]), std::stod((*at)[2]));
  }
  return found;
}

TEST(Chart, PointsStandAtTheirPlaces) {
  Chart chart;
  Panel& panel = chart.panels.emplace_back();
  panel.x = {.min = 0., .max = 10.};
  panel.y = {.scale = Scale::kLog10, .min = .01, .max = 1.};
  panel.series.push_back({.name = "a", .x = {0, 5, 10, 2}, .y = {.01, .1, 1, -3}});
  panel.series[0].mark = Mark::kPoints;
  const auto points = Markers(RenderSvg(chart));
  ASSERT_EQ(points.size(), 3u) << "no logarithm: a gap";
  EXPECT_GT(points[1].first, points[0].first);
  EXPECT_LT(points[1].second, points[0].second) << "upwards";
  EXPECT_NEAR(points[1].first, (points[0].first + points[2].first) / 2, .02);
  EXPECT_NEAR(points[1].second, (points[0].second + points[2].second) / 2, .02);
}

TEST(Chart, ThinningKeepsExtremesAndGaps) {
  Series series{.name = "long"};
  for (int i = 0; i < 200000; ++i) series.y.push_back(i % 2 == 0 ? 40 : 60);
  series.y[77777] = 100;
  series.y[123456] = 0;
  for (int i = 150000; i < 160000; ++i) series.y[static_cast<std::size_t>(i)] = kNan;
  const auto points = DrawnPoints(series);
  EXPECT_LT(points.size(), 3000u);
  EXPECT_TRUE(std::is_sorted(points.begin(), points.end()));
  double least = 50;
  double greatest = 50;
  int gaps = 0;
  for (const std::size_t i : points) {
    if (std::isnan(series.y[i])) ++gaps;
    least = std::fmin(least, series.y[i]);
    greatest = std::fmax(greatest, series.y[i]);
  }
  EXPECT_EQ(least, 0);
  EXPECT_EQ(greatest, 100);
  EXPECT_GT(gaps, 0);
  series.mark = Mark::kPoints;
  EXPECT_EQ(DrawnPoints(series).size(), 200000u);
}

// Where a text of a picture begins or ends, in pixels from the top left corner.
std::pair<double, double> Place(const std::string& svg, const std::string& text) {
  const std::size_t at = svg.rfind("translate(", svg.find("<text>" + text + "<"));
  const std::size_t comma = svg.find(',', at);
  return {std::stod(svg.substr(at + 10)), std::stod(svg.substr(comma + 1))};
}

TEST(Chart, EveryNameStandsOnceAboveThePanels) {
  Chart chart;
  chart.panels.resize(2);
  std::vector<std::string> names;
  for (int i = 0; i < 14; ++i) names.push_back(fmt::format("layer {}, of some length", i));
  for (Panel& panel : chart.panels) {
    for (const std::string& name : names) panel.series.push_back({.name = name, .y = {1, 2}});
  }
  chart.panels[0].title = "a panel";
  for (const Format format : {Format::kWide, Format::kNarrow}) {
    const std::string svg = RenderSvg(chart, format);
    const double width = format == Format::kWide ? 760 : 380;
    std::set<std::pair<double, double>> places;
    for (const std::string& name : names) {
      EXPECT_EQ(svg.find("<text>" + name), svg.rfind("<text>" + name)) << name;
      const auto [x, y] = Place(svg, name);
      EXPECT_LT(y, Place(svg, "a panel").second - 14) << name;
      EXPECT_LT(x + 6 * static_cast<double>(name.size()), width) << name;
      places.emplace(x, y);
    }
    EXPECT_EQ(places.size(), names.size());
  }
  Chart one;
  one.panels.push_back({.series = {{.name = "alone", .y = {1, 2}}}});
  EXPECT_FALSE(Has(Texts(RenderSvg(one)), "alone"));
}

TEST(Chart, OneNameHasOneColourInAllPanelsAndBaselinesTakeNone) {
  Chart chart;
  chart.panels.resize(2);
  chart.panels[0].series = {{.name = "a", .y = {1}}, {.name = "base", .y = {1}, .muted = true}};
  chart.panels[1].series = {{.name = "b", .y = {1}}, {.name = "a", .y = {1}}};
  const std::string wide = GnuplotScript(chart, Format::kWide, Picture::kSvg);
  // Once among each panel's names, then once in each panel that has it.
  const auto count = [&](std::string_view text) {
    int found = 0;
    for (std::size_t at = wide.find(text); at != std::string::npos; at = wide.find(text, at + 1)) {
      ++found;
    }
    return found;
  };
  EXPECT_EQ(count(kSeriesColours[0].light), 4);
  EXPECT_EQ(count(kSeriesColours[1].light), 2);
  EXPECT_EQ(count(kSeriesColours[2].light), 0);
  EXPECT_EQ(count("dt (2,3)"), 2) << "the baseline has dashes of its own";
  const auto height = [&](Format format) {
    const std::string svg = RenderSvg(chart, format);
    return std::stod(svg.substr(svg.find(" height=\"") + 9));
  };
  EXPECT_GT(height(Format::kNarrow), height(Format::kWide)) << "panels below one another";
}

TEST(Chart, SvgHasItsTextsEscapedAndBothSchemes) {
  const std::string svg = RenderSvg(TwoLines());
  EXPECT_TRUE(Balanced(svg));
  for (const char* part : {"weighted_rls{step: longhorn}", "naïve_\"one\"", "the law changes",
                           "loss_t", "<title>Loss &amp; &lt;b&gt;more&lt;/b&gt;</title>",
                           "it's `date` $(date) @x", "prefers-color-scheme:dark", "role=\"img\""}) {
    EXPECT_TRUE(Contains(svg, part)) << part;
  }
  EXPECT_FALSE(Contains(svg, "<b>"));
  EXPECT_TRUE(Contains(svg, "[stroke='rgb(  0, 114, 178)']{stroke:#4db2f0}"));
  // Every colour that is used is one that a rule for dark pages names.
  const std::size_t body = svg.find("</style>");
  const std::regex colours(" (stroke|fill|color) ?= ?['\"](rgb\\([^)]*\\))");
  int used = 0;
  for (auto at = std::sregex_iterator(svg.begin() + static_cast<std::ptrdiff_t>(body), svg.end(),
                                      colours);
       at != std::sregex_iterator(); ++at, ++used) {
    const std::string rule = "[" + (*at)[1].str() + "='" + (*at)[2].str() + "']";
    EXPECT_LT(svg.find(rule), body) << rule;
  }
  EXPECT_GT(used, 10);
  EXPECT_FALSE(Contains(svg, "GNUPLOT"));
  EXPECT_EQ(svg, RenderSvg(TwoLines()));
}

TEST(Chart, SaveWritesBothFiles) {
  const TemporaryFolder folder;
  SaveChart(TwoLines(), folder / "figure.95");
  EXPECT_TRUE(Contains(ReadAll(folder / "figure.95.svg"), "weighted_rls{step: longhorn}"));
  const std::string png = ReadAll(folder / "figure.95.png");
  ASSERT_GT(png.size(), 1000u);
  EXPECT_EQ(png.substr(0, 8), "\x89PNG\r\n\x1a\n");
  const auto width =
      static_cast<unsigned char>(png[18]) * 256 + static_cast<unsigned char>(png[19]);
  EXPECT_EQ(width, 1520);
  EXPECT_EQ(png, RenderPng(TwoLines()));
  EXPECT_EQ(folder.Count(), 2);
}

TEST(Chart, EveryKindOfPanelIsDrawn) {
  Chart chart;
  chart.panels.resize(3);
  chart.panels[0].categories = {"rls", "a very long name of a layer indeed", "c"};
  chart.panels[0].series = {{.name = "v", .y = {1, kNan, -2}, .mark = Mark::kBars}};
  chart.panels[1] = chart.panels[0];
  chart.panels[1].horizontal = true;
  chart.panels[1].series[0].low = {.5, kNan, -2.5};
  chart.panels[1].series[0].high = {1.5, kNan, -1.5};
  chart.panels[2].series = {{.name = "nothing", .y = {kNan, kNan}},
                            {.name = "points", .y = {1, 2}, .mark = Mark::kLinePoints}};
  for (const Format format : {Format::kWide, Format::kNarrow}) {
    const std::string svg = RenderSvg(chart, format);
    EXPECT_TRUE(Balanced(svg));
    EXPECT_TRUE(Contains(svg, ">1.000<")) << "the value at the end of a level bar";
    EXPECT_TRUE(Contains(svg, "a very long name of a layer indeed"));
  }
}

TEST(Chart, RefusesWhatHasNoMeaning) {
  EXPECT_THROW(RenderSvg(Chart{}), Error);
  Chart chart = TwoLines();
  chart.panels[0].series[0].x.pop_back();
  EXPECT_THROW(RenderSvg(chart), Error);
  chart = TwoLines();
  chart.panels[0].series[0].low.clear();
  EXPECT_THROW(RenderSvg(chart), Error);
  chart = TwoLines();
  chart.panels[0].series[0].mark = Mark::kBars;
  EXPECT_THROW(RenderSvg(chart), Error);
}

TEST(Gnuplot, QuotesSoThatNothingIsInterpreted) {
  EXPECT_EQ(GnuplotQuoted("it's \\n `x`"), "'it''s \\n `x`'");
  EXPECT_EQ(GnuplotQuoted("a\nb\x01"), "'a b'");
}

TEST(Gnuplot, ItsMessageBecomesTheError) {
  try {
    RunGnuplot("plot nonsense(3)\n");
    FAIL() << "a wrong script was accepted";
  } catch (const SystemError& error) {
    EXPECT_TRUE(Contains(error.what(), "undefined function: nonsense")) << error.what();
  }
}

class WithPath : public testing::Test {
 protected:
  void SetUp() override { old_ = getenv("PATH"); }
  void TearDown() override { setenv("PATH", old_.c_str(), 1); }
  std::string old_;
};

TEST_F(WithPath, AMissingGnuplotIsNamedWithItsPackage) {
  const TemporaryFolder folder;
  setenv("PATH", folder.path().c_str(), 1);
  WriteFile(folder / "a.svg", "old");
  try {
    SaveChart(TwoLines(), folder / "a");
    FAIL() << "there was no gnuplot";
  } catch (const SystemError& error) {
    EXPECT_TRUE(Contains(error.what(), "gnuplot-nox")) << error.what();
  }
  EXPECT_EQ(ReadAll(folder / "a.svg"), "old");
  EXPECT_EQ(folder.Count(), 1);
}

TEST_F(WithPath, AGnuplotThatDiesBeforeReadingIsAnErrorNotASignal) {
  const TemporaryFolder folder;
  WriteFile(folder / "gnuplot", "#!/bin/sh\necho 'no memory' >&2\nexit 3\n");
  fs::permissions(folder / "gnuplot", fs::perms::owner_all);
  setenv("PATH", (folder.path().string() + ":" + old_).c_str(), 1);
  try {
    RunGnuplot(std::string(std::size_t{1} << 22, '#'));
    FAIL() << "it failed";
  } catch (const SystemError& error) {
    EXPECT_TRUE(Contains(error.what(), "no memory")) << error.what();
  }
}

TEST(Svg, InliningPrefixesIdsAndDropsTheXmlHead) {
  const std::string inlined = InlineSvg(RenderSvg(TwoLines()), "p7");
  EXPECT_TRUE(inlined.starts_with("<svg"));
  EXPECT_TRUE(Contains(inlined, "id='p7-gpPt0'"));
  EXPECT_TRUE(Contains(inlined, "'#p7-gpPt7'"));
  EXPECT_FALSE(Contains(inlined, "id='gp"));
  EXPECT_FALSE(Contains(inlined, "'#gp"));
}

TEST(ChartJson, IsTheChartThatItDescribes) {
  const Chart chart = ChartFromJson(R"({"title": "t", "subtitle": "s", "panels": [
      {"title": "p", "x": {"label": "tokens", "scale": "log2"}, "y": {"min": 0, "max": 1.5},
       "series": [{"name": "RLS", "mark": "line_points", "x": [256, 512], "y": [0.5, null],
                   "low": [0.25, null], "high": [0.75, null]}, {"y": [1]}]}, {}]})");
  EXPECT_EQ(chart.title + chart.subtitle, "ts");
  ASSERT_EQ(chart.panels.size(), 2u);
  const Panel& panel = chart.panels[0];
  EXPECT_EQ(panel.title + panel.x.label, "ptokens");
  EXPECT_EQ(panel.x.scale, Scale::kLog2);
  EXPECT_EQ(panel.y.scale, Scale::kLinear);
  EXPECT_EQ(panel.y.max, 1.5);
  EXPECT_FALSE(panel.x.min.has_value());
  ASSERT_EQ(panel.series.size(), 2u);
  EXPECT_EQ(panel.series[0].name, "RLS");
  EXPECT_EQ(panel.series[0].mark, Mark::kLinePoints);
  EXPECT_EQ(panel.series[0].x, (std::vector<double>{256, 512}));
  EXPECT_EQ(panel.series[0].low[0], .25);
  EXPECT_TRUE(std::isnan(panel.series[0].y[1]) && std::isnan(panel.series[0].high[1]));
  EXPECT_EQ(panel.series[1].mark, Mark::kLine);
}

TEST(ChartJson, RefusesWhatIsNoChart) {
  for (const char* text :
       {"", "[", "[1]", "7", R"({"title": 3})", R"({"panels": 3})",
        R"({"panels": [{"x": {"scale": "cubic"}}]})", R"({"panels": [{"y": {"min": "low"}}]})",
        R"({"panels": [{"series": [{"y": ["a"]}]}]})"}) {
    EXPECT_THROW(ChartFromJson(text), Error) << text;
  }
  try {
    ChartFromJson(R"({"panels": [{"x": {"scale": "cubic"}}]})");
  } catch (const Error& error) {
    EXPECT_TRUE(Contains(error.what(), "linear, log10, log2")) << error.what();
  }
}

}  // namespace
}  // namespace ttr::report
