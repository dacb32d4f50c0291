#include "ttr/gates.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "tests/engines/gates_case.h"
#include "tests/support/targets.h"
#include "ttr/error.h"

namespace ttr::test {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::vector<double> Values(const TensorView& tensor) {
  const Tensor wide = Tensor::Copy(tensor, DType::kFloat64);
  return {wide.as<double>().begin(), wide.as<double>().end()};
}

std::string MessageOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

class GatesOnTarget : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ForceTarget(GetParam()); }
  void TearDown() override { ForceTarget(""); }
};
INSTANTIATE_TEST_SUITE_P(Targets, GatesOnTarget, testing::ValuesIn(test::Targets()),
                         [](const auto& target) { return target.param; });

TEST_P(GatesOnTarget, AreTheEquations) {
  for (const GateCase& c : GateCases()) {
    const GateProblem problem(c);
    const GateExpected expected = Gated(problem);
    problem.Apply();
    ExpectWithin(problem.y, expected.y, expected.bound, testing::PrintToString(c));
    if (HasFatalFailure()) return;
    for (const double y : Values(problem.y)) {
      ASSERT_TRUE(c.rate ? y <= 0 : y >= 0) << c << " " << y;
    }
  }
}

TEST_P(GatesOnTarget, OfASkipIsTheEquation) {
  for (const SkipCase& c : SkipCases()) {
    const SkipProblem problem(c);
    const GateExpected expected = Skipped(problem);
    ApplySkipGate(problem.gate(), problem.inputs(), problem.out);
    ExpectWithin(problem.out, expected.y, expected.bound, testing::PrintToString(c));
    if (HasFatalFailure()) return;
  }
}

TEST_P(GatesOnTarget, NeitherOverflowNorVanish) {
  const double xs[] = {-kInfinity, -1e30, -80, -30, -1e-20, 0, 30, 1e30, kInfinity, kNaN};
  for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
    const Tensor x(dtype, {1, 1, 10}), y(dtype, x.shape()), dx(dtype, x.shape());
    const Tensor dy(dtype, x.shape());
    for (std::int64_t i = 0; i < 10; ++i) {
      x.view().Set({0, 0, i}, xs[i]);
      dy.view().Set({0, 0, i}, 1);
    }
    ApplyStepGate({}, x, y);
    ApplyStepGateGradient({}, x, dy, {.dx = dx});
    const double eps = dtype == DType::kFloat32
                           ? static_cast<double>(std::numeric_limits<float>::epsilon())
                           : std::numeric_limits<double>::epsilon();
    const auto expect = [&](std::int64_t i, double softplus, double slope) {
      EXPECT_NEAR(y.view().At({0, 0, i}), softplus, 4 * eps * softplus) << xs[i];
      EXPECT_NEAR(dx.view().At({0, 0, i}), slope, 4 * eps * slope) << xs[i];
    };
    expect(2, std::exp(-80.0), std::exp(-80.0));
    expect(3, std::log1p(std::exp(-30.0)), 1 / (1 + std::exp(30.0)));
    expect(4, std::log(2.0), 0.5);
    expect(5, std::log(2.0), 0.5);
    expect(6, 30 + std::exp(-30.0), 1 / (1 + std::exp(-30.0)));
    for (const std::int64_t i : {0, 1}) {
      EXPECT_EQ(y.view().At({0, 0, i}), 0);
      EXPECT_EQ(dx.view().At({0, 0, i}), 0);
    }
    EXPECT_EQ(y.view().At({0, 0, 7}), x.view().At({0, 0, 7}));
    EXPECT_EQ(y.view().At({0, 0, 8}), kInfinity);
    EXPECT_EQ(dx.view().At({0, 0, 8}), 1);
    EXPECT_TRUE(std::isnan(y.view().At({0, 0, 9})));
    EXPECT_TRUE(std::isnan(dx.view().At({0, 0, 9})));
  }
}

TEST(Gates, KeepNanWithItsNumber) {
  const GateProblem p(GateCase{.dim = 11});
  p.x.view().Set({0, 1, 1, 10}, kNaN);
  p.Apply();
  const SkipProblem s(SkipCase{.dim = 11});
  s.x.view().Set({0, 1, 1, 10}, kNaN);
  ApplySkipGate(s.gate(), s.inputs(), s.out);
  for (std::int64_t t = 0; t < 3; ++t) {
    for (std::int64_t h = 0; h < 2; ++h) {
      for (std::int64_t d = 0; d < 11; ++d) {
        const bool is_its = t == 1 && h == 1 && d == 10;
        EXPECT_EQ(std::isnan(p.y.view().At({0, t, h, d})), is_its);
        EXPECT_EQ(std::isnan(s.out.view().At({0, t, h, d})), is_its);
      }
    }
  }
}

TEST(Gates, MayWriteOverTheirInput) {
  for (const bool rate : {false, true}) {
    const GateProblem apart(GateCase{.rate = rate}), over(GateCase{.rate = rate});
    apart.Apply();
    if (rate) {
      ApplyDecayGate({over.a.view(), over.bias.view()}, over.x, over.x);
    } else {
      ApplyStepGate({over.bias.view()}, over.x, over.x);
    }
    EXPECT_EQ(Values(apart.y), Values(over.x));
  }
  const SkipProblem apart(SkipCase{}), over(SkipCase{});
  ApplySkipGate(apart.gate(), apart.inputs(), apart.out);
  ApplySkipGate(over.gate(), over.inputs(), over.y);
  EXPECT_EQ(Values(apart.out), Values(over.y));
}

TEST(Gates, TakeAnyStrides) {
  for (const std::int64_t dim : {0, 5}) {
    const GateProblem plain(GateCase{.batch = 2, .tokens = 4, .heads = 3, .dim = dim});
    plain.Apply();
    // Tokens backwards, and room beside what there is.
    Tensor x(DType::kFloat32, {400}), y(DType::kFloat32, {400});
    const std::vector<std::int64_t> strides =
        dim == 0 ? std::vector<std::int64_t>{1, -4, 1} : std::vector<std::int64_t>{120, -30, 7, 1};
    const auto view = [&](const Tensor& memory) {
      std::vector<std::int64_t> own = strides;
      if (dim == 0) own[0] = 20;
      return TensorView(memory.as<float>().data() + 150, DType::kFloat32, plain.x.shape(), own);
    };
    CopyInto(plain.x, view(x));
    ApplyDecayGate({plain.a.view(), plain.bias.view()}, view(x), view(y));
    EXPECT_EQ(Values(view(y)), Values(plain.y));
    std::int64_t written = 0;
    for (const float value : y.as<float>()) written += value != 0 ? 1 : 0;
    EXPECT_EQ(written, plain.y.elements());
  }
}

TEST(Gates, SayWhatIsWrong) {
  const GateProblem p(GateCase{});
  const SkipProblem s(SkipCase{});
  EXPECT_EQ(MessageOf([&] { ApplyDecayGate({}, p.x, p.y); }),
            "[decay_gate] a must be float32, float64 or bfloat16 [H] or [H,D] = [2, 5] but is "
            "absent");
  EXPECT_EQ(MessageOf([&] { ApplyDecayGate({p.a.view(), p.x.view()}, p.x, p.y); }),
            "[decay_gate] bias must be float32, float64 or bfloat16 [H] or [H,D] = [2, 5] but is "
            "float32 [1, 3, 2, 5]");
  EXPECT_EQ(MessageOf([&] { ApplyDecayGate({p.a.view()}, p.a, p.y); }),
            "[decay_gate] x must be float32, float64 or bfloat16 [B,T,H] or [B,T,H,D] but is "
            "float32 [2]");
  EXPECT_EQ(MessageOf([&] { ApplyDecayGate({p.a.view()}, p.x, p.bias); }),
            "[decay_gate] log_decay must be float32, float64 or bfloat16 as x = [1, 3, 2, 5] but "
            "is float32 [2, 5]");
  EXPECT_EQ(MessageOf([&] { ApplyStepGate({.low = 2, .high = 1}, p.x, p.y); }),
            "[step_gate] low must be a number up to high = 1.000000 but is 2.000000");
  EXPECT_EQ(MessageOf([&] { ApplyStepGate({.low = kNaN}, p.x, p.y); }),
            "[step_gate] low must be a number up to high = inf but is nan");
  EXPECT_EQ(MessageOf([&] { ApplySkipGate({}, s.inputs(), s.out); }),
            "[skip_gate] d must be float32, float64 or bfloat16 [H] or [H,D] = [2, 5] but is "
            "absent");
  EXPECT_EQ(MessageOf([&] { ApplySkipGate(s.gate(), {.y = s.y.view()}, s.out); }),
            "[skip_gate] x must be float32, float64 or bfloat16 beside d, [B,T,H,D] = "
            "[1, 3, 2, 5] but is absent");
  EXPECT_EQ(MessageOf([&] { ApplySkipGate(s.gate(), s.inputs(), s.z); }),
            "[skip_gate] out must be memory of its own but is overlapping z");
  EXPECT_EQ(MessageOf([&] { ApplyStepGateGradient({}, p.x, p.y, {.dx = p.x.view()}); }),
            "[step_gate_gradient] dx must be memory of its own but is overlapping x");
  EXPECT_EQ(MessageOf([&] { ApplyStepGateGradient({}, p.x, p.y, {.dbias = p.bias.view()}); }),
            "[step_gate_gradient] dbias must be absent, for its input is absent but is float32 "
            "[2, 5]");
}

}  // namespace
}  // namespace ttr::test
