#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <numbers>
#include <string>
#include <vector>

#include "src/forecast/residuals.h"
#include "src/forecast/student_t.h"
#include "ttr/error.h"
#include "ttr/util/random.h"

namespace ttr::experiments {

using namespace forecasting;
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// Two-sided points of Student's t at which the tables stand (Abramowitz and Stegun 26.10, Fisher
// and Yates); the digits beyond the tables' are mpmath's.
TEST(StudentQuantile, IsThatOfTheTables) {
  struct Point {
    double degrees, level, t;
  };
  const Point points[] = {
      {1, .5, 1.0},
      {1, .9, 6.3137515146750431},
      {1, .95, 12.706204736174705},
      {1, .99, 63.656741162871581},
      {2, .95, 4.3026527297494639},
      {3, .95, 3.1824463052837096},
      {4, .99, 4.6040948713499932},
      {5, .95, 2.5705818356363155},
      {5, .999, 6.8688266258811102},
      {10, .5, 0.69981206131243163},
      {10, .95, 2.2281388519862747},
      {20, .9, 1.7247182429207873},
      {30, .95, 2.0422724563012383},
      {60, .99, 2.6602830288550372},
      {120, .95, 1.9799304050824408},
      {120, .999, 3.3734537685625004},
      {1000, .95, 1.9623390808264085},
      {1e9, .95, 1.9599639869123255},  // all but the normal's 1.959963984540054
  };
  for (const Point& point : points) {
    EXPECT_NEAR(StudentQuantile(point.level, point.degrees), point.t, 1e-11 * point.t)
        << point.degrees << " " << point.level;
  }
}

TEST(StudentQuantile, ClosedFormsOfFewDegrees) {
  for (const double p : {1e-9, 1e-3, .2, .4999, .5, .7, .95, .999, 1 - 1e-9}) {
    const double outside = 1 - p;
    // p = 2 atan(t) / pi, written twice so that neither end cancels.
    constexpr double kQuarter = std::numbers::pi / 2;
    const double cauchy = p < .5 ? std::tan(kQuarter * p) : 1 / std::tan(kQuarter * outside);
    EXPECT_NEAR(StudentQuantile(p, 1), cauchy, 1e-12 * cauchy) << p;
    // p = t / sqrt(2 + t^2)
    const double t = p * std::sqrt(2 / (outside * (1 + p)));
    EXPECT_NEAR(StudentQuantile(p, 2), t, 1e-12 * t) << p;
  }
}

TEST(StudentQuantile, InvertsTheProbability) {
  for (const double degrees : {.1, .5, 1., 1.7, 4., 19.9, 20., 333.3, 1999.9, 2000., 9000.}) {
    double last = 0;
    for (const double level : {1e-12, 1e-4, .3, .4999999, .5, .8, .9, .99, .9999, 1 - 1e-9}) {
      const double t = StudentQuantile(level, degrees);
      EXPECT_GT(t, last) << degrees << " " << level;
      EXPECT_NEAR(StudentInside(t, degrees), level, 1e-12 * level) << degrees;
      last = t;
    }
  }
  EXPECT_EQ(StudentQuantile(.999, 1e-3), std::numeric_limits<double>::infinity());
}

TEST(StudentQuantile, RefusesWhatHasNoMeaning) {
  for (const double level : {0., 1., -1., kNaN}) EXPECT_THROW(StudentQuantile(level, 3), Error);
  for (const double degrees : {0., -1., kNaN}) EXPECT_THROW(StudentQuantile(.9, degrees), Error);
}

TEST(Residuals, AreTheWeightedSums) {
  CounterRandom random(4);
  for (const double decay : {1., .99, .5, 1e-8}) {
    Residuals residuals(decay, 3);
    for (int i = 0; i < 3; ++i) {
      EXPECT_TRUE(std::isnan(residuals.Scale()));
      residuals.Add(1e9);  // skipped
    }
    long double weights = 0, squares = 0, weights_squared = 0;
    for (int i = 0; i < 500; ++i) {
      const double e = 7 + random.Normal();
      residuals.Add(e);
      residuals.Add(kNaN);
      weights = decay * weights + 1;
      weights_squared = decay * decay * weights_squared + 1;
      squares = decay * squares + static_cast<long double>(e) * e;
      const auto variance = static_cast<double>(squares / weights);
      ASSERT_NEAR(residuals.Scale(), std::sqrt(variance), 1e-14 * std::sqrt(variance)) << i;
      ASSERT_NEAR(residuals.MeanLoss(), variance / 2, 1e-13 * variance) << i;
      const auto samples = static_cast<double>(weights * weights / weights_squared);
      ASSERT_NEAR(residuals.EffectiveSamples(), samples, 1e-12 * samples) << i;
    }
    EXPECT_EQ(residuals.count(), 500);
  }
}

TEST(Residuals, TenMillionRowsAndScalesThatJumpByAMillion) {
  for (const double decay : {1., .999}) {
    CounterRandom random(9);
    Residuals residuals(decay, 0);
    long double weights = 0, squares = 0;
    double worst = 0;
    constexpr int kRows = 10'000'000;
    for (int i = 0; i < kRows; ++i) {
      const double scale = i / 2'000'000 % 2 == 0 ? 1e-3 : 1e3;
      const double e = scale * random.Normal();
      residuals.Add(e);
      weights = decay * weights + 1;
      squares = decay * squares + static_cast<long double>(e) * e;
      if (i % 1000 != 0 && i != kRows - 1) continue;
      const auto expected = static_cast<double>(std::sqrt(squares / weights));
      worst = std::max(worst, std::abs(residuals.Scale() / expected - 1));
    }
    // A row rounds s by an eps or two. Without decay these are 10^7 independent roundings,
    // eps sqrt(10^7) = 7e-13; while s fades by 10^6, which takes log(10^12) / (1 - g) = 28000 rows,
    // it is multiplied by one and the same rounded number: eps 28000 = 6e-12.
    EXPECT_LT(worst, decay == 1 ? 3e-12 : 1.2e-11) << decay;
    // With the decay the last 2 10^6 rows are all that is left, 10^6 below what came before.
    if (decay < 1) {
      EXPECT_NEAR(residuals.Scale(), 1e-3, 1e-4);
    }
  }
}

TEST(Residuals, SquaresNeitherOverflowNorVanish) {
  for (const double size : {1e-300, 1e300}) {
    Residuals residuals(.9, 0);
    for (int i = 0; i < 100; ++i) residuals.Add(i % 2 == 0 ? size : -size);
    EXPECT_NEAR(residuals.Scale(), size, 1e-13 * size);
  }
}

TEST(Residuals, MarginIsStudentsWithTheSamplesThatCount) {
  Residuals residuals(.9, 0);
  EXPECT_TRUE(std::isnan(residuals.Margin(.95, 1)));
  residuals.Add(-2);
  EXPECT_NEAR(residuals.Margin(.95, 1), 2 * 12.706204736174706, 1e-12);
  EXPECT_TRUE(std::isnan(residuals.Margin(.95, 2)));  // two thirds of a degree
  for (int i = 0; i < 1000; ++i) residuals.Add(2);
  EXPECT_NEAR(residuals.EffectiveSamples(), 19, 1e-12);
  EXPECT_NEAR(residuals.Margin(.95, 1), 2 * StudentQuantile(.95, 19), 1e-12);
  EXPECT_NEAR(residuals.Margin(.5, 1), 2 * StudentQuantile(.5, 19), 1e-12);
  EXPECT_NEAR(residuals.Margin(.95, 4), 2 * StudentQuantile(.95, 19 * 12 / 33.), 1e-12);
}

TEST(Residuals, ContinueFromWhatWasSaved) {
  CounterRandom random(1);
  for (const int cut : {0, 2, 5, 40}) {
    Residuals whole(.97, 5), first(.97, 5), second(.97, 5);
    for (int i = 0; i < 80; ++i) {
      const double e = random.Normal();
      whole.Add(e);
      (i < cut ? first : second).Add(e);
      if (i + 1 == cut) second.Load(nlohmann::json::parse(first.Save().dump()));
    }
    EXPECT_EQ(second.Margin(.9, 1), whole.Margin(.9, 1)) << cut;
    EXPECT_EQ(second.count(), whole.count()) << cut;
  }
  Residuals other(.97, 5);
  for (const char* text :
       {R"({"skipped": 6, "count": 0, "scale": 0})", R"({"skipped": 3, "count": 1, "scale": 0})",
        R"({"skipped": 5, "count": 1, "scale": -1})"}) {
    EXPECT_THROW(other.Load(nlohmann::json::parse(text)), Error) << text;
  }
}

TEST(Residuals, RefuseWhatHasNoMeaning) {
  for (const double decay : {0., -1., 1.5, kNaN}) EXPECT_THROW(Residuals(decay, 0), Error);
  EXPECT_THROW(Residuals(1, -1), Error);
}

}  // namespace
}  // namespace ttr::experiments
