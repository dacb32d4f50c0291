#include <gtest/gtest.h>

#include <cmath>

#include "experiments/data/regression.h"
#include "ttr/error.h"

namespace ttr::experiments {
namespace {

TEST(Regression, KeysQueriesValuesAndTargetsBelongTogether) {
  SwitchingProcess process;
  process.tokens = 12;
  process.key_dim = 5;
  const RegressionData data = MakeRegression(process, 3);
  ASSERT_EQ(data.keys.size(), 14u * 5u);
  ASSERT_EQ(data.k.size(), 12u * 5u);
  for (int t = 0; t < 12; ++t) {
    double norm[2] = {};
    for (int i = 0; i < 5; ++i) {
      EXPECT_EQ(data.k[t * 5 + i], data.keys[t * 5 + i]);
      EXPECT_EQ(data.q[t * 5 + i], data.keys[(t + 1) * 5 + i]);
      norm[0] += std::pow(data.keys[(t + 1) * 5 + i], 2);
      norm[1] += std::pow(data.keys[(t + 2) * 5 + i], 2);
    }
    for (int i = 0; i < 5; ++i) {
      EXPECT_NEAR(data.v[t * 5 + i], data.q[t * 5 + i] / std::sqrt(norm[0]), 1e-15);
      EXPECT_NEAR(data.target[t * 5 + i], data.keys[(t + 2) * 5 + i] / std::sqrt(norm[1]), 1e-15);
      if (t + 1 < 12) {
        EXPECT_EQ(data.target[t * 5 + i], data.v[(t + 1) * 5 + i]);
      }
    }
  }
}

// The noise recovered from the keys: (k_{t+1} - a_t k_t) / noise must have covariance Sigma, with
// the decay that the phase says. Row i holds k_{i+1}, so the step from row i is that of t = i + 1.
TEST(Regression, NoiseHasTheStatedCovarianceInBothPhases) {
  for (const double rho : {0.5, -0.2, 0.0}) {
    SwitchingProcess process;
    process.tokens = 40000;
    process.key_dim = 4;
    process.rho = rho;
    const RegressionData data = MakeRegression(process, 8);
    for (const bool first : {true, false}) {
      const int begin = first ? 0 : 9999;
      const int end = first ? 9999 : 40000;
      const double decay = first ? 0.9 : 0.999;
      double covariance[4][4] = {};
      for (int t = begin; t < end; ++t) {
        double eps[4];
        for (int i = 0; i < 4; ++i) {
          eps[i] = (data.keys[(t + 1) * 4 + i] - decay * data.keys[t * 4 + i]) / 0.02;
        }
        for (int i = 0; i < 4; ++i) {
          for (int j = 0; j < 4; ++j) {
            covariance[i][j] += eps[i] * eps[j] / (end - begin);
          }
        }
      }
      const double error = 4 * std::sqrt(2.0 / (end - begin));  // four standard errors
      for (int i = 0; i < 4; ++i) {
        for (int j = 0; j < 4; ++j) {
          EXPECT_NEAR(covariance[i][j], i == j ? 1 : rho, error) << rho << " " << i << " " << j;
        }
      }
    }
  }
}

// From rest, k_1 has the variance noise^2; stationary, noise^2 / (1 - a^2).
TEST(Regression, StartsFromRestOrStationary) {
  for (const KeyStart start : {KeyStart::kRest, KeyStart::kStationary}) {
    SwitchingProcess process;
    process.tokens = 4;
    process.start = start;
    double square = 0;
    constexpr int kSeeds = 500;
    for (int seed = 0; seed < kSeeds; ++seed) {
      const RegressionData data = MakeRegression(process, seed);
      for (int i = 0; i < 64; ++i) {
        square += data.k[i] * data.k[i] / (64 * kSeeds);
      }
    }
    const double expected = 0.0004 / (start == KeyStart::kRest ? 1 : 0.19);
    // One seed's mean square of 64 values with correlation 1/2 has variance 2 tr(Sigma^2) / 64^2.
    const double trace = 64 * (1 + 63 * 0.25);
    const double error = 4 * std::sqrt(2 * trace / (64.0 * 64.0) / kSeeds);
    EXPECT_NEAR(square / expected, 1, error);
  }
}

// The forecaster v_t of v_{t+1} over the three phases of figure 2. Means and deviations between
// seeds are those of 3000 seeds of a second implementation (in NumPy).
TEST(Regression, NaiveForecastHasTheKnownLoss) {
  const double mean[] = {0.2413, 0.0423, 0.0107};
  const double deviation[] = {0.0416, 0.0154, 0.0046};
  double loss[3] = {};
  constexpr int kSeeds = 100;
  for (int seed = 0; seed < kSeeds; ++seed) {
    const RegressionData data = MakeRegression({}, seed);
    for (int t = 0; t < 256; ++t) {
      double distance = 0;
      for (int i = 0; i < 64; ++i) {
        distance += std::pow(data.target[t * 64 + i] - data.v[t * 64 + i], 2);
      }
      loss[t < 64 ? 0 : t < 128 ? 1 : 2] += distance / (kSeeds * (t < 128 ? 64 : 128));
    }
  }
  for (int phase = 0; phase < 3; ++phase) {
    EXPECT_NEAR(loss[phase], mean[phase], 4 * deviation[phase] / std::sqrt(1.0 * kSeeds));
  }
}

TEST(Regression, SameSeedSameNumbers) {
  const RegressionData a = MakeRegression({}, 5);
  EXPECT_EQ(a.keys, MakeRegression({}, 5).keys);
  EXPECT_NE(a.keys, MakeRegression({}, 6).keys);
}

TEST(Regression, RefusesWhatHasNoMeaning) {
  const auto refuses = [](auto change, const char* name) {
    SwitchingProcess process;
    change(process);
    try {
      MakeRegression(process, 0);
      ADD_FAILURE() << name;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(name), std::string::npos) << error.what();
    }
  };
  refuses([](auto& p) { p.tokens = 0; }, "tokens");
  refuses([](auto& p) { p.key_dim = 0; }, "key_dim");
  refuses([](auto& p) { p.rho = 1.01; }, "rho");
  refuses([](auto& p) { p.rho = -0.02; }, "rho");  // below -1/63
  refuses([](auto& p) { p.noise = 0; }, "noise");
  refuses([](auto& p) { p.first_decay = 1.1; }, "first_decay");
  refuses([](auto& p) { p.second_decay = std::nan(""); }, "second_decay");
}

}  // namespace
}  // namespace ttr::experiments
