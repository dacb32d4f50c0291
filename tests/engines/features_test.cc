#include "src/engines/rows/features.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "tests/engines/features_case.h"
#include "tests/support/engines.h"
#include "tests/support/targets.h"

namespace ttr::rows {
namespace {

using test::OnTarget;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

class FeaturesOnTarget : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Targets, FeaturesOnTarget, testing::ValuesIn(test::Targets()),
                         [](const auto& target) { return target.param; });

// Every row of y against the definition; `storage` is what the rounding to y's dtype adds.
void ExpectDefined(const MapCase& c, const FeatureCall& call, const TensorView& y, double eps,
                   double storage, const std::vector<std::int64_t>& positions = {}) {
  for (std::int64_t b = 0; b < y.size(0); ++b) {
    for (std::int64_t t = 0; t < y.size(1); ++t) {
      const std::int64_t position =
          positions.empty() ? t : positions[static_cast<std::size_t>(b * y.size(1) + t)];
      for (std::int64_t h = 0; h < y.size(2); ++h) {
        const Judged judged = Judge(c, call, b, t, h, position, eps);
        ASSERT_EQ(judged.phi.size(), y.size(3)) << c;
        for (std::int64_t i = 0; i < y.size(3); ++i) {
          const double expected = judged.phi[static_cast<std::size_t>(i)];
          const double bound =
              judged.bound[static_cast<std::size_t>(i)] + storage * std::abs(expected);
          ASSERT_LE(std::abs(y.At({b, t, h, i}) - expected), bound)
              << c << " at " << b << " " << t << " " << h << " " << i << ": " << y.At({b, t, h, i})
              << " instead of " << expected;
        }
      }
    }
  }
}

TEST_P(FeaturesOnTarget, AreThoseOfTheDefinition) {
  const OnTarget target(GetParam());
  ASSERT_EQ(KernelTarget(), GetParam());
  for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
    for (const MapCase& c : MapCases()) {
      const MapProblem problem(c, dtype, 1, 2, 2);
      MapFeatures(c.options, problem.call(), problem.y, SequentialExecutor());
      ExpectDefined(c, problem.call(), problem.y, EpsilonOf(dtype), 0);
      if (HasFatalFailure()) return;
    }
  }
}

// NaN, infinities, overflow and underflow: as the definition, where that is not finite; rows beside
// stay as they are.
TEST_P(FeaturesOnTarget, KeepWhatIsNotFiniteInItsRow) {
  const OnTarget target(GetParam());
  for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
    for (const MapCase& c : MapCases()) {
      if (c.dim != 5 && c.dim != 17) continue;
      for (const double odd : {kNaN, kInf, -kInf}) {
        for (const std::int64_t place : {std::int64_t{0}, c.dim - 1}) {
          const MapProblem problem(c, dtype, 1, 3, 1);
          problem.x.view().Set({0, 1, 0, place}, odd);
          MapFeatures(c.options, problem.call(), problem.y, SequentialExecutor());
          const Judged judged = Judge(c, problem.call(), 0, 1, 0, 1, 0);
          for (std::size_t i = 0; i < judged.phi.size(); ++i) {
            const double y = problem.y.view().At({0, 1, 0, static_cast<std::int64_t>(i)});
            const double expected = judged.phi[i];
            if (std::isfinite(expected)) {
              EXPECT_TRUE(std::isfinite(y)) << c << " of " << odd << " at " << i;
            } else {
              EXPECT_EQ(std::isnan(y), std::isnan(expected)) << c << " of " << odd << " at " << i;
              if (!std::isnan(expected)) {
                EXPECT_EQ(y, expected) << c << " at " << i;
              }
            }
            for (const std::int64_t t : {0, 2}) {
              EXPECT_TRUE(
                  std::isfinite(problem.y.view().At({0, t, 0, static_cast<std::int64_t>(i)})))
                  << c;
            }
          }
        }
      }
    }
  }
}

TEST_P(FeaturesOnTarget, ExponentialsOverflowAndVanishWhereTheyShould) {
  const OnTarget target(GetParam());
  MapCase c(FeatureMap::kHedgehogExp, 1, 1);
  for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
    for (double x : {0.0, 1.0, 50.0, 80.0, 88.0, 89.0, 103.0, 200.0, 700.0, 709.0, 710.0, 800.0}) {
      const MapProblem problem(c, dtype, 1, 1, 1);
      problem.x.view().Set({0, 0, 0, 0}, x);
      problem.w.view().Set({0, 0, 0}, 1);
      MapFeatures(c.options, problem.call(), problem.y, SequentialExecutor());
      const bool narrow = dtype == DType::kFloat32;
      for (const int side : {0, 1}) {
        const double exact = std::exp(side == 0 ? x : -x);
        const double y = problem.y.view().At({0, 0, 0, side});
        const double largest = narrow ? static_cast<double>(std::numeric_limits<float>::max())
                                      : std::numeric_limits<double>::max();
        const double smallest = narrow ? static_cast<double>(std::numeric_limits<float>::min())
                                       : std::numeric_limits<double>::min();
        if (exact > largest) {
          EXPECT_EQ(y, kInf) << x;
        } else {
          EXPECT_NEAR(y, exact, 2 * EpsilonOf(dtype) * std::max(exact, smallest)) << x;
        }
      }
    }
  }
}

TEST_P(FeaturesOnTarget, SineAndCosineOfLargeArguments) {
  const OnTarget target(GetParam());
  MapCase c(FeatureMap::kRfa, 1, 1);
  for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
    for (const double x : {0.0, 3.0, 1000.0, 29999.0, 1e5, 1e7}) {
      const MapProblem problem(c, dtype, 1, 1, 1);
      problem.x.view().Set({0, 0, 0, 0}, x);
      problem.w.view().Set({0, 0, 0}, 1);
      MapFeatures(c.options, problem.call(), problem.y, SequentialExecutor());
      EXPECT_NEAR(problem.y.view().At({0, 0, 0, 0}), std::sin(x), 4 * EpsilonOf(dtype)) << x;
      EXPECT_NEAR(problem.y.view().At({0, 0, 0, 1}), std::cos(x), 4 * EpsilonOf(dtype)) << x;
    }
  }
}

TEST(Features, PositionsStartAnewWithSequences) {
  MapCase c(FeatureMap::kCosformer, 6);
  const std::vector<std::int64_t> bounds = {0, 0, 5, 5, 130, 300};
  const std::vector<std::int64_t> starts = {0, 3, 0, 11, 0};
  std::vector<std::int64_t> positions;
  for (std::size_t n = 0; n + 1 < bounds.size(); ++n) {
    for (std::int64_t t = bounds[n]; t < bounds[n + 1]; ++t) {
      positions.push_back(starts[n] + t - bounds[n]);
    }
  }
  const MapProblem problem(c, DType::kFloat64, 1, 300, 2);
  FeatureCall call = problem.call();
  call.cu_seqlens = bounds;
  call.positions = starts;
  MapFeatures(c.options, call, problem.y, SequentialExecutor());
  ExpectDefined(c, call, problem.y, EpsilonOf(DType::kFloat64), 0, positions);
}

TEST(Features, TakeAnyStridesAndDtypes) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kBFloat16}) {
    for (const MapCase& c : MapCases()) {
      if (c.dim != 5 && c.dim != 16) continue;
      // Heads before tokens, rows with something between them.
      const MapProblem problem(c, dtype, 2, 3, 2, true);
      const std::int64_t d = c.dim, phi = c.phi_dim();
      Tensor x(dtype, {2, 2, 3, d + 3}), y(dtype, {2, 2, 3, phi + 1});
      const std::int64_t x_strides[] = {6 * (d + 3), d + 3, 3 * (d + 3), 1};
      const std::int64_t y_strides[] = {6 * (phi + 1), phi + 1, 3 * (phi + 1), 1};
      const TensorView x_view(x.data(), dtype, {2, 3, 2, d}, x_strides);
      const TensorView y_view(y.data(), dtype, {2, 3, 2, phi}, y_strides);
      CopyInto(problem.x, x_view);
      FeatureCall call = problem.call();
      call.x = x_view;
      MapFeatures(c.options, call, y_view, SequentialExecutor());
      const double storage = dtype == DType::kBFloat16 ? EpsilonOf(dtype) / 2 : 0;
      const DType arithmetic = dtype == DType::kFloat64 ? dtype : DType::kFloat32;
      ExpectDefined(c, call, y_view, EpsilonOf(arithmetic), storage);
      for (std::int64_t row = 0; row < 12; ++row) {
        EXPECT_EQ(LoadElement(y.data(), dtype, row * (phi + 1) + phi), 0) << "written beside y";
      }
      if (HasFatalFailure()) return;
    }
  }
}

TEST(Features, HaveTheSameBitsForAnyNumberOfThreads) {
  const MapCase c(FeatureMap::kHedgehogSoftmax, 24, 16);
  const auto three = MakeExecutor(3);
  const MapProblem one(c, DType::kFloat32, 2, 1000, 3), many(c, DType::kFloat32, 2, 1000, 3);
  MapFeatures(c.options, one.call(), one.y, SequentialExecutor());
  MapFeatures(c.options, many.call(), many.y, *three);
  for (std::int64_t i = 0; i < one.y.elements(); ++i) {
    ASSERT_EQ(LoadElement(one.y.data(), DType::kFloat32, i),
              LoadElement(many.y.data(), DType::kFloat32, i));
  }
}

TEST(Features, NoTokensNoWork) {
  const MapCase c(FeatureMap::kPower2, 4);
  const MapProblem problem(c, DType::kFloat32, 2, 0, 2);
  MapFeatures(c.options, problem.call(), problem.y, SequentialExecutor());
}

}  // namespace
}  // namespace ttr::rows
