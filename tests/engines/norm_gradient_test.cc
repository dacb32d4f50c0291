#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "src/engines/rows/norm.h"
#include "tests/engines/norm_case.h"
#include "tests/support/targets.h"
#include "ttr/norm.h"

namespace ttr::test {
namespace {

class NormGradientOnTarget : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ForceTarget(GetParam()); }
  void TearDown() override { ForceTarget(""); }
};
INSTANTIATE_TEST_SUITE_P(Targets, NormGradientOnTarget, testing::ValuesIn(test::Targets()),
                         [](const auto& target) { return target.param; });

/// Gradients by central differences of the equations in double.
struct Derivatives {
  explicit Derivatives(const NormProblem& problem)
      : dy(DType::kFloat64, problem.x.shape()), dx(DType::kFloat64, problem.x.shape()) {
    FillNormal(dy, 9);
    if (problem.c.weight) dweight = Tensor(DType::kFloat64, problem.weight.shape());
    if (problem.c.bias) dbias = Tensor(DType::kFloat64, problem.bias.shape());
    if (problem.c.gate) dgate = Tensor(DType::kFloat64, problem.x.shape());
    for (const Tensor* tensor : {&dx, &dweight, &dbias, &dgate}) {
      if (tensor->defined()) FillNan(*tensor);
    }
  }
  NormGradients call() const { return {dx.view(), dweight.view(), dbias.view(), dgate.view()}; }
  double Loss(const NormProblem& problem) const {
    const NormExpected expected = Normed(problem);
    double loss = 0;
    for (std::size_t i = 0; i < expected.y.size(); ++i) loss += dy.as<double>()[i] * expected.y[i];
    return loss;
  }
  Tensor dy, dx, dweight, dbias, dgate;
};

TEST_P(NormGradientOnTarget, IsTheDerivative) {
  for (NormCase c : NormCases()) {
    if (c.data != DType::kFloat64 || c.dim > 16 || c.tokens > 3) continue;
    const NormProblem problem(c);
    const Derivatives g(problem);
    ApplyNormGradient(problem.norm(), problem.inputs(), g.dy, g.call());
    const auto expect = [&](const Tensor& input, const Tensor& gradient, const char* name) {
      for (std::int64_t i = 0; i < input.elements(); ++i) {
        double& value = input.as<double>()[static_cast<std::size_t>(i)];
        const double before = value;
        // Rows of one or two entries may be near 0, where the norm curvatures: a step that is small
        // beside them.
        const double step = 1e-5 * std::abs(before);
        value = before + step;
        const double above = g.Loss(problem);
        value = before - step;
        const double below = g.Loss(problem);
        value = before;
        const double expected = (above - below) / (2 * step);
        ASSERT_NEAR(gradient.as<double>()[static_cast<std::size_t>(i)], expected,
                    1e-7 * (1 + std::abs(expected)) + 1e-14 * std::abs(above) / step)
            << c << " " << name << " " << i;
      }
    };
    expect(problem.x, g.dx, "dx");
    if (c.weight) expect(problem.weight, g.dweight, "dweight");
    if (c.bias) expect(problem.bias, g.dbias, "dbias");
    if (c.gate) expect(problem.gate, g.dgate, "dgate");
    if (HasFatalFailure()) return;
  }
}

TEST(NormGradient, InNarrowTypesIsThatInDouble) {
  for (const RowNorm kind : {RowNorm::kL2, RowNorm::kRms, RowNorm::kLayer}) {
    NormCase c{.kind = kind, .tokens = 300, .dim = 24, .weight = true, .bias = true, .gate = true};
    const NormProblem narrow(c);
    c.data = DType::kFloat64;
    const NormProblem wide(c);
    CopyInto(narrow.x, wide.x);
    CopyInto(narrow.weight, wide.weight);
    CopyInto(narrow.bias, wide.bias);
    CopyInto(narrow.gate, wide.gate);
    const Derivatives g(narrow), exact(wide);
    ApplyNormGradient(narrow.norm(), narrow.inputs(), g.dy, g.call());
    ApplyNormGradient(wide.norm(), wide.inputs(), exact.dy, exact.call());
    // Terms are products of some four normal numbers, below 100; parameters sum one a row.
    const double eps = static_cast<double>(std::numeric_limits<float>::epsilon());
    const auto expect = [&](const Tensor& a, const Tensor& b, double terms, const char* name) {
      const std::vector<double> values(b.as<double>().begin(), b.as<double>().end());
      ExpectWithin(a, values, std::vector<double>(values.size(), 100 * eps * std::sqrt(terms)),
                   name);
    };
    expect(g.dx, exact.dx, 1, "dx");
    expect(g.dgate, exact.dgate, 1, "dgate");
    expect(g.dweight, exact.dweight, 300, "dweight");
    expect(g.dbias, exact.dbias, 300, "dbias");
  }
}

/// Where the root is 0 there is no gradient, and rows beside it have theirs.
TEST_P(NormGradientOnTarget, IsZeroWhereTheRootIs) {
  for (const rows::NormKind kind :
       {rows::NormKind::kL2, rows::NormKind::kRms, rows::NormKind::kLayer}) {
    for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
      const Tensor x(dtype, {1, 2, 1, 19}), dy(dtype, x.shape()), dx(dtype, x.shape());
      FillNormal(x, 1);
      FillNormal(dy, 2);
      FillNormal(dx, 3);
      for (std::int64_t i = 0; i < 19; ++i) {
        x.view().Set({0, 0, 0, i}, kind == rows::NormKind::kLayer ? 2 : 0);
      }
      rows::NormaliseGradient({kind, 0, x, {}, {}, {}}, dy, {dx, {}, {}, {}}, SequentialExecutor());
      double largest = 0;
      for (std::int64_t i = 0; i < 19; ++i) {
        EXPECT_EQ(dx.view().At({0, 0, 0, i}), 0) << i;
        largest = std::max(largest, std::abs(dx.view().At({0, 1, 0, i})));
      }
      EXPECT_GT(largest, 0.01);
      EXPECT_LT(largest, 10);
    }
  }
}

TEST(Norm, HasTheSameBitsForAnyNumberOfThreads) {
  const NormCase c{.tokens = 3000, .dim = 48, .weight = true, .gate = true, .shared = true};
  const auto three = MakeExecutor(3);
  const NormProblem one(c), many(c);
  const Derivatives g(one), h(many);
  ApplyNorm(one.norm(), one.inputs(), one.y, SequentialExecutor());
  ApplyNorm(many.norm(), many.inputs(), many.y, *three);
  ApplyNormGradient(one.norm(), one.inputs(), g.dy, g.call(), SequentialExecutor());
  ApplyNormGradient(many.norm(), many.inputs(), h.dy, h.call(), *three);
  EXPECT_TRUE(
      std::equal(one.y.as<float>().begin(), one.y.as<float>().end(), many.y.as<float>().begin()));
  EXPECT_TRUE(
      std::equal(g.dx.as<double>().begin(), g.dx.as<double>().end(), h.dx.as<double>().begin()));
  EXPECT_TRUE(std::equal(g.dweight.as<double>().begin(), g.dweight.as<double>().end(),
                         h.dweight.as<double>().begin()));
}

}  // namespace
}  // namespace ttr::test
