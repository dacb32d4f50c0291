#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "tests/engines/gates_case.h"
#include "tests/support/targets.h"
#include "ttr/gates.h"

namespace ttr::test {
namespace {

std::vector<double> Values(const TensorView& tensor) {
  const Tensor wide = Tensor::Copy(tensor, DType::kFloat64);
  return {wide.as<double>().begin(), wide.as<double>().end()};
}

class GatesGradientOnTarget : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ForceTarget(GetParam()); }
  void TearDown() override { ForceTarget(""); }
};
INSTANTIATE_TEST_SUITE_P(Targets, GatesGradientOnTarget, testing::ValuesIn(test::Targets()),
                         [](const auto& target) { return target.param; });

/// A gradient of NaN for a tensor, absent where that is.
Tensor GradientOf(const Tensor& tensor) {
  if (!tensor.defined()) return {};
  Tensor gradient(DType::kFloat64, tensor.shape());
  FillNan(gradient);
  return gradient;
}

/// sum dy y, of the equations in double.
double Loss(const Tensor& dy, const GateExpected& expected) {
  double loss = 0;
  for (std::size_t i = 0; i < expected.y.size(); ++i) loss += dy.as<double>()[i] * expected.y[i];
  return loss;
}

struct GateDerivatives {
  explicit GateDerivatives(const GateProblem& problem)
      : dy(DType::kFloat64, problem.x.shape()),
        dx(GradientOf(problem.x)),
        da(GradientOf(problem.a)),
        dbias(GradientOf(problem.bias)) {
    FillNormal(dy, 9);
  }
  void Apply(const GateProblem& p, Executor& executor = DefaultExecutor()) const {
    if (p.c.rate) {
      ApplyDecayGateGradient({p.a.view(), p.bias.view()}, p.x, dy,
                             {dx.view(), da.view(), dbias.view()}, executor);
    } else {
      ApplyStepGateGradient({p.bias.view(), p.c.low, p.c.high}, p.x, dy, {dx.view(), dbias.view()},
                            executor);
    }
  }
  Tensor dy, dx, da, dbias;
};

struct SkipDerivatives {
  explicit SkipDerivatives(const SkipProblem& problem)
      : dout(DType::kFloat64, problem.y.shape()),
        dy(GradientOf(problem.y)),
        dx(GradientOf(problem.x)),
        dz(GradientOf(problem.z)),
        dd(GradientOf(problem.d)) {
    FillNormal(dout, 9);
  }
  void Apply(const SkipProblem& p, Executor& executor = DefaultExecutor()) const {
    ApplySkipGateGradient(p.gate(), p.inputs(), dout, {dy.view(), dx.view(), dz.view(), dd.view()},
                          executor);
  }
  Tensor dout, dy, dx, dz, dd;
};

/// `gradient` against central differences of loss() by `input`.
template <class LossOf>
void ExpectDerivative(const Tensor& input, const Tensor& gradient, const LossOf& loss,
                      const std::string& what) {
  constexpr double kStep = 1e-5;
  for (std::int64_t i = 0; input.defined() && i < input.elements(); ++i) {
    double& value = input.as<double>()[static_cast<std::size_t>(i)];
    const double before = value;
    value = before + kStep;
    const double above = loss();
    value = before - kStep;
    const double below = loss();
    value = before;
    const double expected = (above - below) / (2 * kStep);
    ASSERT_NEAR(gradient.as<double>()[static_cast<std::size_t>(i)], expected,
                1e-8 * (1 + std::abs(expected)) + 1e-15 * std::abs(above) / kStep)
        << what << " " << i;
  }
}

TEST_P(GatesGradientOnTarget, IsTheDerivative) {
  for (const std::int64_t dim : {0, 1, 3, 9, 17}) {
    for (const bool row : {false, true}) {
      for (const int kind : {0, 1, 2}) {  // a decay, a step, one within limits
        GateCase c{.batch = 2, .dim = dim, .rate = kind == 0, .a_row = row, .bias_row = !row};
        if (kind == 2) c.low = 0.4, c.high = 1.1;
        c.data = c.parameters = c.outputs = DType::kFloat64;
        const GateProblem problem(c);
        const GateDerivatives g(problem);
        g.Apply(problem);
        const auto loss = [&] { return Loss(g.dy, Gated(problem)); };
        ExpectDerivative(problem.x, g.dx, loss, testing::PrintToString(c) + " dx");
        ExpectDerivative(problem.a, g.da, loss, testing::PrintToString(c) + " da");
        ExpectDerivative(problem.bias, g.dbias, loss, testing::PrintToString(c) + " dbias");
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(GatesGradientOnTarget, OfASkipIsTheDerivative) {
  for (SkipCase c : SkipCases()) {
    if (c.dim > 16 || c.tokens > 3) continue;
    c.data = c.parameters = DType::kFloat64;
    const SkipProblem problem(c);
    const SkipDerivatives g(problem);
    g.Apply(problem);
    const auto loss = [&] { return Loss(g.dout, Skipped(problem)); };
    ExpectDerivative(problem.y, g.dy, loss, testing::PrintToString(c) + " dy");
    ExpectDerivative(problem.x, g.dx, loss, testing::PrintToString(c) + " dx");
    ExpectDerivative(problem.z, g.dz, loss, testing::PrintToString(c) + " dz");
    ExpectDerivative(problem.d, g.dd, loss, testing::PrintToString(c) + " dd");
    if (HasFatalFailure()) return;
  }
}

// Each by itself is the one of all together.
TEST(GatesGradient, OfSubsetsIsThatOfAll) {
  const GateProblem p(GateCase{.data = DType::kFloat64});
  const GateDerivatives all(p), one(p);
  all.Apply(p);
  const DecayGate gate{p.a.view(), p.bias.view()};
  ApplyDecayGateGradient(gate, p.x, one.dy, {.dx = one.dx.view()});
  ApplyDecayGateGradient(gate, p.x, one.dy, {.da = one.da.view()});
  ApplyDecayGateGradient(gate, p.x, one.dy, {.dbias = one.dbias.view()});
  EXPECT_EQ(Values(one.dx), Values(all.dx));
  EXPECT_EQ(Values(one.da), Values(all.da));
  EXPECT_EQ(Values(one.dbias), Values(all.dbias));
  const SkipProblem s(SkipCase{});
  const SkipDerivatives whole(s), part(s);
  whole.Apply(s);
  ApplySkipGateGradient(s.gate(), s.inputs(), part.dout, {.dy = part.dy.view()});
  ApplySkipGateGradient(s.gate(), s.inputs(), part.dout, {.dx = part.dx.view()});
  ApplySkipGateGradient(s.gate(), s.inputs(), part.dout, {.dz = part.dz.view()});
  ApplySkipGateGradient(s.gate(), s.inputs(), part.dout, {.dd = part.dd.view()});
  EXPECT_EQ(Values(part.dy), Values(whole.dy));
  EXPECT_EQ(Values(part.dx), Values(whole.dx));
  EXPECT_EQ(Values(part.dz), Values(whole.dz));
  EXPECT_EQ(Values(part.dd), Values(whole.dd));
}

TEST(GatesGradient, InNarrowTypesIsThatInDouble) {
  // Terms are products of some three numbers, below 60; parameters sum one a row, or D of them.
  const double eps = static_cast<double>(std::numeric_limits<float>::epsilon());
  const auto expect = [&](const Tensor& a, const Tensor& b, double terms, const char* name) {
    const std::vector<double> values = Values(b);
    ExpectWithin(a, values, std::vector<double>(values.size(), 60 * eps * std::sqrt(terms)), name);
  };
  for (const DType data : {DType::kFloat32, DType::kBFloat16}) {
    GateCase c{.tokens = 300, .dim = 24, .data = data, .parameters = data, .outputs = data};
    const GateProblem narrow(c);
    c.data = c.parameters = c.outputs = DType::kFloat64;
    const GateProblem wide(c);
    CopyInto(narrow.x, wide.x);
    CopyInto(narrow.a, wide.a);
    CopyInto(narrow.bias, wide.bias);
    const GateDerivatives g(narrow), exact(wide);
    g.Apply(narrow);
    exact.Apply(wide);
    expect(g.dx, exact.dx, 1, "dx");
    expect(g.da, exact.da, 300 * 24, "da");
    expect(g.dbias, exact.dbias, 300, "dbias");

    SkipCase d{.tokens = 300, .dim = 24, .data = data, .parameters = data};
    const SkipProblem small(d);
    d.data = d.parameters = DType::kFloat64;
    const SkipProblem large(d);
    CopyInto(small.y, large.y);
    CopyInto(small.x, large.x);
    CopyInto(small.z, large.z);
    CopyInto(small.d, large.d);
    const SkipDerivatives h(small), sure(large);
    h.Apply(small);
    sure.Apply(large);
    expect(h.dy, sure.dy, 1, "dy");
    expect(h.dx, sure.dx, 1, "dx");
    expect(h.dz, sure.dz, 1, "dz");
    expect(h.dd, sure.dd, 300 * 24, "dd");
  }
}

TEST(GatesGradient, OfNoTokensIsZero) {
  const GateProblem p(GateCase{.tokens = 0});
  const GateDerivatives g(p);
  g.Apply(p);
  EXPECT_EQ(Values(g.da), std::vector<double>(2));
  EXPECT_EQ(Values(g.dbias), std::vector<double>(10));
}

TEST(Gates, HaveTheSameBitsForAnyNumberOfThreads) {
  const auto three = MakeExecutor(3);
  for (const std::int64_t dim : {0, 48}) {
    const GateCase c{.tokens = 6000, .heads = 20, .dim = dim};
    const GateProblem one(c), many(c);
    const GateDerivatives g(one), h(many);
    one.Apply(SequentialExecutor());
    many.Apply(*three);
    g.Apply(one, SequentialExecutor());
    h.Apply(many, *three);
    EXPECT_EQ(Values(one.y), Values(many.y));
    EXPECT_EQ(Values(g.dx), Values(h.dx));
    EXPECT_EQ(Values(g.da), Values(h.da));
    EXPECT_EQ(Values(g.dbias), Values(h.dbias));
  }
  const SkipCase c{.tokens = 3000, .heads = 4, .dim = 48};
  const SkipProblem one(c), many(c);
  const SkipDerivatives g(one), h(many);
  ApplySkipGate(one.gate(), one.inputs(), one.out, SequentialExecutor());
  ApplySkipGate(many.gate(), many.inputs(), many.out, *three);
  g.Apply(one, SequentialExecutor());
  h.Apply(many, *three);
  EXPECT_EQ(Values(one.out), Values(many.out));
  EXPECT_EQ(Values(g.dd), Values(h.dd));
  EXPECT_EQ(Values(g.dz), Values(h.dz));
}

}  // namespace
}  // namespace ttr::test
