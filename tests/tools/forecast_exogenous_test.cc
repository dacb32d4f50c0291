// ttr forecast with columns that are known before their rows.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "experiments/report/table.h"
#include "tests/tools/command.h"
#include "ttr/forecast.h"
#include "ttr/recipe.h"

namespace ttr::test {
namespace {

constexpr int kRows = 700;  // of more than a block
constexpr int kAhead = 5;

double Sun(int t) { return std::sin(3.7 * t) + std::cos(11.3 * t * t); }
double Open(int t) { return t % 7 == 5 ? 1 : 0; }
double Sales(int t) { return 50 + 3 * Sun(t) + 20 * Open(t) + .1 * std::sin(1.7 * t * t); }

// Rows first .. end - 1, with an id where there is one; without their values those of --future.
std::string Lines(const std::string& id, int first, int end, bool values) {
  std::string text;
  for (int t = first; t < end; ++t) {
    text += id.empty() ? "" : id + ",";
    text += fmt::format("{},", t);
    if (values) text += report::ExactReal(Sales(t)) + ",";
    text += fmt::format("{},{}\n", report::ExactReal(Sun(t)), Open(t));
  }
  return text;
}

const std::string kHeader = "t,sales,sun,open\n", kFuture = "t,sun,open\n";
const std::vector<std::string> kOptions = {
    "--column",        "sales",      "--exogenous", "sun",     "--exogenous", "open",
    "--lags",          "8",          "--log",       "--ahead", "5",           "--memory",
    "rls{ridge: 0.1}", "--interval", "0.9",         "--quiet"};

Outcome Forecast(const std::string& table, std::vector<std::string> more,
                 const std::vector<std::string>& options = kOptions) {
  more.insert(more.begin(), {"forecast", table});
  more.insert(more.end(), options.begin(), options.end());
  return Ttr(more);
}

TEST(ForecastExogenous, IsThatOfTheLibrary) {
  const TemporaryFolder folder;
  Write(folder / "t.csv", kHeader + Lines("", 0, kRows, true));
  Write(folder / "f.csv", kFuture + Lines("", kRows, kRows + kAhead, false));
  const Outcome run =
      Forecast(folder / "t.csv", {"--future", folder / "f.csv", "--out", folder / "o.csv"});
  ASSERT_EQ(run.code, 0) << run.err;

  std::vector<double> known;
  for (int t = 0; t < kRows + kAhead; ++t) known.insert(known.end(), {Sun(t), Open(t)});
  const std::span<const double> own = std::span(known).first(2 * kRows);
  Forecaster forecaster(
      ParseRecipe("rls{ridge: 0.1}"),
      {.lags = 8, .logarithm = true, .exogenous = 2, .ahead = kAhead, .interval = .9});
  std::vector<double> made(1), forecasts(kAhead), margins(kAhead);
  const auto rows = Fields(ReadAll(folder / "o.csv"));
  ASSERT_EQ(rows.size(), 1u + kRows + kAhead);
  for (int t = 0; t < kRows; ++t) {
    const double row = Sales(t);
    const bool there = forecaster.Next({&row, 1}, made, {}, own.subspan(2 * t));
    ASSERT_EQ(rows[1 + t][5], there ? report::ExactReal(made[0]) : "") << t;
  }
  ASSERT_TRUE(forecaster.Ahead(forecasts, margins, std::span(known).subspan(2 * kRows)));
  for (int k = 0; k < kAhead; ++k) {
    const Interval bounds = forecaster.IntervalOf(forecasts[k], margins[k]);
    EXPECT_EQ(rows[1 + kRows + k][5], report::ExactReal(forecasts[k])) << k;
    EXPECT_EQ(rows[1 + kRows + k][6], report::ExactReal(bounds.lower)) << k;
    EXPECT_EQ(rows[1 + kRows + k][7], report::ExactReal(bounds.upper)) << k;
    EXPECT_NEAR(forecasts[k], Sales(kRows + k), 1);
  }
}

TEST(ForecastExogenous, EverySeriesIsForecastAsIfAlone) {
  const TemporaryFolder folder;
  const int end = kRows + kAhead;
  Write(folder / "panel.csv",
        "shop," + kHeader + Lines("x", 0, kRows, true) + Lines("y", 300, kRows, true));
  Write(folder / "later.csv",
        "shop," + kFuture + Lines("y", kRows, end + 3, false) + Lines("x", kRows, end, false));
  Write(folder / "f.csv", kFuture + Lines("", kRows, end, false));
  const Outcome panel = Forecast(
      folder / "panel.csv",
      {"--future", folder / "later.csv", "--by", "shop", "--time", "t", "--out", folder / "p.csv"});
  ASSERT_EQ(panel.code, 0) << panel.err;
  std::vector<std::vector<std::string>> expected;
  for (const int first : {0, 300}) {
    Write(folder / "t.csv", kHeader + Lines("", first, kRows, true));
    ASSERT_EQ(
        Forecast(folder / "t.csv", {"--future", folder / "f.csv", "--out", folder / "o.csv"}).code,
        0);
    auto rows = Fields(ReadAll(folder / "o.csv"));
    rows.erase(rows.begin());
    for (auto& row : rows) row.insert(row.begin(), first == 0 ? "x" : "y");
    // Rows to come stand behind those of all series.
    const auto place = expected.begin() + (first == 0 ? 0 : kRows);
    expected.insert(first == 0 ? expected.begin() : place, rows.begin(), rows.end() - kAhead);
    expected.insert(expected.end(), rows.end() - kAhead, rows.end());
  }
  auto rows = Fields(ReadAll(folder / "p.csv"));
  rows.erase(rows.begin());
  EXPECT_EQ(rows, expected);
}

// Both tables are read by one rule, and so is the one in which a column of numbers is looked for.
TEST(ForecastExogenous, HasDecimalCommas) {
  const TemporaryFolder folder;
  const auto with_commas = [](std::string text) {
    std::ranges::replace(text, ',', ';');
    std::ranges::replace(text, '.', ',');
    return text;
  };
  const std::string table = kHeader + Lines("", 0, 90, true);
  const std::string future = kFuture + Lines("", 90, 90 + kAhead, false);
  Write(folder / "t.csv", table);
  Write(folder / "f.csv", future);
  Write(folder / "commas.csv", with_commas(table));
  Write(folder / "later.csv", with_commas(future));
  Forecast(folder / "t.csv", {"--future", folder / "f.csv", "--out", folder / "o.csv"});
  std::vector<std::string> no_column(kOptions.begin() + 2, kOptions.end());
  no_column.insert(no_column.end(), {"--time", "t", "--separator", ";", "--decimal", ","});
  const Outcome run =
      Forecast(folder / "commas.csv", {"--future", folder / "later.csv", "--out", folder / "c.csv"},
               no_column);
  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_EQ(ReadAll(folder / "c.csv"), ReadAll(folder / "o.csv"));
}

TEST(ForecastExogenous, RunsGoOn) {
  const TemporaryFolder folder;
  Write(folder / "t.csv", kHeader + Lines("", 0, kRows, true));
  Write(folder / "a.csv", kHeader + Lines("", 0, 300, true));
  Write(folder / "b.csv", kHeader + Lines("", 300, kRows, true));
  Write(folder / "near.csv", kFuture + Lines("", 300, 300 + kAhead, false));
  Write(folder / "f.csv", kFuture + Lines("", kRows, kRows + kAhead, false));
  const auto forecasts = [&](const std::string& out) {
    std::vector<std::string> made;
    for (const auto& fields : Fields(ReadAll(folder / out.c_str()))) made.push_back(fields[5]);
    return made;
  };
  Forecast(folder / "t.csv", {"--future", folder / "f.csv", "--out", folder / "whole.csv"});
  Forecast(folder / "a.csv", {"--future", folder / "near.csv", "--save", folder / "m"});
  const Outcome run = Forecast(
      folder / "b.csv",
      {"--future", folder / "f.csv", "--resume", folder / "m", "--out", folder / "part.csv"},
      {"--quiet"});
  ASSERT_EQ(run.code, 0) << run.err;
  auto whole = forecasts("whole.csv"), part = forecasts("part.csv");
  whole.erase(whole.begin() + 1, whole.begin() + 301);
  EXPECT_EQ(part, whole);
}

TEST(ForecastExogenous, WhatIsNotKnownIsRefused) {
  const TemporaryFolder folder;
  Write(folder / "t.csv", kHeader + Lines("", 0, 40, true) + "40,1,,0\n");
  Write(folder / "f.csv", kFuture + Lines("", 41, 43, false));
  Write(folder / "p.csv", "shop," + kHeader + Lines("x", 0, 40, true));
  Write(folder / "g.csv", "shop," + kFuture + Lines("x", 41, 43, false));
  const auto refused = [&](const char* table, std::vector<std::string> more,
                           const std::string& text) {
    for (std::string& word : more) {
      if (word.ends_with(".csv")) word = folder / word.c_str();
    }
    const Outcome run = Forecast(folder / table, more,
                                 {"--column", "sales", "--exogenous", "sun", "--lags", "3",
                                  "--memory", "rls", "--out", folder / "o.csv"});
    return NoRefusal(run, 2, text);
  };
  const std::vector<std::string> ahead = {"--ahead", "2", "--future", "f.csv"};
  EXPECT_EQ(refused("t.csv", ahead, "line 42 column 'sun' must be known in every row"), "");
  EXPECT_EQ(refused("t.csv", {"--ahead", "2"}, "--future must be given with --exogenous"), "");
  EXPECT_EQ(refused("t.csv", {"--future", "f.csv"}, "--future must be given with"), "");
  EXPECT_EQ(refused("t.csv", {"--ahead", "3", "--future", "f.csv"}, "but is of 2"), "");
  EXPECT_EQ(refused("t.csv", {"--exogenous", "sales"}, "another column than all others"), "");
  EXPECT_EQ(refused("p.csv", {"--by", "shop", "--ahead", "2", "--future", "g.csv"},
                    "--time must be given with --by and --future"),
            "");
  EXPECT_EQ(refused("p.csv", {"--by", "shop", "--time", "t", "--ahead", "2", "--future", "g.csv"},
                    "--future must be a row of 'x' at '40' but is without one"),
            "");
  Write(folder / "t.csv", kHeader + Lines("", 0, 40, true));
  EXPECT_EQ(refused("t.csv", ahead, "line 2 column 't' of"), "") << "of another time";
  EXPECT_FALSE(std::filesystem::exists(folder / "o.csv"));
}

}  // namespace
}  // namespace ttr::test
