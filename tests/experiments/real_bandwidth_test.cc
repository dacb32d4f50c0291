// Bandwidths that are selected while a stream is read.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

#include "experiments/real/forecast.h"
#include "experiments/real/forecast_report.h"
#include "src/forecast/bandwidth.h"
#include "tests/experiments/real_series.h"
#include "tests/experiments/report_support.h"
#include "ttr/error.h"

namespace ttr::experiments {

using namespace forecasting;
namespace {

constexpr std::size_t kCount = BandwidthSelector::kRatios.size();

// s(k, q) at a distance.
double KernelAt(Kernel kernel, double bandwidth, double distance) {
  const double u = distance / bandwidth, rest = std::max(1 - u * u, 0.);
  switch (kernel) {
    case Kernel::kGaussian: return std::exp(-distance * distance / bandwidth);
    case Kernel::kLaplace: return std::exp(-u);
    case Kernel::kEpanechnikov: return rest;
    case Kernel::kBiweight: return rest * rest;
    default: return rest * rest * rest;
  }
}

TEST(Bandwidth, OfEveryKernelHasTheDeviationThatIsAskedFor) {
  for (const Kernel kernel : {Kernel::kGaussian, Kernel::kLaplace, Kernel::kEpanechnikov,
                              Kernel::kBiweight, Kernel::kTriweight}) {
    for (const std::int64_t d : {1, 2, 7, 52}) {
      const double h = 0.3, bandwidth = BandwidthOf(kernel, h, d);
      // The mean of r^2 / d, in shells of radius r.
      double mass = 0, moment = 0;
      for (int i = 0; i < 400000; ++i) {
        const double r = 1e-4 * (i + 0.5);
        const double shell =
            std::pow(r, static_cast<double>(d - 1)) * KernelAt(kernel, bandwidth, r);
        mass += shell;
        moment += shell * r * r / static_cast<double>(d);
      }
      EXPECT_NEAR(std::sqrt(moment / mass), h, 1e-4) << static_cast<int>(kernel) << " " << d;
    }
  }
}

TEST(Bandwidth, RuleOfThumbIsSilvermans) {
  // 1.06 sigma n^(-1/5) in one dimension.
  EXPECT_NEAR(SilvermanDeviation(4, 1, 100), 1.0592 * 2 * std::pow(100, -.2), 1e-4);
  EXPECT_EQ(SilvermanDeviation(0, 3, 10), 0);
  BandwidthSelector selector(ParseRecipe("nadaraya_watson{bandwidth: 3}"), 2, 1);
  EXPECT_EQ(selector.Candidates()[0], 3);  // of no keys the recipe's own
  EXPECT_EQ(selector.Candidates()[1], 3 * .25);
  const std::vector<std::array<double, 2>> keys = {{1, 5}, {4, 5}, {1, 2}, {-3, 0}, {2, 2}};
  for (const auto& key : keys) selector.AddKey(key);
  // Variances 6.5 and 4.7.
  const double h = SilvermanDeviation(5.6, 2, 5);
  EXPECT_NEAR(selector.Candidates()[0], 2 * h * h, 1e-12);
  EXPECT_NEAR(selector.Candidates()[2], 8 * h * h, 1e-12);
  // A window holds no more keys than it has.
  BandwidthSelector window(ParseRecipe("nadaraya_watson{bandwidth: 3, window: 3}"), 2, 1);
  for (const auto& key : keys) window.AddKey(key);
  const double three = SilvermanDeviation(5.6, 2, 3);
  EXPECT_NEAR(window.Candidates()[0], 2 * three * three, 1e-12);
}

TEST(Bandwidth, SelectedHasTheLeastErrorsSoFar) {
  BandwidthSelector selector(ParseRecipe("nadaraya_watson"), 1, .5);
  EXPECT_EQ(selector.selected(), 0u);
  std::array<double, kCount> squares{};
  squares.fill(2);
  selector.AddErrors(squares);
  EXPECT_EQ(selector.selected(), 0u);  // of equals the rule's
  squares[3] = 1;
  selector.AddErrors(squares);
  EXPECT_EQ(selector.selected(), 3u);
  std::array<double, kCount> broken = squares;
  broken[3] = std::numeric_limits<double>::infinity();
  selector.AddErrors(broken);
  EXPECT_EQ(selector.selected(), 3u);
  // What was good once fades: 1/2 of the lead of 1 is left, then 1/4 - 1.
  squares.fill(2);
  squares[5] = 1;
  selector.AddErrors(squares);
  EXPECT_EQ(selector.selected(), 5u);
}

// x_t from x_{t-1}, by hand: every candidate over all pairs before, and the one with the least sum
// of squared errors up to then.
std::vector<double> Selected(const std::vector<double>& x) {
  std::vector<double> forecasts(x.size(), std::numeric_limits<double>::quiet_NaN());
  std::array<double, kCount> losses{};
  for (std::size_t t = 1; t < x.size(); ++t) {
    // Pairs (x_{i-1}, x_i), i < t.
    const std::size_t n = t - 1;
    if (n == 0) {
      forecasts[t] = 0;  // nothing is memorized: raw units have the origin
      continue;
    }
    double mean = 0, variance = 0;
    for (std::size_t i = 0; i < n; ++i) mean += x[i] / static_cast<double>(n);
    for (std::size_t i = 0; i < n; ++i) variance += (x[i] - mean) * (x[i] - mean);
    variance /= std::max(1., static_cast<double>(n) - 1);
    const double h =
        1.0592238410488122 * std::sqrt(variance) * std::pow(static_cast<double>(n), -.2);
    std::array<double, kCount> candidates{};
    for (std::size_t j = 0; j < kCount; ++j) {
      const double width = BandwidthSelector::kRatios[j] * h;
      const double bandwidth =
          n > 1 ? 2 * width * width : BandwidthSelector::kRatios[j] * BandwidthSelector::kRatios[j];
      double sum = 0, weights = 0;
      for (std::size_t i = 0; i < n; ++i) {
        const double distance = x[i] - x[t - 1];
        const double weight = std::exp(-distance * distance / bandwidth);
        sum += weight * x[i + 1];
        weights += weight;
      }
      candidates[j] = sum / weights;
    }
    const auto best = std::min_element(losses.begin(), losses.end()) - losses.begin();
    forecasts[t] = candidates[static_cast<std::size_t>(best)];
    for (std::size_t j = 0; j < kCount; ++j) {
      losses[j] += (x[t] - candidates[j]) * (x[t] - candidates[j]);
    }
  }
  return forecasts;
}

TEST(Bandwidth, ForecastsAreThoseOfTheSelectedOne) {
  std::vector<double> x;
  CounterRandom random(3);
  double at = 0.4;
  for (int t = 0; t < 120; ++t) {
    at = 3.7 * at * (1 - at);  // the logistic map
    x.push_back(at + .01 * random.Normal());
  }
  const std::vector<double> expected = Selected(x);
  Forecaster forecaster =
      Make("nadaraya_watson", {.lags = 1, .units = Units::kRaw, .selects_bandwidth = true});
  double forecast = 0;
  for (std::size_t t = 0; t < x.size(); ++t) {
    const bool made = forecaster.Next(std::span(&x[t], 1), std::span(&forecast, 1));
    ASSERT_EQ(made, t > 0);
    if (made) {
      EXPECT_NEAR(forecast, expected[t], 1e-9) << t;
    }
  }
  EXPECT_LT(*forecaster.Bandwidth(), 1);
}

double Rmse(const std::string& recipe, const std::vector<double>& x, bool selects) {
  Forecaster forecaster(ParseRecipe(recipe), {.lags = 4, .selects_bandwidth = selects});
  double squares = 0, forecast = 0;
  for (std::size_t t = 0; t < x.size(); ++t) {
    const bool made = forecaster.Next(std::span(&x[t], 1), std::span(&forecast, 1));
    if (made && t >= 50) squares += (forecast - x[t]) * (forecast - x[t]);
  }
  return std::sqrt(squares / static_cast<double>(x.size() - 50));
}

TEST(Bandwidth, AutoIsNearTheBestFixedOneWhateverTheRecipeSays) {
  const std::vector<double> x = Autoregressive(1500, .3);
  for (const std::string kernel : {"gaussian", "laplace", "epanechnikov"}) {
    double best = std::numeric_limits<double>::infinity(), worst = 0;
    for (int j = -8; j <= 4; ++j) {
      const double fixed = Rmse("nadaraya_watson{kernel: " + kernel +
                                    ", bandwidth: " + std::to_string(std::pow(2, j)) + "}",
                                x, false);
      best = std::min(best, fixed);
      worst = std::max(worst, fixed);
    }
    for (const char* bandwidth : {"1000", "0.001"}) {
      const double chosen =
          Rmse("nadaraya_watson{kernel: " + kernel + ", bandwidth: " + bandwidth + "}", x, true);
      EXPECT_LT(chosen, 1.04 * best) << kernel;
    }
    EXPECT_GT(worst, 1.3 * best) << kernel;  // so that there is something to select
  }
}

TEST(Bandwidth, StoppedAndResumedIsOneRun) {
  ForecastOptions options{.columns = {"x", "y"}, .lags = 3, .horizon = 2};
  options.selects_bandwidth = true;
  for (const char* text : {"nadaraya_watson{window: 20}", "rls",
                           "decayed_softmax{kernel: laplace, "
                           "bandwidth: 1}"}) {
    options.memories.push_back({text, ParseRecipe(text)});
  }
  std::vector<double> rows;
  const std::vector<double> x = Autoregressive(160, .3), y = Sine(160);
  for (std::size_t t = 0; t < 160; ++t) {
    rows.push_back(t % 9 == 4 ? std::numeric_limits<double>::quiet_NaN() : x[t]);
    rows.push_back(y[t]);
  }
  ForecastRun whole(options);
  Forecasts all = whole.Next(rows);
  const report::TemporaryFolder folder;
  for (const std::int64_t cut : {2, 5, 70}) {
    ForecastRun first(options);
    first.Next(std::span(rows).first(static_cast<std::size_t>(2 * cut)));
    first.Save(folder / "m");
    ForecastRun second(options);
    second.Resume(folder / "m");
    Forecasts rest = second.Next(std::span(rows).subspan(static_cast<std::size_t>(2 * cut)));
    for (std::int64_t method = 1; method < 4; ++method) {
      for (std::int64_t t = cut; t < 160; ++t) {
        for (std::size_t c = 0; c < 2; ++c) {
          const double one = all.At(method, t)[c], other = rest.At(method, t - cut)[c];
          EXPECT_TRUE(one == other || (std::isnan(one) && std::isnan(other))) << t;
        }
      }
    }
    EXPECT_EQ(second.Bandwidths(), whole.Bandwidths());
  }
  EXPECT_TRUE(SavedOptions(folder / "m").selects_bandwidth);
  options.selects_bandwidth = false;
  ForecastRun other(options);
  EXPECT_THROW(other.Resume(folder / "m"), Error);
  // A column of the table of errors, empty for a memory without a kernel.
  options.selects_bandwidth = true;
  const report::Table shown = ErrorTable(whole, options);
  EXPECT_EQ(shown.columns().back().name, "bandwidth");
  const std::size_t last = shown.columns().size() - 1;
  EXPECT_NE(shown.Shown(1, last), "");
  EXPECT_EQ(shown.Shown(2, last), "");
}

TEST(Bandwidth, IsRefusedWhereThereIsNoneToSelect) {
  ForecastOptions options{.columns = {"x"}, .lags = 2};
  options.selects_bandwidth = true;
  for (const char* text : {"rls", "softmax", "kernel_ridge{kernel: gaussian, bandwidth: 1}"}) {
    options.memories = {{text, ParseRecipe(text)}};
    try {
      const ForecastRun run(options);
      FAIL() << text;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("--bandwidth auto must be given with a memory"),
                std::string::npos)
          << error.what();
    }
  }
}

}  // namespace
}  // namespace ttr::experiments
