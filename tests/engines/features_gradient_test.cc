#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "src/engines/rows/features.h"
#include "tests/engines/features_case.h"
#include "tests/support/targets.h"
#include "ttr/util/random.h"

namespace ttr::rows {
namespace {

using definition::Matrix;
using definition::Vector;

class FeaturesGradientOnTarget : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Targets, FeaturesGradientOnTarget, testing::ValuesIn(test::Targets()),
                         [](const auto& target) { return target.param; });

/// dy of y, and gradients of NaN, as the inputs of a problem.
struct Gradients {
  Gradients(const MapProblem& problem, DType dtype) : dy(dtype, problem.y.shape()) {
    CounterRandom random(23);
    for (std::int64_t i = 0; i < dy.elements(); ++i) {
      StoreElement(dy.data(), dtype, i, random.Normal());
    }
    Make(problem.x, dtype, dx);
    Make(problem.w, dtype, dw);
    Make(problem.b, dtype, db);
  }
  static void Make(const Tensor& input, DType dtype, Tensor& gradient) {
    if (!input.defined()) return;
    gradient = Tensor(dtype, input.shape());
    for (std::int64_t i = 0; i < gradient.elements(); ++i) {
      StoreElement(gradient.data(), dtype, i, std::numeric_limits<double>::quiet_NaN());
    }
  }
  FeatureGradients call() const { return {dx.view(), dw.view(), db.view()}; }
  Tensor dy, dx, dw, db;
};

/// The loss sum dy y of a call by the definition, in double.
double Loss(const MapCase& c, const MapProblem& problem, const Tensor& dy) {
  double loss = 0;
  const FeatureCall call = problem.call();
  for (std::int64_t b = 0; b < dy.shape()[0]; ++b) {
    for (std::int64_t t = 0; t < dy.shape()[1]; ++t) {
      for (std::int64_t h = 0; h < dy.shape()[2]; ++h) {
        const Judged judged = Judge(c, call, b, t, h, t, 0);
        for (std::size_t i = 0; i < judged.phi.size(); ++i) {
          loss += judged.phi[i] * dy.view().At({b, t, h, static_cast<std::int64_t>(i)});
        }
      }
    }
  }
  return loss;
}

/// Central differences of the definition by every entry of `input`, against `gradient`. The step is
/// near the cube root of eps: the difference is right to some 1e-9 of the third derivatives, which
/// are of the size of dy here.
void ExpectDerivative(const MapCase& c, const MapProblem& problem, const Tensor& dy,
                      const Tensor& input, const Tensor& gradient, const char* name) {
  constexpr double kStep = 1e-5;
  for (std::int64_t i = 0; i < input.elements(); ++i) {
    const double value = LoadElement(input.data(), DType::kFloat64, i);
    StoreElement(input.data(), DType::kFloat64, i, value + kStep);
    const double above = Loss(c, problem, dy);
    StoreElement(input.data(), DType::kFloat64, i, value - kStep);
    const double below = Loss(c, problem, dy);
    StoreElement(input.data(), DType::kFloat64, i, value);
    const double expected = (above - below) / (2 * kStep);
    const double actual = LoadElement(gradient.data(), DType::kFloat64, i);
    ASSERT_NEAR(actual, expected, 1e-7 * (1 + std::abs(expected))) << c << " " << name << " " << i;
  }
}

std::vector<MapCase> SmallCases() {
  std::vector<MapCase> cases;
  for (const MapCase& c : MapCases()) {
    if ((c.dim == 1 || c.dim == 5) && c.features <= 33) cases.push_back(c);
  }
  // More features than are done together.
  cases.emplace_back(FeatureMap::kHedgehogSoftmax, 3, 130);
  return cases;
}

TEST_P(FeaturesGradientOnTarget, IsTheDerivativeOfTheDefinition) {
  const test::OnTarget on(GetParam());
  for (const MapCase& c : SmallCases()) {
    const bool shared = c.dim == 5;
    const MapProblem problem(c, DType::kFloat64, 1, 2, 2, shared);
    const Gradients g(problem, DType::kFloat64);
    MapFeaturesGradient(c.options, problem.call(), g.dy, g.call(), SequentialExecutor());
    ExpectDerivative(c, problem, g.dy, problem.x, g.dx, "dx");
    if (c.features > 0) ExpectDerivative(c, problem, g.dy, problem.w, g.dw, "dw");
    if (c.has_bias) ExpectDerivative(c, problem, g.dy, problem.b, g.db, "db");
    if (HasFatalFailure()) break;
  }
}

/// The largest entry.
double Size(const Tensor& tensor) {
  double size = 0;
  for (std::int64_t i = 0; i < tensor.elements(); ++i) {
    size = std::max(size, std::abs(LoadElement(tensor.data(), tensor.dtype(), i)));
  }
  return size;
}

void ExpectNear(const MapCase& c, const Tensor& actual, const Tensor& expected, double bound,
                const char* name) {
  for (std::int64_t i = 0; i < actual.elements(); ++i) {
    ASSERT_NEAR(LoadElement(actual.data(), actual.dtype(), i),
                LoadElement(expected.data(), expected.dtype(), i), bound)
        << c << " " << name << " " << i;
  }
}

// Float against double of the same numbers. An entry is a sum of at most `terms` products, none of
// which is larger than the bound's size: dy is below 5, and what multiplies it is part of phi or of
// its slope.
TEST_P(FeaturesGradientOnTarget, InFloatIsThatInDouble) {
  const test::OnTarget on(GetParam());
  for (const MapCase& c : MapCases()) {
    if (c.dim < 8) continue;
    const MapProblem narrow(c, DType::kFloat32, 1, 2, 1);
    MapProblem wide(c, DType::kFloat64, 1, 2, 1);
    CopyInto(narrow.x, wide.x);
    if (c.features > 0) CopyInto(narrow.w, wide.w);
    if (c.has_bias) CopyInto(narrow.b, wide.b);
    const Gradients g(narrow, DType::kFloat32), exact(wide, DType::kFloat64);
    CopyInto(g.dy, exact.dy);
    MapFeaturesGradient(c.options, narrow.call(), g.dy, g.call(), SequentialExecutor());
    MapFeaturesGradient(c.options, wide.call(), exact.dy, exact.call(), SequentialExecutor());
    Tensor phi(DType::kFloat64, wide.y.shape());
    MapFeatures(c.options, wide.call(), phi, SequentialExecutor());
    const double terms = static_cast<double>(std::max(c.phi_dim(), c.dim));
    const double size =
        5 * (1 + Size(phi)) * (1 + Size(wide.x)) * (c.features > 0 ? 1 + Size(wide.w) : 1);
    const double bound = EpsilonOf(DType::kFloat32) * (4 + std::sqrt(terms)) * size;
    ExpectNear(c, g.dx, exact.dx, bound, "dx");
    if (c.features > 0) ExpectNear(c, g.dw, exact.dw, bound, "dw");
    if (c.has_bias) ExpectNear(c, g.db, exact.db, bound, "db");
    if (HasFatalFailure()) break;
  }
}

TEST(FeaturesGradient, HasTheSameBitsForAnyNumberOfThreads) {
  const MapCase c(FeatureMap::kHedgehogExp, 8, 8);
  const auto three = MakeExecutor(3);
  const MapProblem problem(c, DType::kFloat32, 2, 3000, 2, true);
  const Gradients one(problem, DType::kFloat32), many(problem, DType::kFloat32);
  MapFeaturesGradient(c.options, problem.call(), one.dy, one.call(), SequentialExecutor());
  MapFeaturesGradient(c.options, problem.call(), many.dy, many.call(), *three);
  ExpectNear(c, many.dx, one.dx, 0, "dx");
  ExpectNear(c, many.dw, one.dw, 0, "dw");
}

// A NaN reaches the gradients of its row, and of the parameters, and nothing else.
TEST(FeaturesGradient, KeepsNanInItsRow) {
  for (const MapCase& c : MapCases()) {
    if (c.dim != 5) continue;
    const MapProblem problem(c, DType::kFloat32, 1, 3, 1);
    const Gradients g(problem, DType::kFloat32);
    g.dy.view().Set({0, 1, 0, 0}, std::numeric_limits<double>::quiet_NaN());
    MapFeaturesGradient(c.options, problem.call(), g.dy, g.call(), SequentialExecutor());
    for (const std::int64_t t : {0, 2}) {
      for (std::int64_t i = 0; i < c.dim; ++i) {
        EXPECT_TRUE(std::isfinite(g.dx.view().At({0, t, 0, i}))) << c;
      }
    }
  }
}

TEST(FeaturesGradient, OfNoRowsIsZero) {
  const MapCase c(FeatureMap::kT2r, 3, 4);
  const MapProblem problem(c, DType::kFloat32, 1, 0, 2);
  const Gradients g(problem, DType::kFloat32);
  MapFeaturesGradient(c.options, problem.call(), g.dy, g.call(), SequentialExecutor());
  EXPECT_EQ(Size(g.dw), 0);
  EXPECT_EQ(LoadElement(g.dw.data(), DType::kFloat32, 0), 0);
}

}  // namespace
}  // namespace ttr::rows
