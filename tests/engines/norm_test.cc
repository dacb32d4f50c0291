#include "ttr/norm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "tests/engines/norm_case.h"
#include "tests/support/targets.h"
#include "ttr/error.h"

namespace ttr::test {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

class NormOnTarget : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ForceTarget(GetParam()); }
  void TearDown() override { ForceTarget(""); }
};
INSTANTIATE_TEST_SUITE_P(Targets, NormOnTarget, testing::ValuesIn(test::Targets()),
                         [](const auto& target) { return target.param; });

TEST_P(NormOnTarget, IsTheEquation) {
  for (const NormCase& c : NormCases()) {
    const NormProblem problem(c);
    const NormExpected expected = Normed(problem);
    ApplyNorm(problem.norm(), problem.inputs(), problem.y);
    ExpectWithin(problem.y, expected.y, expected.bound, testing::PrintToString(c));
    if (HasFatalFailure()) return;
  }
}

TEST(Norm, ZeroRowsStayZero) {
  for (const RowNorm kind : {RowNorm::kL2, RowNorm::kRms, RowNorm::kLayer}) {
    const NormProblem problem(NormCase{.kind = kind, .eps = 0, .weight = true, .bias = true});
    for (std::int64_t d = 0; d < 5; ++d) problem.x.view().Set({0, 1, 0, d}, 0);
    ApplyNorm(problem.norm(), problem.inputs(), problem.y);
    Tensor dy(DType::kFloat32, problem.x.shape()), dx(DType::kFloat32, problem.x.shape());
    FillNormal(dy, 5);
    FillNan(dx);
    ApplyNormGradient(problem.norm(), problem.inputs(), dy, {.dx = dx});
    for (std::int64_t d = 0; d < 5; ++d) {
      EXPECT_EQ(problem.y.view().At({0, 1, 0, d}), problem.bias.view().At({0, d}));
      EXPECT_EQ(dx.view().At({0, 1, 0, d}), 0);
    }
  }
}

TEST(Norm, OfHugeAndTinyRowsNeitherOverflowsNorVanishes) {
  for (const double scale : {1e30, 1e-30, 1e38, 1e-38}) {
    const NormProblem problem(NormCase{.kind = RowNorm::kL2, .eps = 0, .heads = 1, .dim = 2});
    problem.x.view().Set({0, 0, 0, 0}, 3 * scale);
    problem.x.view().Set({0, 0, 0, 1}, scale);
    ApplyNorm(problem.norm(), problem.inputs(), problem.y);
    EXPECT_NEAR(problem.y.view().At({0, 0, 0, 0}), 3 / std::sqrt(10.0), 1e-6) << scale;
  }
}

// A mean a million times the deviations: in float it would leave nothing.
TEST(Norm, TakesTheMeanOffInDouble) {
  const NormProblem problem(NormCase{.kind = RowNorm::kLayer, .eps = 0, .heads = 1, .dim = 2});
  problem.x.view().Set({0, 0, 0, 0}, 8388608);
  problem.x.view().Set({0, 0, 0, 1}, 8388609);
  ApplyNorm(problem.norm(), problem.inputs(), problem.y);
  EXPECT_EQ(problem.y.view().At({0, 0, 0, 0}), -1);
  EXPECT_EQ(problem.y.view().At({0, 0, 0, 1}), 1);
}

TEST(Norm, KeepsNanInItsRow) {
  for (const RowNorm kind : {RowNorm::kL2, RowNorm::kRms, RowNorm::kLayer}) {
    const NormProblem problem(NormCase{.kind = kind, .weight = true, .gate = true});
    problem.x.view().Set({0, 1, 0, 3}, kNaN);
    ApplyNorm(problem.norm(), problem.inputs(), problem.y);
    for (std::int64_t t = 0; t < 3; ++t) {
      for (std::int64_t h = 0; h < 2; ++h) {
        for (std::int64_t d = 0; d < 5; ++d) {
          EXPECT_EQ(std::isnan(problem.y.view().At({0, t, h, d})), t == 1 && h == 0);
        }
      }
    }
  }
}

TEST(Norm, MayWriteOverItsInput) {
  const NormProblem apart(NormCase{.weight = true, .gate = true});
  const NormProblem over(NormCase{.weight = true, .gate = true});
  ApplyNorm(apart.norm(), apart.inputs(), apart.y);
  ApplyNorm(over.norm(), over.inputs(), over.x);
  for (std::size_t i = 0; i < apart.y.as<float>().size(); ++i) {
    EXPECT_EQ(apart.y.as<float>()[i], over.x.as<float>()[i]);
  }
}

TEST(Norm, TakesAnyStrides) {
  const NormProblem problem(NormCase{.kind = RowNorm::kLayer, .tokens = 4, .weight = true});
  ApplyNorm(problem.norm(), problem.inputs(), problem.y);
  Tensor x(DType::kFloat32, {2, 4, 7}), y(DType::kFloat32, {2, 4, 7});
  const std::int64_t strides[] = {0, 7, 28, 1};
  const TensorView x_view(x.data(), DType::kFloat32, {1, 4, 2, 5}, strides);
  const TensorView y_view(y.data(), DType::kFloat32, {1, 4, 2, 5}, strides);
  CopyInto(problem.x, x_view);
  ApplyNorm(problem.norm(), {.x = x_view}, y_view);
  const Tensor copy = Tensor::Copy(y_view);
  for (std::size_t i = 0; i < copy.as<float>().size(); ++i) {
    EXPECT_EQ(copy.as<float>()[i], problem.y.as<float>()[i]);
  }
  for (std::size_t i = 0; i < y.as<float>().size(); ++i) {
    if (i % 7 >= 5) {
      EXPECT_EQ(y.as<float>()[i], 0) << "beside y";
    }
  }
}

TEST(Norm, SaysWhatIsWrong) {
  const NormProblem p(NormCase{.weight = true});
  const auto message = [&](const Norm& norm, const NormInputs& in, const TensorView& y) {
    try {
      ApplyNorm(norm, in, y);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_EQ(message({.eps = -1}, p.inputs(), p.y),
            "[norm] eps must be a finite number, 0 or more but is -1.000000");
  EXPECT_EQ(message({.weight = p.x.view()}, p.inputs(), p.y),
            "[norm] weight must be float32, float64 or bfloat16 [D] or [H,D] = [2, 5] but is "
            "float32 [1, 3, 2, 5]");
  EXPECT_EQ(message(p.norm(), p.inputs(), p.weight),
            "[norm] y must be float32, float64 or bfloat16 [B,T,H,D] = [1, 3, 2, 5] but is float32 "
            "[2, 5]");
}

}  // namespace
}  // namespace ttr::test
