#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>

#include "experiments/report/atomic_file.h"
#include "experiments/report/axis.h"
#include "experiments/report/chart.h"
#include "experiments/report/chart_data.h"
#include "experiments/report/chart_layout.h"
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

TEST(Axis, LinearTicksAreRound) {
  const auto ticks = AxisTicks({}, {0, 1}, 5);
  ASSERT_EQ(ticks.size(), 6u);
  EXPECT_EQ(ticks[1].label, "0.2");
  EXPECT_DOUBLE_EQ(ticks[3].at, .6);
  EXPECT_EQ(AxisTicks({}, {0, 256}, 5)[1].label, "50");
  const auto around = AxisTicks({}, {-1, 1}, 4);
  ASSERT_EQ(around.size(), 5u);
  EXPECT_EQ(around[2].label, "0.0");
}

TEST(Axis, LogarithmicTicksArePowers) {
  const auto ten = AxisTicks({.scale = Scale::kLog10}, {1e-3, 1}, 5);
  ASSERT_EQ(ten.size(), 4u);
  EXPECT_EQ(ten[0].label, "0.001");
  EXPECT_EQ(ten[3].label, "1");
  EXPECT_EQ(AxisTicks({.scale = Scale::kLog10}, {1e-12, 1}, 4)[0].label, "10⁻¹²");
  const auto two = AxisTicks({.scale = Scale::kLog2}, {256, 4096}, 5);
  ASSERT_EQ(two.size(), 5u);
  EXPECT_EQ(two[4].label, "4096");
}

TEST(Axis, RangeCoversTheDataAndPassesOverGaps) {
  const Range range = AxisRange({}, {kNan, 2, 10, INFINITY}, false);
  EXPECT_LT(range.low, 2);
  EXPECT_GE(range.low, 0);  // Of values that are never negative.
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
      EXPECT_FALSE(AxisTicks(axis, any, 5).empty());
    }
  }
  EXPECT_THROW(AxisRange({.min = 2., .max = 1.}, {}, false), Error);
  EXPECT_THROW(AxisRange({.scale = Scale::kLog10, .min = 0.}, {}, false), Error);
}

TEST(Chart, PointsStandAtTheirPlaces) {
  Chart chart;
  Panel& panel = chart.panels.emplace_back();
  panel.x = {.min = 0., .max = 10.};
  panel.y = {.scale = Scale::kLog10, .min = .01, .max = 1.};
  panel.series.push_back({.name = "a", .x = {0, 5, 10, 2}, .y = {.01, .1, 1, -3}});
  const ChartLayout layout = LayOut(chart, Format::kWide);
  const auto points = DrawnPoints(layout.panels[0], 0);
  ASSERT_EQ(points.size(), 4u);
  EXPECT_NEAR(points[0].y, 0, 1e-12);
  EXPECT_NEAR(points[1].x, .5, 1e-12);
  EXPECT_NEAR(points[1].y, .5, 1e-12);
  EXPECT_NEAR(points[2].y, 1, 1e-12);
  EXPECT_TRUE(std::isnan(points[3].y)) << "no logarithm: a gap";
}

TEST(Chart, ThinningKeepsExtremesAndGaps) {
  Chart chart;
  Panel& panel = chart.panels.emplace_back();
  panel.y = {.min = 0., .max = 100.};
  Series series{.name = "long"};
  for (int i = 0; i < 200000; ++i) series.y.push_back(i % 2 == 0 ? 40 : 60);
  series.y[77777] = 100;
  series.y[123456] = 0;
  for (int i = 150000; i < 160000; ++i) series.y[static_cast<std::size_t>(i)] = kNan;
  panel.series.push_back(series);
  const auto points = DrawnPoints(LayOut(chart, Format::kWide).panels[0], 0);
  EXPECT_LT(points.size(), 3000u);
  double least = 1;
  double greatest = 0;
  int gaps = 0;
  for (const Point& point : points) {
    if (std::isnan(point.y)) ++gaps;
    least = std::fmin(least, point.y);
    greatest = std::fmax(greatest, point.y);
  }
  EXPECT_EQ(least, 0);
  EXPECT_EQ(greatest, 1);
  EXPECT_GT(gaps, 0);
}

TEST(Chart, NamesBesideLinesDoNotOverlap) {
  Chart chart;
  Panel& panel = chart.panels.emplace_back();
  for (const char* name : {"a", "b", "c", "d", "e"}) {
    panel.series.push_back({.name = name, .y = {1, 2}});
  }
  const ChartLayout layout = LayOut(chart, Format::kWide);
  ASSERT_EQ(layout.leaders.size(), 5u);
  for (std::size_t i = 1; i < 5; ++i) {
    EXPECT_GT(layout.leaders[i].y1 - layout.leaders[i - 1].y1, 14);
  }
}

TEST(Chart, OneNameHasOneColourInAllPanelsAndBaselinesTakeNone) {
  Chart chart;
  chart.panels.resize(2);
  chart.panels[0].series = {{.name = "a", .y = {1}}, {.name = "base", .y = {1}, .muted = true}};
  chart.panels[1].series = {{.name = "b", .y = {1}}, {.name = "a", .y = {1}}};
  const ChartLayout layout = LayOut(chart, Format::kWide);
  ASSERT_EQ(layout.styles.size(), 3u);
  EXPECT_EQ(layout.panels[0].styles[0], layout.panels[1].styles[1]);
  EXPECT_EQ(layout.styles[layout.panels[1].styles[0]].colour, kSeriesColours[1].light);
  EXPECT_NE(layout.styles[0].dash, layout.styles[2].dash);
  EXPECT_GT(LayOut(chart, Format::kNarrow).height, layout.height) << "panels below one another";
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
  EXPECT_FALSE(Contains(svg, "rgb(")) << "a colour that no rule for dark pages can name";
  EXPECT_FALSE(Contains(svg, "GNUPLOT"));
  EXPECT_TRUE(Contains(svg, "\"#0072b2\""));
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
  chart.panels.resize(4);
  chart.panels[0].categories = {"rls", "a very long name of a layer indeed", "c"};
  chart.panels[0].series = {{.name = "v", .y = {1, kNan, -2}, .mark = Mark::kBars}};
  chart.panels[1] = chart.panels[0];
  chart.panels[1].horizontal = true;
  chart.panels[1].series[0].low = {.5, kNan, -2.5};
  chart.panels[1].series[0].high = {1.5, kNan, -1.5};
  chart.panels[2].heat_map =
      HeatMap{.columns = {"1", "2"}, .rows = {"a", "b"}, .values = {0, .25, kNan, 1}};
  chart.panels[3].series = {{.name = "nothing", .y = {kNan, kNan}},
                            {.name = "points", .y = {1, 2}, .mark = Mark::kLinePoints}};
  for (const Format format : {Format::kWide, Format::kNarrow}) {
    const std::string svg = RenderSvg(chart, format);
    EXPECT_TRUE(Balanced(svg));
    EXPECT_TRUE(Contains(svg, ">1.000<")) << "the value at the end of a level bar";
    EXPECT_TRUE(Contains(svg, "a very long name of a layer indeed"));
  }
  Chart map;
  map.panels.push_back(chart.panels[2]);
  EXPECT_TRUE(Contains(RenderSvg(map), ">0.25<")) << "the number in a cell";
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
  chart.panels[0] = {};
  chart.panels[0].heat_map = HeatMap{.columns = {"1"}, .rows = {"a"}, .values = {}};
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

TEST(Svg, TextThatLooksLikeAColourStays) {
  EXPECT_TRUE(Contains(FinishSvg("<svg ><text>'rgb(1' \"rgb(1,2\"</text></svg>", "", ""),
                       "<text>'rgb(1' \"rgb(1,2\"</text>"));
}

}  // namespace
}  // namespace ttr::report
