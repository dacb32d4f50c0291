#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <sstream>
#include <string>
#include <vector>

#include "experiments/data/input.h"
#include "experiments/real/forecast.h"
#include "experiments/real/forecast_report.h"
#include "experiments/real/forecast_table.h"
#include "experiments/report/atomic_file.h"
#include "tests/experiments/report_support.h"
#include "ttr/error.h"

namespace ttr::experiments {
namespace {

constexpr const char* kHeader = "date,a,note,b\n";

std::string Body(int begin, int end) {
  std::string text;
  for (int t = begin; t < end; ++t) {
    const double a = std::sin(.2 * t) + .1 * std::sin(1.3 * t * t);
    const double b = 50 + std::cos(.2 * t);
    text += "d" + std::to_string(t) + "," + (t % 17 == 5 ? "" : std::to_string(a)) + ",\"x, y\"," +
            (t % 23 == 7 ? "NA" : std::to_string(b)) + "\n";
  }
  return text;
}

ForecastOptions Options() {
  ForecastOptions options{.columns = {"a", "b"}, .lags = 6, .horizon = 2, .season = 31};
  for (const char* text : {"weighted_rls{decay: .98}", "gated_deltanet", "comba",
                           "nadaraya_watson{window: 32, bandwidth: 0.1}", "titans"}) {
    options.memories.push_back({text, ParseRecipe(text)});
  }
  return options;
}

std::string RunTable(ForecastRun& run, const std::string& text, std::int64_t block,
                     ForecastTail* tail = nullptr) {
  std::istringstream in(text);
  TableReader table(in, "test", {.columns = {"a", "b"}});
  std::string out;
  ForecastTail last =
      ForecastTable(table, run, {.block = block}, [&](std::string_view line) { out += line; });
  if (tail != nullptr) *tail = last;
  return out;
}

// The axis of the last rows in the chart of a table of two columns, times and `a`.
report::Axis AxisOf(const std::string& text, bool by_times) {
  const TableOptions columns{.columns = {"a"}};
  std::istringstream before(text), in(text);
  TableReader reader(before, "test", columns);
  std::vector<TableRow> first;
  for (TableRow row; reader.Next(row);) first.push_back(row);
  RowClock clock(reader, first, "");
  ForecastOptions options{.columns = {"a"}, .lags = 2};
  options.memories.push_back({"rls", ParseRecipe("rls")});
  ForecastRun run(options);
  TableReader table(in, "test", columns);
  const ForecastTail tail =
      ForecastTable(table, run, {.clock = by_times ? &clock : nullptr}, [](std::string_view) {});
  return ForecastChart(run, options, tail).panels.front().x;
}

TEST(ForecastTable, ChartsShowTheTimesOfRows) {
  std::string months = "month,a\n", days = "day,a\n";
  for (int t = 0; t < 60; ++t) {
    months += fmt::format("{}-{:02},{}\n", 2000 + t / 12, t % 12 + 1, t * t % 7);
  }
  for (int t = 0; t < 20; ++t) days += fmt::format("{:02}.05.2001,{}\n", t + 1, t * t % 7);
  const report::Axis years = AxisOf(months, true);
  EXPECT_EQ(years.label, "month");
  ASSERT_EQ(years.ticks.size(), 4u);  // where a year begins
  EXPECT_EQ(years.ticks[0].label, "2001");
  EXPECT_EQ(years.ticks[0].at, 13);
  const report::Axis even = AxisOf(days, true);
  ASSERT_EQ(even.ticks.size(), 3u);
  EXPECT_EQ(even.ticks[0].label, "04.05.2001");
  EXPECT_EQ(even.ticks[0].at, 4);
  const report::Axis numbers = AxisOf(days, false);
  EXPECT_EQ(numbers.label, "row");
  EXPECT_TRUE(numbers.ticks.empty());
}

TEST(ForecastTable, OwnFieldsFirstThenEveryMethodOfEveryColumn) {
  ForecastRun run(Options());
  const std::string out = RunTable(run, kHeader + Body(0, 60), 512);
  EXPECT_EQ(out.substr(0, out.find('\n')),
            "date,a,note,b,a naive,a seasonal_naive,a weighted_rls{decay: .98},a gated_deltanet,"
            "a comba,\"a nadaraya_watson{window: 32, bandwidth: 0.1}\",a titans,b naive,"
            "b seasonal_naive,b weighted_rls{decay: .98},b gated_deltanet,b comba,"
            "\"b nadaraya_watson{window: 32, bandwidth: 0.1}\",b titans");
  EXPECT_EQ(std::count(out.begin(), out.end(), '\n'), 61);
  EXPECT_NE(out.find("\nd0,0.000000,\"x, y\",51.000000,,,,,,,,,,,,,,\n"), std::string::npos) << out;
  // A row without values has forecasts all the same.
  const std::size_t missing = out.find("\nd56,,");
  ASSERT_NE(missing, std::string::npos);
  const std::string line = out.substr(missing + 1, out.find('\n', missing + 1) - missing - 1);
  EXPECT_EQ(line.find(",,", line.find("x, y")), std::string::npos) << line;
}

TEST(ForecastTable, BlocksChangeNothing) {
  const std::string text = kHeader + Body(0, 200);
  ForecastRun whole(Options()), live(Options()), pieces(Options());
  const std::string out = RunTable(whole, text, 512);
  EXPECT_EQ(out, RunTable(live, text, 1));
  EXPECT_EQ(out, RunTable(pieces, text, 7));
}

TEST(ForecastTable, StoppedAndResumedIsOneRun) {
  const report::TemporaryFolder folder;
  ForecastRun whole(Options());
  const std::string out = RunTable(whole, kHeader + Body(0, 200), 512);
  for (const int cut : {1, 3, 7, 8, 50, 124}) {
    ForecastRun first(Options());
    std::string joined = RunTable(first, kHeader + Body(0, cut), 512);
    first.Save(folder / "m");
    ForecastRun second(Options());
    second.Resume(folder / "m");
    const std::string rest = RunTable(second, kHeader + Body(cut, 200), 512);
    joined += rest.substr(rest.find('\n') + 1);
    EXPECT_EQ(joined, out) << cut;
  }
}

ForecastOptions WithIntervals() {
  ForecastOptions options = Options();
  options.interval = .9;
  options.interval_decay = .97;
  return options;
}

// The fields of a line that holds no quotes.
std::vector<std::string> Fields(const std::string& line) {
  std::vector<std::string> fields(1);
  for (const char c : line) {
    if (c == ',') {
      fields.emplace_back();
    } else {
      fields.back() += c;
    }
  }
  return fields;
}

TEST(ForecastTable, IntervalsStandBesideEveryMemory) {
  ForecastOptions options{.columns = {"x"}, .lags = 2, .season = 7, .interval = .8};
  options.memories = {{"rls", ParseRecipe("rls")}, {"nlms", ParseRecipe("nlms")}};
  ForecastRun run(options);
  std::string text = "x\n";
  for (int t = 0; t < 50; ++t) text += std::to_string(std::sin(t * t)) + "\n";
  std::istringstream in(text);
  TableReader table(in, "test", {.columns = {"x"}});
  std::vector<std::vector<std::string>> rows;
  const ForecastTail tail = ForecastTable(table, run, {.block = 1}, [&](std::string_view line) {
    rows.push_back(Fields(std::string(line.substr(0, line.size() - 1))));
  });
  const std::vector<std::string> header = {"x",    "naive",      "seasonal_naive",
                                           "rls",  "rls.lower",  "rls.upper",
                                           "nlms", "nlms.lower", "nlms.upper"};
  EXPECT_EQ(rows[0], header);
  int inside = 0, count = 0;
  double width = 0;
  for (std::size_t t = 1; t < rows.size(); ++t) {
    const auto& row = rows[t];
    ASSERT_EQ(row.size(), header.size());
    // Two rows of the first window, four skipped, one to know; written as t counts from 1.
    const bool has = t >= 8;
    EXPECT_EQ(row[4].empty(), !has) << t;
    if (!has) continue;
    const double x = std::stod(row[0]), lower = std::stod(row[4]), upper = std::stod(row[5]);
    EXPECT_NEAR((lower + upper) / 2, std::stod(row[3]), 1e-12) << t;
    if (row[2].empty()) continue;  // no row of the errors: the seasonal forecaster has none
    ++count;
    width += upper - lower;
    if (lower <= x && x <= upper) ++inside;
  }
  const auto errors = run.Errors();
  EXPECT_TRUE(std::isnan(errors[0].coverage));
  EXPECT_EQ(errors[2].coverage, static_cast<double>(inside) / count);
  EXPECT_NEAR(errors[2].width, width / count, 1e-12);
  EXPECT_GT(errors[2].loss, 0);
  const report::Table shown = ErrorTable(run, options);
  ASSERT_EQ(shown.columns().size(), 10u);
  EXPECT_EQ(shown.columns()[5].name, "coverage");
  EXPECT_EQ(shown.columns()[9].name, "condition");
  EXPECT_EQ(shown.Shown(1, 5), "");
  EXPECT_NE(shown.Shown(2, 5), "");
  EXPECT_EQ(shown.Shown(2, 8), "48.0");
  EXPECT_EQ(shown.Shown(3, 8), "");
  const report::Chart chart = ForecastChart(run, options, tail);
  EXPECT_EQ(chart.panels[0].series[1].low.size(), 50u);
  EXPECT_NE(report::RenderSvg(chart).find("80 % interval"), std::string::npos);
}

TEST(ForecastTable, WithIntervalsStoppedAndResumedIsOneRun) {
  const report::TemporaryFolder folder;
  ForecastRun whole(WithIntervals()), live(WithIntervals());
  const std::string out = RunTable(whole, kHeader + Body(0, 200), 512);
  EXPECT_EQ(out, RunTable(live, kHeader + Body(0, 200), 1));
  for (const int cut : {1, 8, 20, 40, 124}) {
    ForecastRun first(WithIntervals());
    std::string joined = RunTable(first, kHeader + Body(0, cut), 512);
    first.Save(folder / "m");
    ForecastRun second(WithIntervals());
    second.Resume(folder / "m");
    const std::string rest = RunTable(second, kHeader + Body(cut, 200), 512);
    joined += rest.substr(rest.find('\n') + 1);
    EXPECT_EQ(joined, out) << cut;
    EXPECT_EQ(second.Errors().back().loss, whole.Errors().back().loss) << cut;
  }
  EXPECT_EQ(SavedOptions(folder / "m").interval, .9);
  EXPECT_EQ(SavedOptions(folder / "m").interval_decay, .97);
}

TEST(ForecastTable, IntervalsChangeNoForecast) {
  ForecastOptions with{.columns = {"a", "b"}, .lags = 4};
  with.memories = {{"rls", ParseRecipe("rls")}};
  const ForecastOptions without = with;
  with.interval = .5;
  ForecastRun one(with), other(without);
  std::istringstream a(RunTable(one, kHeader + Body(0, 80), 512));
  std::istringstream b(RunTable(other, kHeader + Body(0, 80), 512));
  std::string line, plain;
  while (std::getline(a, line)) {
    ASSERT_TRUE(std::getline(b, plain));
    auto fields = Fields(line);  // "x, y" makes two
    const bool header = fields[0] == "date";
    const std::ptrdiff_t first = (header ? 4 : 5) + 2;
    fields.erase(fields.begin() + first + 4, fields.begin() + first + 6);
    fields.erase(fields.begin() + first, fields.begin() + first + 2);
    EXPECT_EQ(fields, Fields(plain));
  }
}

TEST(ForecastTable, OneMemoryIsAPlainSavedMemory) {
  const report::TemporaryFolder folder;
  ForecastOptions options = Options();
  options.memories.resize(1);
  ForecastRun run(options);
  RunTable(run, kHeader + Body(0, 100), 512);
  run.Save(folder / "m");
  std::map<std::string, std::string> extra;
  const AssociativeMemory memory = AssociativeMemory::Load(folder / "m", &extra);
  EXPECT_EQ(memory.sizes().key_dim, 12);
  EXPECT_GT(memory.count(), 80);
  EXPECT_TRUE(extra.contains("forecast"));
  const ForecastOptions saved = SavedOptions(folder / "m");
  EXPECT_EQ(saved.columns, options.columns);
  EXPECT_EQ(saved.memories[0].text, options.memories[0].text);
}

TEST(ForecastTable, ResumeRefusesByName) {
  const report::TemporaryFolder folder;
  ForecastRun run(Options());
  RunTable(run, kHeader + Body(0, 100), 512);
  run.Save(folder / "m");
  const auto message = [&](auto change) -> std::string {
    ForecastOptions options = Options();
    change(options);
    try {
      ForecastRun(options).Resume(folder / "m");
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  const auto starts = [](const std::string& text, const std::string& with) {
    return text.starts_with(with) ? "" : text;
  };
  EXPECT_EQ(message([](ForecastOptions&) {}), "");
  EXPECT_EQ(starts(message([](ForecastOptions& o) { o.lags = 7; }), "[resume] lags must be 6"), "");
  EXPECT_EQ(starts(message([](ForecastOptions& o) { o.columns = {"a", "c"}; }),
                   "[resume] columns must be [\"a\",\"b\"]"),
            "");
  EXPECT_EQ(starts(message([](ForecastOptions& o) { o.horizon = 1; }), "[resume] horizon"), "");
  EXPECT_EQ(starts(message([](ForecastOptions& o) { o.season = 0; }), "[resume] season"), "");
  EXPECT_EQ(starts(message([](ForecastOptions& o) { o.gates.step = 1; }), "[resume] step"), "");
  EXPECT_EQ(starts(message([](ForecastOptions& o) { o.memories.pop_back(); }), "[resume] memories"),
            "");
  EXPECT_EQ(starts(message([](ForecastOptions& o) { o.interval = .5; }),
                   "[resume] interval must be absent as in"),
            "");
  ForecastRun with(WithIntervals());
  RunTable(with, kHeader + Body(0, 100), 512);
  with.Save(folder / "m");
  EXPECT_EQ(starts(message([](ForecastOptions&) {}), "[resume] interval must be 0.9 as in"), "");
  EXPECT_EQ(starts(message([](ForecastOptions& o) { o.interval = .9; }),
                   "[resume] interval_decay must be 0.97 as in"),
            "");
  EXPECT_EQ(message([](ForecastOptions& o) { o = WithIntervals(); }), "");
  run.Save(folder / "m");

  // A damaged file: any cut of it, and a file that is something else.
  const std::string content = report::ReadAll(folder / "m");
  for (const std::size_t size : {0ul, 7ul, 100ul, content.size() / 2, content.size() - 1}) {
    ttr::report::WriteFile(folder / "cut", content.substr(0, size));
    ForecastRun again(Options());
    EXPECT_THROW(again.Resume(folder / "cut"), Error) << size;
  }
  AssociativeMemory("rls", {}).Save(folder / "other");
  ForecastRun again(Options());
  EXPECT_THROW(again.Resume(folder / "other"), Error);
}

TEST(ForecastTable, RefusesColumnsOfTheForecastsNames) {
  std::istringstream in("x,naive\n1,2\n");
  TableReader table(in, "test", {.columns = {"x"}});
  ForecastRun run({.columns = {"x"}});
  EXPECT_THROW(ForecastTable(table, run, {}, [](std::string_view) {}), Error);
  ForecastOptions twice{.columns = {"x"}};
  twice.memories = {{"rls", ParseRecipe("rls")}, {"rls", ParseRecipe("rls")}};
  EXPECT_THROW(ForecastRun{twice}, Error);
}

TEST(ForecastTable, ErrorsAreThoseOfTheForecasts) {
  ForecastRun run({.columns = {"x"}, .lags = 2});
  std::istringstream in("x\n1\n3\nNA\n6\n4\n");
  TableReader table(in, "test", {.columns = {"x"}});
  ForecastTable(table, run, {}, [](std::string_view) {});
  const auto errors = run.Errors();  // naive: 3 - 1, 6 - 3, 4 - 6
  ASSERT_EQ(errors.size(), 1u);
  EXPECT_EQ(errors[0].rows, 3);
  EXPECT_DOUBLE_EQ(errors[0].mean_absolute, 7. / 3);
  EXPECT_DOUBLE_EQ(errors[0].root_mean_square, std::sqrt(17. / 3));
  EXPECT_DOUBLE_EQ(errors[0].relative, 1);
}

TEST(ForecastTable, CarbonDioxideIsForecastBetterThanNaively) {
  ForecastOptions options{.columns = {"co2"}, .lags = 52, .season = 52};
  for (const char* text : {"rls", "weighted_rls{decay: 0.998}"}) {
    options.memories.push_back({text, ParseRecipe(text)});
  }
  ForecastRun run(options);
  Input input(TTR_SOURCE_DIR "/data/co2_weekly.csv");
  TableReader table(input.stream(), input.name(), {.columns = {"co2"}});
  ForecastTail tail;
  tail = ForecastTable(table, run, {}, [](std::string_view) {});
  const auto errors = run.Errors();
  EXPECT_GT(errors[0].rows, 2000);
  EXPECT_LT(errors[2].relative, .9);
  EXPECT_LT(errors[2].root_mean_square, .5 * errors[1].root_mean_square);
  EXPECT_EQ(tail.values.size(), ForecastTail::kRows);
  EXPECT_EQ(tail.first_row + static_cast<std::int64_t>(ForecastTail::kRows) - 1, 2284);
  EXPECT_EQ(ErrorTable(run, options).rows().size(), 4u);
  EXPECT_NE(report::RenderSvg(ForecastChart(run, options, tail)).find("rls"), std::string::npos);
}

}  // namespace
}  // namespace ttr::experiments
