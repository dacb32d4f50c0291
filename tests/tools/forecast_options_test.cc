// Options of ttr forecast: what the memories read, folders, absent rows, warnings.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "experiments/report/table.h"
#include "tests/tools/command.h"
#include "ttr/forecast.h"
#include "ttr/recipe.h"

namespace ttr::test {
namespace {

std::vector<double> Seasons(int rows) {
  std::vector<double> x;
  for (int t = 0; t < rows; ++t) {
    x.push_back(100 * std::exp(.01 * t) * (1 + .3 * std::sin(.52 * t)) + std::cos(7.1 * t));
  }
  return x;
}

std::string Csv(const std::vector<double>& x) {
  std::string text = "x\n";
  for (const double value : x) text += report::ExactReal(value) + "\n";
  return text;
}

// From this row on, numbered.
std::string Numbered(const std::vector<double>& x, std::size_t begin, std::size_t end) {
  std::string text = "t,x\n";
  for (std::size_t t = begin; t < end; ++t) {
    text += std::to_string(t) + "," + report::ExactReal(x[t]) + "\n";
  }
  return text;
}

// Forecasts and bounds of the rows to come, by the command and by the library.
void ExpectThoseOfTheLibrary(const std::vector<std::string>& options,
                             const ForecasterOptions& library) {
  const TemporaryFolder folder;
  const std::vector<double> x = Seasons(150);
  Write(folder / "t.csv", Csv(x));
  std::vector<std::string> call = {
      "forecast",        folder / "t.csv", "--column", "x",          "--memory",
      "rls{ridge: 0.1}", "--ahead",        "6",        "--interval", "0.9",
      "--out",           folder / "f.csv"};
  call.insert(call.end(), options.begin(), options.end());
  const Outcome run = Ttr(call);
  ASSERT_EQ(run.code, 0) << run.err;
  Forecaster forecaster(ParseRecipe("rls{ridge: 0.1}"), library);
  std::vector<double> forecast(1), forecasts(6), margins(6);
  for (const double value : x) forecaster.Next({&value, 1}, forecast);
  ASSERT_TRUE(forecaster.Ahead(forecasts, margins));
  const auto rows = Fields(ReadAll(folder / "f.csv"));
  ASSERT_EQ(rows.size(), 157u);
  for (std::size_t k = 0; k < 6; ++k) {
    const Interval bounds = forecaster.IntervalOf(forecasts[k], margins[k]);
    const auto& fields = rows[151 + k];
    EXPECT_EQ(std::stod(fields[2]), forecasts[k]) << k;
    EXPECT_EQ(std::stod(fields[3]), bounds.lower) << k;
    EXPECT_EQ(std::stod(fields[4]), bounds.upper) << k;
    EXPECT_LT(bounds.lower, forecasts[k]);
  }
}

TEST(ForecastOptions, AreThoseOfTheLibrary) {
  ExpectThoseOfTheLibrary(
      {"--lags", "1,12,13", "--log"},
      {.lags = 13, .sparse_lags = {1, 12, 13}, .logarithm = true, .ahead = 6, .interval = .9});
  ExpectThoseOfTheLibrary({"--lags", "4", "--differences", "1,12"},
                          {.lags = 4, .differences = {1, 12}, .ahead = 6, .interval = .9});
  ExpectThoseOfTheLibrary(
      {"--lags", "13", "--horizon", "6", "--strategy", "direct", "--interval-kind", "conformal"},
      {.lags = 13,
       .horizon = 6,
       .strategy = Strategy::kDirect,
       .ahead = 6,
       .interval = .9,
       .conformal = 250});
  ExpectThoseOfTheLibrary(
      {"--lags", "13", "--horizon", "4", "--strategy", "combined"},
      {.lags = 13, .horizon = 4, .strategy = Strategy::kCombined, .ahead = 6, .interval = .9});
}

class ForecastStrategies : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(All, ForecastStrategies, testing::Values("direct", "combined"));

TEST_P(ForecastStrategies, StopAndResumeChangeNothing) {
  const TemporaryFolder folder;
  const std::vector<double> x = Seasons(160);
  Write(folder / "all.csv", Numbered(x, 0, 160));
  Write(folder / "a.csv", Numbered(x, 0, 90));
  Write(folder / "b.csv", Numbered(x, 90, 160));
  const std::vector<std::string> options = {
      "--column",        "x",         "--lags",     "1,2,12",   "--log",
      "--horizon",       "3",         "--strategy", GetParam(), "--interval",
      "--interval-kind", "conformal", "--memory",   "rls",      "--quiet"};
  const auto forecast = [&](const char* table, const std::vector<std::string>& more, bool chosen) {
    std::vector<std::string> call = {"forecast", folder / table, "--ahead", "5"};
    if (chosen) call.insert(call.end(), options.begin(), options.end());
    call.insert(call.end(), more.begin(), more.end());
    const Outcome run = Ttr(call);
    EXPECT_EQ(run.code, 0) << run.err;
    return run.out;
  };
  forecast("a.csv", {"--save", folder / "m"}, true);
  const std::string whole = forecast("all.csv", {}, true);
  EXPECT_EQ(forecast("b.csv", {"--resume", folder / "m", "--quiet"}, false), whole);
  const Outcome other =
      Ttr({"forecast", folder / "b.csv", "--resume", folder / "m", "--strategy", "recursive"});
  EXPECT_EQ(NoRefusal(other, 2, fmt::format("strategy must be \"{}\"", GetParam())), "");
}

TEST(ForecastOptions, BadOnesAreRefused) {
  const TemporaryFolder folder;
  Write(folder / "t.csv", "x\n1\n2\n-3\n4\n5\n6\n7\n8\n9\n");
  const auto refused = [&](const std::vector<std::string>& more, const std::string& text) {
    std::vector<std::string> call = {"forecast", folder / "t.csv", "--column",
                                     "x",        "--memory",       "rls"};
    call.insert(call.end(), more.begin(), more.end());
    return NoRefusal(Ttr(call), 2, text);
  };
  EXPECT_EQ(refused({"--lags", "2", "--log", "--out", folder / "f.csv"},
                    "column 'x' must be above 0 in every row (--log) but is -3 in row 3"),
            "");
  EXPECT_EQ(refused({"--lags", "2", "--strategy", "direct", "--horizon", "1001", "--save", "m"},
                    "horizon must be at most 1000 with a memory for each row"),
            "");
  EXPECT_EQ(refused({"--lags", "3,2"}, "lags must be whole numbers of 1 or more that rise"), "");
  EXPECT_EQ(refused({"--lags", "2", "--differences", "1", "--horizon", "2"},
                    "horizon must be 1 with differences"),
            "");
  EXPECT_EQ(refused({"--lags", "4", "--differences", "12"},
                    "of 17 rows at the least, for one forecast from 4 (--lags, --differences)"),
            "");
  EXPECT_EQ(folder.Count(), 1) << "a refusal leaves nothing behind";
}

TEST(ForecastFolder, HasTablesAndPictures) {
  const TemporaryFolder folder;
  Write(folder / "t.csv", Csv(Seasons(150)));
  const std::vector<std::string> call = {
      "forecast",   folder / "t.csv", "--column",        "x",       "--lags",
      "12",         "--memory",       "rls{ridge: 0.1}", "--ahead", "6",
      "--interval", "--out",          folder / "out/"};
  const Outcome run = Ttr(call);
  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_NE(run.err.find("forecast.csv, errors.csv, ahead.csv, forecast.svg, forecast.png, "
                         "watch.svg, watch.png"),
            std::string::npos)
      << run.err;
  EXPECT_EQ(Fields(ReadAll(folder / "out/forecast.csv")).size(), 157u);
  EXPECT_EQ(Fields(ReadAll(folder / "out/ahead.csv")).size(), 7u);
  EXPECT_NE(ReadAll(folder / "out/watch.svg").find("condition of the fit"), std::string::npos);
  EXPECT_TRUE(ReadAll(folder / "out/forecast.png").starts_with("\x89PNG"));
  // Again, over what is there; but not over a file that is read.
  EXPECT_EQ(Ttr(call).code, 0);
  const Outcome read = Ttr({"forecast", folder / "out/forecast.csv", "--column", "x", "--lags",
                            "12", "--memory", "nlms", "--out", folder / "out/"});
  EXPECT_EQ(NoRefusal(read, 2, "--out must be another file than what TABLE reads"), "");
  EXPECT_EQ(Fields(ReadAll(folder / "out/forecast.csv")).size(), 157u);
}

// Days of two months, without some; or all of them, the value missing where one is left out.
std::string Days(bool whole, const std::string& what = "day,x\n") {
  std::string text = what;
  for (int t = 0; t < 59; ++t) {
    const bool absent = t == 20 || t == 21 || t == 40;
    if (absent && !whole) continue;
    const int day = t < 31 ? t + 1 : t - 30;
    text += std::string(t < 31 ? "2023-01-" : "2023-02-") + (day < 10 ? "0" : "") +
            std::to_string(day) + "," + (absent ? "" : report::ExactReal(std::sin(.4 * t))) + "\n";
  }
  return text;
}

TEST(ForecastTimes, AnAbsentOneIsAMissingRow) {
  const TemporaryFolder folder;
  Write(folder / "gaps.csv", Days(false));
  Write(folder / "whole.csv", Days(true));
  const auto ahead = [&](const char* table, const std::vector<std::string>& more) {
    std::vector<std::string> call = {"forecast", folder / table, "--column", "x", "--lags",    "5",
                                     "--memory", "rls",          "--ahead",  "3", "--interval"};
    call.insert(call.end(), more.begin(), more.end());
    return Ttr(call);
  };
  const Outcome gaps = ahead("gaps.csv", {}), whole = ahead("whole.csv", {});
  ASSERT_EQ(gaps.code, 0) << gaps.err;
  EXPECT_EQ(gaps.out, whole.out);
  EXPECT_NE(gaps.out.find("2023-03-01 "), std::string::npos) << gaps.out;
  EXPECT_NE(gaps.err.find("3 rows are absent by 'day', the first before line 22: missing values"),
            std::string::npos)
      << gaps.err;
  EXPECT_EQ(whole.err.find("absent"), std::string::npos) << whole.err;
  EXPECT_EQ(ahead("gaps.csv", {"--time", "day"}).out, whole.out);
  // Times that do not go on are no silence either.
  Write(folder / "back.csv", Days(false) + "2023-02-03,1\n");
  const Outcome back = ahead("back.csv", {});
  EXPECT_EQ(back.code, 0) << back.err;
  EXPECT_NE(back.err.find("from line 58 on 'day' is uneven: rows follow each other"),
            std::string::npos)
      << back.err;
  EXPECT_EQ(NoRefusal(ahead("back.csv", {"--time", "day", "--out", folder / "f.csv"}), 2,
                      "line 58 column 'day' must be a whole number of steps of 1 day behind"),
            "");
  EXPECT_EQ(NoRefusal(ahead("gaps.csv", {"--time", "x"}), 2,
                      "--time 'x' must be a column of dates or numbers that rise"),
            "");
  EXPECT_EQ(NoRefusal(ahead("gaps.csv", {"--time", "Day"}), 2, "did you mean 'day'?"), "");
}

TEST(ForecastWarnings, OfErrorsThatGrowAndOfIntervalsThatDoNotHold) {
  const auto run = [](const std::string& table, const std::vector<std::string>& more) {
    std::vector<std::string> call = {"forecast", "-",        "--column", "x",
                                     "--lags",   "4",        "--memory", "rls{ridge: 0.1}",
                                     "--out",    "/dev/null"};
    call.insert(call.end(), more.begin(), more.end());
    const Outcome outcome = Ttr(call, table);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.err;
  };
  std::vector<double> steady, wild;
  for (int t = 0; t < 900; ++t) {
    steady.push_back(std::sin(.3 * t) + .2 * std::sin(17.3 * t * t));
    wild.push_back(steady.back() * (t < 600 ? 1 : 30));
  }
  EXPECT_EQ(run(Csv(steady), {"--interval"}).find("drift"), std::string::npos);
  const std::string err = run(Csv(wild), {"--interval"});
  EXPECT_NE(err.find("times those before (drift)"), std::string::npos) << err;
  EXPECT_NE(err.find("were to hold 0.95 of the rows and held 0."), std::string::npos) << err;
  std::vector<double> sine;
  for (int t = 0; t < 400; ++t) sine.push_back(5000 + std::sin(.001 * t));
  const std::string raw =
      run(Csv(sine), {"--units", "raw", "--memory", "rls{factor: qr, ridge: 0.1}"});
  EXPECT_NE(raw.find("which leaves few digits"), std::string::npos) << raw;
  EXPECT_EQ(raw.find("condition of rls{factor: qr"), std::string::npos) << raw;
  EXPECT_EQ(run(Csv(sine), {}).find("digits"), std::string::npos);
}

}  // namespace
}  // namespace ttr::test
