// What trends, steps and single spikes do to forecasts: memories with an intercept and kernels must
// follow a trend out of the window, and none may be ruled by one outlier.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "experiments/real/forecast.h"
#include "src/forecast/lag_window.h"
#include "src/forecast/outliers.h"
#include "tests/experiments/real_series.h"
#include "tests/experiments/report_support.h"
#include "ttr/forecast.h"

namespace ttr::experiments {

using namespace forecasting;
namespace {

constexpr const char* kMemories[] = {
    "rls",  "affine_rls", "local_linear", "local_linear{kernel: gaussian, bandwidth: 1}",
    "nlms", "deltanet",   "kernel_rls",   "nadaraya_watson{bandwidth: 0.1}"};

std::vector<double> Of(const std::function<double(double)>& function, std::int64_t rows = 400) {
  std::vector<double> series;
  for (std::int64_t t = 0; t < rows; ++t) series.push_back(function(static_cast<double>(t)));
  return series;
}

void Read(Forecaster& forecaster, const std::vector<double>& rows) {
  double forecast = 0;
  for (const double& row : rows) forecaster.Next({&row, 1}, {&forecast, 1});
}

// The forecast of the 12th row behind the series.
double Twelfth(const char* recipe, std::int64_t lags, std::int64_t horizon,
               const std::vector<double>& rows) {
  Forecaster forecaster = Make(recipe, {.lags = lags, .horizon = horizon, .ahead = 12});
  Read(forecaster, rows);
  std::vector<double> forecasts(12), margins(12);
  EXPECT_TRUE(forecaster.Ahead(forecasts, margins));
  return forecasts.back();
}

struct Window {
  std::int64_t lags, horizon;
};
constexpr Window kWindows[] = {{2, 1}, {4, 1}, {8, 1}, {4, 12}, {8, 12}};

TEST(Outliers, ALineGoesOn) {
  const auto rows = Of([](double t) { return 10 + t; });
  for (const char* recipe : kMemories) {
    for (const auto [lags, horizon] : kWindows) {
      // The ridge holds a little back, and the delta rule's steps with divided keys are short: 6
      // from the mean each is 1/36 of .5, and 389 of them leave e^(-5.4) of 13.5 rows.
      EXPECT_NEAR(Twelfth(recipe, lags, horizon, rows), 421, .07) << recipe << " " << lags;
    }
  }
}

TEST(Outliers, AParabolaGoesOnLocally) {
  const auto rows = Of([](double t) { return .01 * t * t; });
  const double end = .01 * 411 * 411;
  for (const char* recipe : kMemories) {
    for (const auto [lags, horizon] : kWindows) {
      // It rises by 97 in 12 rows. What only knows the slope of windows' lines misses the bend, .7,
      // and memories that do not forget take the whole past's.
      EXPECT_NEAR(Twelfth(recipe, lags, horizon, rows), end, 10) << recipe << " " << lags;
    }
  }
}

TEST(Outliers, AnExponentialGoesOn) {
  for (const double rate : {.01, .1}) {
    const auto rows = Of([&](double t) { return std::exp(rate * t); });
    const double end = std::exp(rate * 411);
    const double last = rows.back();
    for (const char* recipe : kMemories) {
      for (const auto [lags, horizon] : kWindows) {
        const double forecast = Twelfth(recipe, lags, horizon, rows);
        // The delta rule's short steps, see above: the value lies 8.7 from the mean.
        const bool is_slow = std::string(recipe) == "deltanet" && horizon > 1;
        EXPECT_NEAR((forecast - last) / (end - last), 1, is_slow ? .35 : .05)
            << recipe << " " << lags << " " << rate;
      }
    }
  }
}

TEST(Outliers, AConstantStaysAndAStepIsForgotten) {
  for (const char* recipe : kMemories) {
    for (const auto [lags, horizon] : kWindows) {
      EXPECT_EQ(Twelfth(recipe, lags, horizon, Of([](double) { return 7.3; })), 7.3) << recipe;
      // Noise of 0.1 around 1, and around 50 from row 300 on. Before, nlms ended at -142.
      const auto noise = Autoregressive(400, .02);
      std::vector<double> rows;
      for (std::size_t t = 0; t < 400; ++t) rows.push_back(noise[t] + (t < 300 ? 1 : 50));
      EXPECT_NEAR(Twelfth(recipe, lags, horizon, rows), 50, 1.5) << recipe << " " << lags;
    }
  }
}

// The root mean square of the errors one row ahead, of the last 200 rows.
double Error(const char* recipe, const std::vector<double>& rows) {
  Forecaster forecaster = Make(recipe, {.lags = 6});
  double squares = 0, forecast = 0;
  for (std::size_t t = 0; t < rows.size(); ++t) {
    forecaster.Next({&rows[t], 1}, {&forecast, 1});
    if (t + 200 >= rows.size()) squares += (rows[t] - forecast) * (rows[t] - forecast);
  }
  return std::sqrt(squares / 200);
}

TEST(Outliers, OneSpikeRulesNoMemory) {
  const auto rows = Autoregressive(1000, .3);
  auto with_spike = rows;
  with_spike[500] += 1e6;
  for (const char* recipe : kMemories) {
    EXPECT_LT(Error(recipe, with_spike), 1.6 * Error(recipe, rows)) << recipe;
  }
}

TEST(Outliers, WhichMemoriesSeeAPairDividedAsTheSameRelation) {
  for (const char* recipe :
       {"rls", "weighted_rls", "mesa", "deltanet", "longhorn", "linear_attention"}) {
    EXPECT_TRUE(WeighsByLength(ParseRecipe(recipe))) << recipe;
  }
  for (const char* recipe :
       {"affine_rls", "nlms", "feature_rls", "kernel_rls", "local_linear", "softmax", "titans",
        "mlstm", "deltanet{normalise_qk: true}", "rls{output_norm: l2}"}) {
    EXPECT_FALSE(WeighsByLength(ParseRecipe(recipe))) << recipe;
  }
}

TEST(Outliers, ReachIsThatOfAStraightLine) {
  EXPECT_EQ(Reach(1, 5), 1);
  EXPECT_EQ(Reach(16, 1), 1);
  for (const std::int64_t lags : {2, 3, 4}) {
    LagWindow window(lags, 1, Units::kWindow);
    for (std::int64_t t = 0; t < lags; ++t) {
      const auto x = static_cast<double>(t);
      window.Push({&x, 1});
    }
    LagKey key;
    window.MakeKey(key);
    for (const std::int64_t horizon : {1, 7}) {
      const auto x = static_cast<double>(lags - 1 + horizon);
      double value = 0;
      window.ToMemory(key, {&x, 1}, {&value, 1});
      EXPECT_NEAR(Reach(lags, horizon), value, 1e-12) << lags;
    }
  }
}

TEST(Outliers, ErrorsAreHeldUntilTheyKeepOnComing) {
  Outliers outliers(ParseRecipe("affine_rls"), 16, 2);
  std::vector<double> key = {.6, .8};
  const double expected[] = {1.5, .5 + std::sqrt(2.), 2.5, .5 + 2 * std::sqrt(2.), 4.5, 5.5};
  const double forecast = .5;
  for (std::size_t i = 0; i < 6; ++i) {
    double value = 5.5;
    outliers.Hold(key, {&value, 1}, {&forecast, 1});
    EXPECT_NEAR(value, expected[i], 1e-12) << i;
    EXPECT_EQ(outliers.run(), i < 5 ? static_cast<std::int64_t>(i) + 1 : 0);
  }
  EXPECT_EQ(key, (std::vector<double>{.6, .8}));
  // A forecast that ran away says nothing.
  double value = 3;
  const double none = std::numeric_limits<double>::quiet_NaN();
  outliers.Hold(key, {&value, 1}, {&none, 1});
  EXPECT_EQ(value, 1);

  Outliers network(ParseRecipe("titans"), 16, 2);
  value = 4;
  network.Hold(key, {&value, 1}, {&forecast, 1});
  EXPECT_EQ(value, 1);
  EXPECT_EQ(key, (std::vector<double>{.6, .8}));

  Outliers divides(ParseRecipe("rls"), 16, 2);
  value = 4;
  divides.Hold(key, {&value, 1}, {&forecast, 1});
  EXPECT_EQ(value, 1);
  EXPECT_EQ(key, (std::vector<double>{.6 / 4, .8 / 4}));
}

TEST(Outliers, StoppedAmongThemAndResumedIsOneRun) {
  const report::TemporaryFolder folder;
  auto rows = Autoregressive(60, .3);
  double jump = 10;
  for (std::size_t t = 30; t < 40; ++t, jump *= 8) rows[t] += jump;
  ForecastOptions options{.columns = {"x"}, .lags = 4};
  options.memories = {{"affine_rls", ParseRecipe("affine_rls")}};
  ForecastRun whole(options);
  Forecasts expected = whole.Next(rows);
  for (std::size_t stop = 30; stop < 42; ++stop) {
    ForecastRun first(options), second(options);
    first.Next({rows.data(), stop});
    first.Save(folder / "m");
    second.Resume(folder / "m");
    const std::size_t left = rows.size() - stop;
    Forecasts found = second.Next({rows.data() + stop, left});
    for (std::size_t t = 0; t < left; ++t) {
      const auto row = static_cast<std::int64_t>(t);
      EXPECT_EQ(found.At(1, row)[0], expected.At(1, row + static_cast<std::int64_t>(stop))[0])
          << stop << " " << t;
    }
  }
}

}  // namespace
}  // namespace ttr::experiments
