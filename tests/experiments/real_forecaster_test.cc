#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "experiments/real/naive.h"
#include "tests/experiments/real_series.h"
#include "ttr/error.h"
#include "ttr/forecast.h"
#include "ttr/util/random.h"

namespace ttr::experiments {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// The forecasts of every row of one column.
std::vector<double> Forecast(Forecaster forecaster, const std::vector<double>& rows) {
  std::vector<double> forecasts(rows.size());
  for (std::size_t t = 0; t < rows.size(); ++t) {
    forecaster.Next({&rows[t], 1}, {&forecasts[t], 1});
  }
  return forecasts;
}

double WorstAfter(std::int64_t begin, const std::vector<double>& rows,
                  const std::vector<double>& forecasts) {
  double worst = 0;
  for (std::size_t t = begin; t < rows.size(); ++t) {
    const double error = std::abs(rows[t] - forecasts[t]);
    worst = std::isfinite(error) ? std::max(worst, error) : std::numeric_limits<double>::infinity();
  }
  return worst;
}

TEST(Forecaster, SineStaysAccurateWhereForgettingMeetsAKeySpaceOfTwoDimensions) {
  const auto rows = Sine(20000);
  for (const char* recipe : {"weighted_rls{decay: .95}", "rls{decay: .95}", "nlms"}) {
    const auto forecasts = Forecast(Make(recipe, {.lags = 16}), rows);
    EXPECT_LT(WorstAfter(15000, rows, forecasts), 1e-9) << recipe;
    EXPECT_TRUE(std::isnan(forecasts[15]));
    EXPECT_FALSE(std::isnan(forecasts[16]));
  }
}

TEST(Forecaster, RlsOnRawLagsIsTheRegressionSolvedByHand) {
  // Two lags, ridge r: w solves (r I + sum k k^T) w = sum k x.
  const auto rows = Autoregressive(60, .3);
  const auto forecasts = Forecast(Make("rls{ridge: 0.5}", {.lags = 2, .units = Units::kRaw}), rows);
  double a = .5, b = 0, d = .5, p = 0, q = 0;
  for (std::size_t t = 2; t < rows.size(); ++t) {
    const double u = rows[t - 1], v = rows[t - 2];
    const double det = a * d - b * b;
    const double expected = ((d * p - b * q) * u + (a * q - b * p) * v) / det;
    EXPECT_NEAR(forecasts[t], expected, 1e-10 * (1 + std::abs(expected))) << t;
    a += u * u, b += u * v, d += v * v, p += u * rows[t], q += v * rows[t];
  }
}

TEST(Forecaster, ForecastsMoveWithTheData) {
  const auto rows = Autoregressive(400, .5);
  for (const char* recipe : {"rls", "weighted_rls{decay: .95}", "nlms", "deltanet",
                             "nadaraya_watson{window: 64, bandwidth: 0.1}"}) {
    const auto forecasts = Forecast(Make(recipe, {.lags = 4}), rows);
    for (const double factor : {1e6, 1e-6, -3.}) {
      const double shift = 100 * factor;
      std::vector<double> scaled = rows;
      for (double& x : scaled) x = factor * x + shift;
      const auto moved = Forecast(Make(recipe, {.lags = 4}), scaled);
      for (std::size_t t = 4; t < rows.size(); ++t) {
        EXPECT_NEAR((moved[t] - shift) / factor, forecasts[t], 1e-7) << recipe << " " << t;
      }
    }
  }
}

TEST(Forecaster, ChangeOfScaleInMidStreamIsSurvived) {
  for (const double factor : {1e6, 1e-6}) {
    std::vector<double> rows = Sine(6000);
    for (std::size_t t = 2000; t < rows.size(); ++t) rows[t] *= factor;
    for (const char* recipe : {"weighted_rls{decay: .95}", "rls", "nlms", "deltanet"}) {
      const auto forecasts = Forecast(Make(recipe, {.lags = 16}), rows);
      EXPECT_LT(WorstAfter(5500, rows, forecasts), .05 * factor) << recipe << " " << factor;
    }
  }
}

TEST(Forecaster, ConstantAndSteppedSeriesAreNoDisaster) {
  std::vector<double> rows(50, .1);
  rows.resize(100, 7.3);
  for (const char* recipe : {"rls", "nlms", "nadaraya_watson{bandwidth: 0.1}"}) {
    const auto forecasts = Forecast(Make(recipe, {.lags = 5}), rows);
    for (std::size_t t = 5; t < 50; ++t) EXPECT_DOUBLE_EQ(forecasts[t], .1) << recipe;
    for (std::size_t t = 60; t < 100; ++t) EXPECT_DOUBLE_EQ(forecasts[t], 7.3) << recipe;
  }
}

TEST(Forecaster, HorizonForecastsFromNothingLater) {
  auto rows = Sine(400);
  const auto forecasts = Forecast(Make("rls{ridge: 1e-9}", {.lags = 8, .horizon = 5}), rows);
  EXPECT_TRUE(std::isnan(forecasts[11]));
  EXPECT_FALSE(std::isnan(forecasts[12]));  // from rows 0 .. 7
  EXPECT_LT(WorstAfter(200, rows, forecasts), 1e-4);
  // What comes later changes nothing.
  for (std::size_t t = 296; t < rows.size(); ++t) rows[t] = 1e3;
  const auto changed = Forecast(Make("rls{ridge: 1e-9}", {.lags = 8, .horizon = 5}), rows);
  for (std::size_t t = 12; t <= 300; ++t) EXPECT_EQ(forecasts[t], changed[t]) << t;
  EXPECT_NE(forecasts[301], changed[301]);
}

TEST(Forecaster, GapsAreFilledByTheForecast) {
  auto rows = Sine(1000);
  const auto truth = rows;
  for (const std::size_t t : {500, 501, 502, 600}) rows[t] = kNaN;
  const auto forecasts = Forecast(Make("weighted_rls{decay: .95}", {.lags = 16}), rows);
  for (std::size_t t = 400; t < rows.size(); ++t) EXPECT_NEAR(forecasts[t], truth[t], 1e-6) << t;
}

TEST(Forecaster, LongGapEndsFlat) {
  auto rows = Autoregressive(300, .5);
  rows.resize(5000, kNaN);
  rows.push_back(1);
  for (const char* recipe : {"rls", "nlms"}) {
    const auto forecasts = Forecast(Make(recipe, {.lags = 4}), rows);
    for (const double x : std::span(forecasts).subspan(4)) ASSERT_LT(std::abs(x), 100) << recipe;
    EXPECT_NEAR(forecasts[5000], forecasts[4000], 1e-9) << recipe;
  }
}

TEST(Forecaster, NothingBeforeEveryColumnHasAValue) {
  Forecaster forecaster = Make("rls", {.lags = 2, .columns = 2});
  std::vector<double> forecast(2);
  const auto next = [&](double a, double b) {
    const std::vector<double> row = {a, b};
    return forecaster.Next(row, forecast);
  };
  EXPECT_FALSE(next(1, kNaN));
  EXPECT_FALSE(next(kNaN, 2));
  EXPECT_FALSE(next(1, 2));
  EXPECT_FALSE(next(2, kNaN));
  EXPECT_TRUE(next(3, 4));
}

TEST(Forecaster, ColumnsInformEachOther) {
  // b follows a by one row: a alone is noise.
  CounterRandom random(3);
  Forecaster forecaster = Make("rls", {.lags = 3, .columns = 2});
  double last = 0;
  double worst = 0;
  for (int t = 0; t < 500; ++t) {
    const double a = random.Normal();
    const std::vector<double> row = {a, 1000 * last};
    std::vector<double> forecast(2);
    forecaster.Next(row, forecast);
    if (t > 100) worst = std::max(worst, std::abs(forecast[1] - row[1]));
    last = a;
  }
  // The windows' means are taken away, so the fit is not perfect; noise alone would give 3000.
  EXPECT_LT(worst, 1500);
}

TEST(Forecaster, RefusesWhatCannotForecast) {
  const auto message = [](const char* recipe, const ForecasterOptions& options) -> std::string {
    try {
      Make(recipe, options);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_NE(message("intention", {}).find("causal"), std::string::npos);
  EXPECT_NE(message("lru", {}).find("queries"), std::string::npos);
  EXPECT_NE(message("delta_product", {}).find("steps must be 1"), std::string::npos);
  EXPECT_NE(message("batch_gd{eta_kind: input}", {}).find("eta_kind must be constant or relative"),
            std::string::npos);
  EXPECT_NE(message("ttt_linear", {.lags = 4}).find("Dv = Dk"), std::string::npos);
  EXPECT_NE(message("rls", {.lags = 0}).find("lags must be"), std::string::npos);
  EXPECT_NE(message("rls", {.horizon = 0}).find("horizon must be"), std::string::npos);
  EXPECT_NE(message("deltanet", {.gates = {.step = kNaN}}).find("step must be"), std::string::npos);
  EXPECT_NE(message("mamba2", {.gates = {.decay = 0}}).find("decay must be"), std::string::npos);
}

TEST(Naive, LastValueAndSeason) {
  const std::vector<double> rows = {1, 2, 3, kNaN, 5, 6, 7, 8};
  const auto run = [&](std::int64_t period, std::int64_t horizon) {
    Naive naive(1, period, horizon);
    std::vector<double> forecasts(rows.size());
    for (std::size_t t = 0; t < rows.size(); ++t) naive.Next({&rows[t], 1}, {&forecasts[t], 1});
    for (double& x : forecasts) x = std::isnan(x) ? -1 : x;
    return forecasts;
  };
  using V = std::vector<double>;
  EXPECT_EQ(run(1, 1), (V{-1, 1, 2, 3, 3, 5, 6, 7}));
  EXPECT_EQ(run(1, 3), (V{-1, -1, -1, 1, 2, 3, 3, 5}));
  EXPECT_EQ(run(3, 1), (V{-1, -1, -1, 1, 2, 3, 1, 5}));   // row 6: row 3 is missing, so row 0
  EXPECT_EQ(run(2, 3), (V{-1, -1, -1, -1, 1, 2, 3, 2}));  // row 7: row 3 is missing, so row 1
  EXPECT_THROW(Naive(1, 0, 1), Error);
}

}  // namespace
}  // namespace ttr::experiments
