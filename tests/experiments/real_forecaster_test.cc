#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "experiments/real/forecaster.h"
#include "experiments/real/naive.h"
#include "ttr/error.h"
#include "ttr/random.h"

namespace ttr::experiments {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

Forecaster Make(const char* recipe, const ForecasterOptions& options) {
  return Forecaster(ParseRecipe(recipe), options);
}

// The forecasts of every row of one column.
std::vector<double> Forecast(Forecaster forecaster, const std::vector<double>& rows) {
  std::vector<double> forecasts(rows.size());
  for (std::size_t t = 0; t < rows.size(); ++t) {
    forecaster.Next({&rows[t], 1}, {&forecasts[t], 1});
  }
  return forecasts;
}

std::vector<double> Sine(std::int64_t rows, double step = .1) {
  std::vector<double> x;
  for (std::int64_t t = 0; t < rows; ++t) x.push_back(std::sin(step * static_cast<double>(t)));
  return x;
}

// x_t = 1.6 x_{t-1} - .8 x_{t-2} + noise
std::vector<double> Autoregressive(std::int64_t rows, double noise, std::uint64_t seed = 7) {
  CounterRandom random(seed);
  std::vector<double> x = {1, 1};
  for (std::int64_t t = 2; t < rows; ++t) {
    x.push_back(1.6 * x[t - 1] - .8 * x[t - 2] + noise * random.Normal());
  }
  return x;
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

// Of the rows from `begin` on, how many lie in the interval of their forecast.
std::int64_t RowsInside(Forecaster forecaster, const std::vector<double>& rows,
                        std::int64_t begin) {
  std::int64_t inside = 0;
  for (std::size_t t = 0; t < rows.size(); ++t) {
    double forecast = 0, margin = 0;
    forecaster.Next({&rows[t], 1}, {&forecast, 1}, {&margin, 1});
    const bool counts = static_cast<std::int64_t>(t) >= begin;
    if (counts && std::abs(rows[t] - forecast) <= margin) ++inside;
  }
  return inside;
}

TEST(Forecaster, IntervalsCoverAutoregressiveRowsAtTheirLevel) {
  constexpr std::int64_t kSeries = 2, kRows = 5000, kBegin = 1000;
  std::vector<std::vector<double>> series;
  for (std::uint64_t seed = 1; seed <= kSeries; ++seed) {
    series.push_back(Autoregressive(kRows, .3, seed));
  }
  // Without forgetting two lags alone: with p parameters the errors of the young fit leave s too
  // large by some p log(n) / 2 n, which is to stay below what these rows can tell.
  const struct {
    const char* recipe;
    Units units;
    std::int64_t lags, horizon;
  } cases[] = {
      {"rls{ridge: 0.1}", Units::kRaw, 2, 1},
      {"weighted_rls{decay: 0.99, ridge: 0.1}", Units::kRaw, 2, 1},
      {"weighted_rls{decay: 0.99, ridge: 0.1}", Units::kWindow, 8, 1},
      {"rls{ridge: 0.1}", Units::kRaw, 2, 4},
      {"weighted_rls{decay: 0.99, ridge: 0.1}", Units::kRaw, 2, 4},
  };
  for (const auto& c : cases) {
    for (const double level : {.5, .8, .95, .99}) {
      const Forecaster fresh = Make(
          c.recipe, {.lags = c.lags, .horizon = c.horizon, .units = c.units, .interval = level});
      std::int64_t inside = 0;
      for (const auto& rows : series) inside += RowsInside(fresh, rows, kBegin);
      const double count = kSeries * (kRows - kBegin);
      // The binomial's standard error; h rows ahead, rows miss together, and count as the degrees
      // of freedom do. An s that is off makes all later rows miss, which without forgetting adds
      // (2 z phi(z))^2 times B log(N / B)^2 / 2 N = 0.26 to the level's variance, B rows of N not
      // counted (those that are counted and make s too large are themselves outside): at most, at
      // the level .8, 1.15 in the standard error.
      const auto h = static_cast<double>(c.horizon);
      const double dependent = (2 * h * h + 1) / (3 * h);
      const double error = 1.15 * std::sqrt(level * (1 - level) * dependent / count);
      EXPECT_NEAR(static_cast<double>(inside) / count, level, 3 * error)
          << c.recipe << ", lags " << c.lags << ", horizon " << c.horizon;
    }
  }
}

TEST(Forecaster, IntervalsFollowAChangeOfVariance) {
  // The noise's variance times 10^6, and back.
  CounterRandom random(11);
  std::vector<double> rows = {0, 0};
  for (std::int64_t t = 2; t < 9000; ++t) {
    const double noise = t / 3000 == 1 ? 1e3 : 1;
    rows.push_back(1.6 * rows[t - 1] - .8 * rows[t - 2] + noise * random.Normal());
  }
  Forecaster forecaster = Make("weighted_rls{decay: 0.99, ridge: 0.1}",
                               {.lags = 2, .units = Units::kRaw, .interval = .95});
  std::vector<double> margin(rows.size());
  std::int64_t inside = 0;
  for (std::size_t t = 0; t < rows.size(); ++t) {
    double forecast = 0;
    forecaster.Next({&rows[t], 1}, {&forecast, 1}, {&margin[t], 1});
    if (t >= 3300 && t < 6000 && std::abs(rows[t] - forecast) <= margin[t]) ++inside;
  }
  // s has 199 effective samples: a standard error of 1 / sqrt(2 199) = 5 percent.
  const double quantile = 1.972;  // of 199 degrees
  EXPECT_NEAR(margin[2999] / quantile, 1, .2);
  EXPECT_GT(margin[3003] / quantile, 50);  // three rows later
  EXPECT_NEAR(margin[5999] / quantile, 1e3, 200);
  // What was 10^3 falls below 1 / 10 when .99^(n / 2) has reached 10^-4: after 1833 rows.
  EXPECT_NEAR(margin[8999] / quantile, 1, .2);
  // 2700 rows; the slowly varying s adds half to the binomial's variance.
  EXPECT_NEAR(static_cast<double>(inside) / 2700, .95, 3 * std::sqrt(1.5 * .95 * .05 / 2700));
}

TEST(Forecaster, IntervalsOfASineStayFiniteWhereForgettingMeetsTwoDimensions) {
  const auto rows = Sine(100'000);
  Forecaster forecaster = Make("weighted_rls{decay: 0.95}", {.lags = 4, .interval = .95});
  double worst = 0;
  for (std::size_t t = 0; t < rows.size(); ++t) {
    double forecast = 0, margin = 0;
    forecaster.Next({&rows[t], 1}, {&forecast, 1}, {&margin, 1});
    if (t < 13) continue;  // 4 rows of the first window, 8 forecasts skipped, one to know
    ASSERT_TRUE(std::isfinite(forecast) && std::isfinite(margin)) << t;
    if (t >= 50'000) worst = std::max({worst, std::abs(rows[t] - forecast), margin});
  }
  EXPECT_LT(worst, 1e-9);
  ASSERT_TRUE(forecaster.Quality().has_value());
  EXPECT_NEAR(forecaster.Quality()->samples, 39, 1e-9);
  EXPECT_EQ(forecaster.Quality()->condition, std::numeric_limits<double>::infinity());
}

TEST(Forecaster, IntervalsKnowNothingLater) {
  const auto rows = Autoregressive(200, .3);
  for (const std::int64_t horizon : {1, 3}) {
    const ForecasterOptions options{
        .lags = 2, .horizon = horizon, .units = Units::kRaw, .interval = .9};
    Forecaster one = Make("rls", options), other = Make("rls", options);
    for (std::int64_t t = 0; t < 200; ++t) {
      const double x = rows[t], y = t < 100 ? x : 1e3 * x;
      double forecast = 0, first = 0, second = 0;
      one.Next({&x, 1}, {&forecast, 1}, {&first, 1});
      other.Next({&y, 1}, {&forecast, 1}, {&second, 1});
      if (t < 20) continue;
      // Row 100 is in the residuals that row 100 + horizon is judged by.
      EXPECT_EQ(first == second, t < 100 + horizon) << t << " " << horizon;
    }
  }
}

TEST(Forecaster, DecayOfTheResidualsIsTheRecipesUnlessGiven) {
  const auto rows = Autoregressive(300, .3);
  const auto samples = [&](const char* recipe, ForecasterOptions options) {
    options.lags = 2;
    options.interval = .9;
    options.gates.decay = .9;
    Forecaster forecaster = Make(recipe, options);
    for (const double row : rows) {
      double forecast = 0;
      forecaster.Next({&row, 1}, {&forecast, 1});
    }
    return forecaster.residuals()[0].EffectiveSamples();
  };
  EXPECT_EQ(samples("rls", {}), 300 - 2 - 4);
  EXPECT_NEAR(samples("weighted_rls{decay: 0.95}", {}), 39, 1e-4);
  EXPECT_NEAR(samples("mesa", {}), 19, 1e-9);
  const double fade = std::pow(31. / 32, 294);
  EXPECT_NEAR(samples("retnet", {}), 63 * (1 - fade) / (1 + fade), 1e-9);
  EXPECT_NEAR(samples("rls", {.interval_decay = .8}), 9, 1e-9);
  EXPECT_THROW(samples("rls", {.interval_decay = 1.5}), Error);
  for (const double level : {-.1, 1., 95., kNaN}) {
    EXPECT_THROW(Make("rls", {.interval = level}), Error) << level;
  }
}

TEST(Forecaster, QualityIsOfLeastSquaresAlone) {
  const auto rows = Autoregressive(100, .3);
  Forecaster rls = Make("rls{ridge: 0}", {.lags = 2, .units = Units::kRaw});
  Forecaster nlms = Make("nlms", {.lags = 2});
  double a = 0, b = 0, d = 0, forecast = 0;
  for (std::size_t t = 0; t < rows.size(); ++t) {
    rls.Next({&rows[t], 1}, {&forecast, 1});
    nlms.Next({&rows[t], 1}, {&forecast, 1});
    if (t < 2) continue;
    a += rows[t - 1] * rows[t - 1], b += rows[t - 1] * rows[t - 2], d += rows[t - 2] * rows[t - 2];
  }
  EXPECT_FALSE(nlms.Quality().has_value());
  ASSERT_TRUE(rls.Quality().has_value());
  EXPECT_EQ(rls.Quality()->samples, 98);
  const double cosine = std::abs(b) / std::sqrt(a * d);
  const double condition = (1 + cosine) / (1 - cosine);
  EXPECT_NEAR(rls.Quality()->condition, condition, 1e-12 * condition);
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
