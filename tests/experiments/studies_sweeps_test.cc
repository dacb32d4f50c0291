// Gauss-Seidel sweeps of the dual: the delta rule at one end, least squares at the other, for every
// prefix.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "experiments/studies/sweeps.h"
#include "ttr/util/random.h"

namespace ttr::experiments {
namespace {

constexpr std::int64_t kTokens = 24, kKeys = 8, kValues = 3;

// Keys of different lengths, all below 1.
struct Sequence {
  Sequence() {
    CounterRandom random(5);
    for (std::int64_t t = 0; t < kTokens; ++t) {
      const double length = .3 + .6 * random.Uniform();
      for (auto* rows : {&k, &q}) {
        std::vector<double> x(kKeys);
        double squares = 0;
        for (double& e : x) squares += std::pow(e = random.Normal(), 2);
        for (const double e : x) rows->push_back(length * e / std::sqrt(squares));
      }
      for (std::int64_t c = 0; c < kValues; ++c) v.push_back(random.Normal());
    }
  }
  PairRows rows() const { return {kKeys, kValues, k, v, q}; }
  std::vector<double> k, v, q;
};

double Difference(const std::vector<double>& a, const std::vector<double>& b) {
  EXPECT_EQ(a.size(), b.size());
  double greatest = 0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    greatest = std::fabs(a[i] - b[i]) <= greatest ? greatest : std::fabs(a[i] - b[i]);
  }
  return greatest;
}

TEST(Sweeps, TheFirstIsLonghornForAConstantRidge) {
  const Sequence s;
  for (const double step : {.2, 1., 50.}) {
    const std::vector<double> ridges(kTokens, 1 / step);
    const std::vector<double> delta = StudyLayer("longhorn", {.step = step}).Forward(s.rows());
    EXPECT_LE(Difference(SweepPrefixes(s.rows(), ridges, 1), delta), 1e-13) << step;
    EXPECT_GT(Difference(SweepPrefixes(s.rows(), ridges, 2), delta), 1e-3) << step;
  }
}

TEST(Sweeps, TheFirstIsDeltaNetForTheRidgesOfItsStep) {
  const Sequence s;
  for (const double step : {.2, .9}) {
    const std::vector<double> ridges = RidgesOfStep(s.rows(), step);
    EXPECT_GT(*std::min_element(ridges.begin(), ridges.end()), 0);
    const std::vector<double> delta = StudyLayer("deltanet", {.step = step}).Forward(s.rows());
    EXPECT_LE(Difference(SweepPrefixes(s.rows(), ridges, 1), delta), 1e-13) << step;
  }
}

TEST(Sweeps, TheFirstIsNlmsWithoutARidge) {
  const Sequence s;
  EXPECT_LE(Difference(SweepPrefixes(s.rows(), std::vector<double>(kTokens), 1),
                       StudyLayer("nlms{eps: 0}").Forward(s.rows())),
            1e-13);
}

TEST(Sweeps, ManyAreLeastSquaresForEveryPrefix) {
  const Sequence s;
  const std::vector<double> swept = SweepPrefixes(s.rows(), std::vector<double>(kTokens, .5), 200);
  const StudyLayer exact("rls{ridge: 0.5}", {}, Runs::kLeastSquaresEngine);
  EXPECT_EQ(exact.engine(), "least_squares");
  EXPECT_LE(Difference(swept, exact.Forward(s.rows())), 1e-13);
  EXPECT_LE(Difference(swept, StudyLayer("rls{ridge: 0.5}").Forward(s.rows())), 1e-13);
}

// Each ridge of its own is a weight: a pair counts 1 / r, beside a ridge of 1.
TEST(Sweeps, ManyAreWeightedLeastSquaresForTheRidgesOfAStep) {
  const Sequence s;
  const std::vector<double> ridges = RidgesOfStep(s.rows(), .9);
  Sequence weighted = s;
  for (std::size_t i = 0; i < kTokens; ++i) {
    for (std::size_t d = 0; d < kKeys; ++d) weighted.k[i * kKeys + d] /= std::sqrt(ridges[i]);
    for (std::size_t c = 0; c < kValues; ++c) weighted.v[i * kValues + c] /= std::sqrt(ridges[i]);
  }
  EXPECT_LE(Difference(SweepPrefixes(s.rows(), ridges, 400),
                       StudyLayer("rls{ridge: 1}").Forward(weighted.rows())),
            1e-12);
}

}  // namespace
}  // namespace ttr::experiments
