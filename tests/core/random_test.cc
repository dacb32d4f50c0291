#include "ttr/util/random.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <set>

#include "ttr/error.h"

namespace ttr {
namespace {

constexpr double kEps = std::numeric_limits<double>::epsilon();
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// Made by a second implementation of Philox4x32-10 (in Python) that gives the three known answers
// of Random123; the first two rows here are the first of those.
TEST(CounterRandom, GivesTheKnownAnswersOfPhilox) {
  struct Case {
    std::uint64_t seed, stream, index, bits;
  };
  const Case cases[] = {
      {0x0u, 0x0u, 0x0u, 0xe169c58d6627e8d5u},
      {0x0u, 0x0u, 0x1u, 0x9b00dbd8bc57ac4cu},
      {0x299f31d0a4093822u, 0x370734413198a2eu, 0xb4611a6487ed510u, 0x572a2f272fe11a02u},
      {0x299f31d0a4093822u, 0x370734413198a2eu, 0xb4611a6487ed511u, 0x78d5e3252f88763bu},
      {0xffffffffffffffffu, 0xffffffffffffffffu, 0xffffffffffffffffu, 0x71e0a347b949da37u},
      {0x7u, 0x3u, 0x3e8u, 0xf1731148e2a5b528u},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(CounterRandom(c.seed, c.stream).BitsAt(c.index), c.bits) << c.index;
  }
}

TEST(CounterRandom, DrawsDoNotDependOnTheOrderOfDrawing) {
  CounterRandom forward(11, 5);
  CounterRandom jumping(11, 5);
  std::vector<std::uint64_t> expected;
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(forward.position(), static_cast<std::uint64_t>(i));
    expected.push_back(forward.Bits());
  }
  for (int step = 0; step < 100; ++step) {
    const int i = step * 37 % 100;
    jumping.Seek(i);
    EXPECT_EQ(jumping.Bits(), expected[i]);
    EXPECT_EQ(forward.BitsAt(i), expected[i]);
  }
  forward.Seek(7);
  const double uniform = forward.Uniform();
  const double normal = forward.Normal();
  EXPECT_EQ(uniform, forward.UniformAt(7));
  EXPECT_EQ(normal, forward.NormalAt(8));
  EXPECT_EQ(forward.position(), 9u);
}

TEST(CounterRandom, SeedsAndStreamsAreDifferentSequences) {
  std::set<std::uint64_t> seen;
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    for (std::uint64_t stream = 0; stream < 4; ++stream) {
      for (std::uint64_t i = 0; i < 16; ++i) {
        seen.insert(CounterRandom(seed, stream).BitsAt(i));
      }
    }
  }
  EXPECT_EQ(seen.size(), 4u * 4u * 16u);
}

// Natural logarithms to 50 digits, rounded (mpmath).
TEST(PortableLog, IsWithinTwoUnitsInTheLastPlace) {
  const double cases[][2] = {
      {0x1p-1074, -744.4400719213812},
      {0x1.8p-1023, -708.6841006047159},
      {1e-300, -690.7755278982137},
      {0.1, -2.3025850929940455},
      {0.5, -0.6931471805599453},
      {0x1.6a09e667f3bccp-1, -0.34657359027997275},
      {0x1.6a09e667f3bcdp-1, -0.3465735902799726},
      {0x1.fffffffffffffp-1, -1.1102230246251565e-16},
      {1, 0.0},
      {0x1.0000000000001p0, 2.2204460492503128e-16},
      {0x1.6a09e667f3bcdp0, 0.3465735902799727},
      {0x1.6a09e667f3bcep0, 0.34657359027997287},
      {2, 0.6931471805599453},
      {3, 1.0986122886681098},
      {10, 2.302585092994046},
      {1e300, 690.7755278982137},
      {0x1.fffffffffffffp1023, 709.782712893384},
  };
  for (const auto& [x, expected] : cases) {
    EXPECT_LE(std::fabs(PortableLog(x) - expected), 2 * kEps * std::fabs(expected)) << x;
  }
  for (const double bad : {0.0, -0.0, -1.0, kInfinity, kNaN}) {
    EXPECT_THROW(PortableLog(bad), Error);
  }
}

// The quantile to 50 digits by Newton's method, rounded (mpmath).
TEST(NormalQuantile, HasARelativeErrorBelow1em15) {
  const double cases[][2] = {
      {0x1p-53, -8.209536151601387},
      {1e-300, -37.0470962993612},
      {1e-15, -7.941345326170997},
      {1e-10, -6.361340902404057},
      {1e-5, -4.264890793922825},
      {0.01, -2.326347874040841},
      {0.07, -1.4757910281791706},
      {0.075, -1.439531470938456},
      {0.08, -1.4050715603096327},
      {0.3, -0.5244005127080408},
      {0x1.0000000000008p-1, 2.2263331397374137e-15},
      {0.6, 0.2533471031357997},
      {0.925, 1.4395314709384561},
      {0.93, 1.475791028179171},
      {0.99, 2.3263478740408408},
      {0.999999999, 5.9978070196016375},
  };
  for (const auto& [p, expected] : cases) {
    EXPECT_LE(std::fabs(NormalQuantile(p) - expected), 1e-15 * std::fabs(expected)) << p;
  }
  EXPECT_EQ(NormalQuantile(0.5), 0.0);
  for (const double bad : {0.0, 1.0, -1.0, kNaN}) {
    EXPECT_THROW(NormalQuantile(bad), Error);
  }
}

TEST(NormalQuantile, IsOddAboutOneHalfAndInvertsTheDistribution) {
  CounterRandom random(3);
  for (int i = 0; i < 2000; ++i) {
    const double p = random.Uniform();
    const double x = NormalQuantile(p);
    EXPECT_EQ(NormalQuantile(1 - p), -x);
    // The condition of p as a function of x is x phi(x) / Phi(x), some x^2 + 1 in the lower tail.
    const double low = std::min(p, 1 - p);
    const double back = 0.5 * std::erfc(std::fabs(x) / std::sqrt(2.0));
    EXPECT_NEAR(back, low, 8 * kEps * (x * x + 1) * low);
  }
}

TEST(CounterRandom, GoldenNormals) {
  CounterRandom random(42);
  const double expected[] = {-0.07882346885253179, -0.41011294279565147, -0.44803662789792775,
                             -0.11476523741853367};
  for (const double x : expected) {
    EXPECT_NEAR(random.Normal(), x, 1e-15 * std::fabs(x));
  }
}

// One bit of one number changes the sum: what every machine and compiler must give.
TEST(CounterRandom, NormalsAreTheSameBitsEverywhere) {
  CounterRandom random(2024, 9);
  std::uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a over whole words
  for (int i = 0; i < 20000; ++i) {
    hash = (hash ^ std::bit_cast<std::uint64_t>(random.Normal())) * 0x100000001b3u;
  }
  EXPECT_EQ(hash, 6041852205647778300u);
}

// Means of n independent terms: four standard errors.
TEST(CounterRandom, MomentsAndTails) {
  constexpr int kDraws = 200000;
  CounterRandom random(1);
  double moments[5] = {};
  int beyond[5] = {};
  double uniform_mean = 0, uniform_square = 0, exponential_mean = 0, lag_one = 0, last = 0;
  for (int i = 0; i < kDraws; ++i) {
    const double x = random.Normal();
    double power = 1;
    for (double& moment : moments) {
      moment += power / kDraws;
      power *= x;
    }
    for (int sigma = 1; sigma < 5; ++sigma) {
      beyond[sigma] += std::fabs(x) > sigma;
    }
    lag_one += x * last / kDraws;
    last = x;
    const double u = random.Uniform();
    EXPECT_GT(u, 0);
    EXPECT_LT(u, 1);
    uniform_mean += u / kDraws;
    uniform_square += u * u / kDraws;
    exponential_mean += random.Exponential() / kDraws;
  }
  const double error = 4 / std::sqrt(static_cast<double>(kDraws));
  EXPECT_NEAR(moments[1], 0, error);
  EXPECT_NEAR(moments[2], 1, error * std::sqrt(2.0));
  EXPECT_NEAR(moments[3], 0, error * std::sqrt(15.0));
  EXPECT_NEAR(moments[4], 3, error * std::sqrt(96.0));
  EXPECT_NEAR(lag_one, 0, error);
  EXPECT_NEAR(uniform_mean, 0.5, error * std::sqrt(1.0 / 12));
  EXPECT_NEAR(uniform_square, 1.0 / 3, error * std::sqrt(4.0 / 45));
  EXPECT_NEAR(exponential_mean, 1, error);
  for (int sigma = 1; sigma < 5; ++sigma) {
    const double p = std::erfc(sigma / std::sqrt(2.0));
    EXPECT_NEAR(beyond[sigma], p * kDraws, 4 * std::sqrt(p * kDraws)) << sigma;
  }
}

TEST(CounterRandom, BelowIsInRangeAndEven) {
  CounterRandom random(2);
  int count[7] = {};
  constexpr int kDraws = 70000;
  for (int i = 0; i < kDraws; ++i) {
    const std::int64_t x = random.Below(7);
    ASSERT_GE(x, 0);
    ASSERT_LT(x, 7);
    ++count[x];
  }
  for (const int c : count) {
    EXPECT_NEAR(c, kDraws / 7, 4 * std::sqrt(kDraws / 7.0));
  }
  EXPECT_EQ(random.Below(1), 0);
  EXPECT_THROW(random.Below(0), Error);
}

// With n = 3 * 2^61 only three quarters of all draws are usable. Taking the rest too, modulo n,
// would give the lower third of the numbers a probability of 3/8.
TEST(CounterRandom, BelowIsUnbiasedForLargeRanges) {
  CounterRandom random(4);
  constexpr std::int64_t kRange = std::int64_t{3} << 61;
  constexpr int kDraws = 30000;
  int low = 0;
  for (int i = 0; i < kDraws; ++i) {
    low += random.Below(kRange) < kRange / 3;
  }
  EXPECT_NEAR(low, kDraws / 3, 4 * std::sqrt(kDraws * 2.0 / 9));
}

TEST(CounterRandom, EveryOrderIsEquallyProbable) {
  CounterRandom random(5);
  std::vector<int> count(27, 0);
  constexpr int kDraws = 12000;
  for (int i = 0; i < kDraws; ++i) {
    const std::vector<std::int64_t> p = random.Permutation(3);
    ++count[p[0] * 9 + p[1] * 3 + p[2]];
  }
  for (const int code : {5, 7, 11, 15, 19, 21}) {  // 012, 021, 102, 120, 201, 210 in base 3
    EXPECT_NEAR(count[code], kDraws / 6, 4 * std::sqrt(kDraws / 6.0)) << code;
    count[code] = 0;
  }
  EXPECT_EQ(*std::max_element(count.begin(), count.end()), 0);
  EXPECT_TRUE(random.Permutation(0).empty());
  EXPECT_THROW(random.Permutation(-1), Error);
}

TEST(CounterRandom, ChooseTakesDifferentNumbersEvenly) {
  CounterRandom random(6);
  int first[5] = {};
  int taken[5] = {};
  constexpr int kDraws = 20000;
  for (int i = 0; i < kDraws; ++i) {
    const std::vector<std::int64_t> chosen = random.Choose(5, 3);
    ASSERT_EQ(std::set<std::int64_t>(chosen.begin(), chosen.end()).size(), 3u);
    ++first[chosen[0]];
    for (const std::int64_t x : chosen) {
      ++taken[x];
    }
  }
  for (int x = 0; x < 5; ++x) {
    EXPECT_NEAR(first[x], kDraws / 5, 4 * std::sqrt(kDraws / 5.0));
    EXPECT_NEAR(taken[x], kDraws * 3 / 5, 4 * std::sqrt(kDraws * 0.24));
  }
  const std::vector<std::int64_t> huge = random.Choose(std::int64_t{1} << 62, 3);
  EXPECT_EQ(huge.size(), 3u);
  std::vector<std::int64_t> all = random.Choose(4, 4);
  std::sort(all.begin(), all.end());
  EXPECT_EQ(all, (std::vector<std::int64_t>{0, 1, 2, 3}));
  EXPECT_TRUE(random.Choose(0, 0).empty());
  EXPECT_THROW(random.Choose(3, 4), Error);
  EXPECT_THROW(random.Choose(3, -1), Error);
}

}  // namespace
}  // namespace ttr
