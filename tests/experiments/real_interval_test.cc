// Prediction intervals and the quality of fits, as a forecaster gives them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "tests/experiments/real_series.h"
#include "ttr/error.h"
#include "ttr/forecast.h"
#include "ttr/util/random.h"

namespace ttr::experiments {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// How many rows from `begin` on lie in the interval of their forecast.
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

TEST(Interval, CoverAutoregressiveRowsAtTheirLevel) {
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

TEST(Interval, FollowAChangeOfVariance) {
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

TEST(Interval, OfASineStayFiniteWhereForgettingMeetsTwoDimensions) {
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

TEST(Interval, KnowNothingLater) {
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

TEST(Interval, DecayOfTheResidualsIsTheRecipesUnlessGiven) {
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
    return forecaster.EffectiveErrors(0);
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

TEST(FitQuality, IsOfLeastSquaresAlone) {
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

}  // namespace
}  // namespace ttr::experiments
