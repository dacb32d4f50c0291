// Rows beyond the end of a table: within the horizon, beyond it, and their intervals.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "experiments/real/forecast.h"
#include "tests/experiments/real_series.h"
#include "tests/experiments/report_support.h"
#include "ttr/error.h"
#include "ttr/forecast.h"
#include "ttr/zoo.h"

namespace ttr::experiments {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

struct Rows {
  std::vector<double> forecasts, margins;
};

Rows Ahead(Forecaster& forecaster, std::int64_t rows) {
  Rows ahead{std::vector<double>(rows), std::vector<double>(rows)};
  EXPECT_TRUE(forecaster.Ahead(ahead.forecasts, ahead.margins));
  return ahead;
}

// The forecasts of these rows, as they come.
Rows Read(Forecaster& forecaster, const std::vector<double>& rows) {
  Rows read{std::vector<double>(rows.size()), std::vector<double>(rows.size())};
  for (std::size_t t = 0; t < rows.size(); ++t) {
    forecaster.Next({&rows[t], 1}, {&read.forecasts[t], 1}, {&read.margins[t], 1});
  }
  return read;
}

TEST(Future, UpToTheHorizonAreTheForecastsThatTheRowsGet) {
  const auto rows = Autoregressive(120, .3);
  Forecaster forecaster = Make("rls", {.lags = 3, .horizon = 4, .ahead = 4, .interval = .9});
  Read(forecaster, {rows.begin(), rows.begin() + 100});
  const Rows ahead = Ahead(forecaster, 4);
  const Rows came = Read(forecaster, {rows.begin() + 100, rows.begin() + 104});
  EXPECT_EQ(ahead.forecasts, came.forecasts);
  EXPECT_EQ(ahead.margins, came.margins);
}

TEST(Future, BeyondTheHorizonForecastsStandInForRows) {
  const auto rows = Autoregressive(100, .3);
  Forecaster forecaster = Make("rls", {.lags = 2, .horizon = 1, .ahead = 5, .units = Units::kRaw});
  Read(forecaster, rows);
  const auto forecasts = Ahead(forecaster, 5).forecasts;
  AssociativeMemory memory = forecaster.memory();
  double before = rows[98], last = rows[99];
  for (const double forecast : forecasts) {
    const std::vector<double> window = {last, before};
    std::vector<double> answer(1);
    memory.Retrieve(window, answer);
    EXPECT_EQ(forecast, answer[0]);
    before = last, last = forecast;
  }
}

// What reads missing rows says the same, as long as it takes forecasts in their places.
TEST(Future, AreTheForecastsOfMissingRows) {
  const auto rows = Autoregressive(100, .3);
  for (const std::int64_t horizon : {1, 3}) {
    Forecaster forecaster = Make("nlms", {.lags = 6, .horizon = horizon, .ahead = 6 + horizon});
    Read(forecaster, rows);
    const auto ahead = Ahead(forecaster, 6 + horizon).forecasts;
    EXPECT_EQ(ahead, Read(forecaster, std::vector<double>(6 + horizon, kNaN)).forecasts) << horizon;
  }
}

TEST(Future, OfEveryLayerThatForecastsAndNothingElseChanges) {
  const auto rows = Autoregressive(60, .3);
  int layers = 0;
  for (const ZooEntry& entry : Zoo()) {
    const ForecasterOptions without{.lags = 3, .horizon = 2, .interval = .9};
    ForecasterOptions with = without;
    with.ahead = 7;
    try {
      Make(std::string(entry.name).c_str(), with);
    } catch (const Error&) {
      continue;
    }
    ++layers;
    Forecaster plain = Make(std::string(entry.name).c_str(), without);
    Forecaster forecaster = Make(std::string(entry.name).c_str(), with);
    EXPECT_EQ(Read(plain, {rows.begin(), rows.begin() + 50}).forecasts.back(),
              Read(forecaster, {rows.begin(), rows.begin() + 50}).forecasts.back())
        << entry.name;
    const Rows ahead = Ahead(forecaster, 7);
    for (const double forecast : ahead.forecasts)
      EXPECT_TRUE(std::isfinite(forecast)) << entry.name;
    for (const double margin : ahead.margins) EXPECT_GT(margin, 0) << entry.name;
    EXPECT_EQ(Read(plain, {rows.begin() + 50, rows.end()}).forecasts,
              Read(forecaster, {rows.begin() + 50, rows.end()}).forecasts)
        << entry.name;
  }
  EXPECT_GT(layers, 40);
}

TEST(Future, BeforeThereWereRowsEnoughIsNone) {
  Forecaster forecaster = Make("rls", {.lags = 3, .horizon = 2, .ahead = 3});
  std::vector<double> forecasts(3), margins(3);
  for (int rows = 1; rows <= 5; ++rows) {
    const double x = rows;
    double forecast = 0;
    forecaster.Next({&x, 1}, {&forecast, 1});
    EXPECT_EQ(forecaster.Ahead(forecasts, margins), rows >= 4) << rows;
  }
  for (const std::int64_t ahead : {-1, 10'001}) {
    EXPECT_THROW(Make("rls", {.lags = 3, .ahead = ahead}), Error);
  }
}

TEST(Future, IntervalsCoverAtTheirLevelAndWidenAsErrorsDo) {
  constexpr std::int64_t kAhead = 8, kRows = 6000, kBegin = 1500;
  const auto rows = Autoregressive(kRows + kAhead, .3);
  Forecaster forecaster =
      Make("rls{ridge: 0.1}", {.lags = 2, .ahead = kAhead, .units = Units::kRaw, .interval = .8});
  std::vector<std::int64_t> inside(kAhead);
  std::int64_t asked = 0;
  std::vector<double> forecasts(kAhead), margins(kAhead);
  for (std::int64_t t = 0; t < kRows; ++t) {
    double forecast = 0;
    forecaster.Next({&rows[t], 1}, {&forecast, 1});
    if (t < kBegin || t % kAhead != 0) continue;
    ++asked;
    forecaster.Ahead(forecasts, margins);
    for (std::int64_t k = 0; k < kAhead; ++k) {
      inside[k] += std::abs(rows[t + 1 + k] - forecasts[k]) <= margins[k] ? 1 : 0;
    }
  }
  // The errors k rows ahead of x_t = 1.6 x_{t-1} - .8 x_{t-2} + noise have the noise's variance
  // times the sum of the squares of its first k moving-average weights.
  double before = 0, weight = 1, variance = 0;
  for (std::int64_t k = 0; k < kAhead; ++k) {
    variance += weight * weight;
    const double next = 1.6 * weight - .8 * before;
    before = weight, weight = next;
    const auto count = static_cast<double>(asked);
    EXPECT_NEAR(static_cast<double>(inside[k]) / count, .8, 3.5 * std::sqrt(.8 * .2 / count)) << k;
    EXPECT_NEAR(margins[k] / (1.2816 * .3 * std::sqrt(variance)), 1, .08) << k;
  }
}

TEST(Future, FarAheadPathsBeginAtEveryFewRows) {
  const auto rows = Autoregressive(3000, .3);
  Forecaster forecaster =
      Make("rls{ridge: 0.1}", {.lags = 2, .ahead = 200, .units = Units::kRaw, .interval = .8});
  Read(forecaster, rows);
  const Rows ahead = Ahead(forecaster, 200);
  // What is far ahead is known as well as the series itself.
  double squares = 0;
  for (const double x : rows) squares += x * x;
  const double deviation = std::sqrt(squares / 3000);
  for (std::size_t k = 60; k < 200; ++k) {
    EXPECT_NEAR(ahead.margins[k] / deviation, 1.29, .15) << k;
  }
}

std::vector<double> MarginsAhead(ForecastRun& run, std::int64_t rows) {
  Forecasts forecasts = run.Ahead();
  const auto all = forecasts.Margin(1, 0);
  return {all.data(), all.data() + rows};
}

TEST(Future, StoppedAndResumedIsOneRun) {
  const report::TemporaryFolder folder;
  const auto rows = Autoregressive(200, .3);
  ForecastOptions options{.columns = {"x"}, .lags = 3, .ahead = 6, .interval = .9};
  options.memories = {{"rls", ParseRecipe("rls")}};
  ForecastRun whole(options), first(options), second(options);
  whole.Next(rows);
  first.Next({rows.data(), 117});
  first.Save(folder / "m");
  second.Resume(folder / "m");
  second.Next({rows.data() + 117, 83});
  Forecasts one = whole.Ahead(), two = second.Ahead();
  for (std::int64_t k = 0; k < 6; ++k) {
    EXPECT_EQ(one.At(1, k)[0], two.At(1, k)[0]);
    EXPECT_EQ(one.Margin(1, k)[0], two.Margin(1, k)[0]);
  }
  EXPECT_EQ(SavedOptions(folder / "m").ahead, 6);

  // As many rows as one likes: what is further than the horizon is measured anew.
  ForecastOptions other = options;
  other.ahead = 9;
  ForecastRun third(other);
  third.Resume(folder / "m");
  third.Next({rows.data() + 117, 3});
  EXPECT_TRUE(std::isnan(MarginsAhead(third, 9)[8]));
  EXPECT_FALSE(std::isnan(MarginsAhead(third, 9)[0]));
  third.Next({rows.data() + 120, 80});
  EXPECT_FALSE(std::isnan(MarginsAhead(third, 9)[8]));
}

}  // namespace
}  // namespace ttr::experiments
