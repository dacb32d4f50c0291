#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "tests/engines/short_conv_case.h"
#include "tests/support/targets.h"
#include "ttr/error.h"
#include "ttr/short_conv.h"

namespace ttr::test {
namespace {

std::vector<double> Values(const TensorView& tensor) {
  const Tensor wide = Tensor::Copy(tensor, DType::kFloat64);
  return {wide.as<double>().begin(), wide.as<double>().end()};
}

class ShortConvGradientOnTarget : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ForceTarget(GetParam()); }
  void TearDown() override { ForceTarget(""); }
};
INSTANTIATE_TEST_SUITE_P(Targets, ShortConvGradientOnTarget, testing::ValuesIn(test::Targets()),
                         [](const auto& target) { return target.param; });

// Gradients: of the loss sum dy y + sum dfinal state, by central differences of the loop in double.
struct ConvGradients {
  explicit ConvGradients(const ConvProblem& problem)
      : dy(DType::kFloat64, problem.x.shape()),
        dx(DType::kFloat64, problem.x.shape()),
        dweight(DType::kFloat64, problem.weight.shape()) {
    FillNormal(dy, 11);
    if (problem.c.bias) dbias = Tensor(DType::kFloat64, problem.bias.shape());
    if (problem.c.state) {
      dfinal_memory = ConvStateMemory(problem.c, DType::kFloat64);
      dinitial_memory = ConvStateMemory(problem.c, DType::kFloat64);
      dfinal = ConvStateView(problem.c, dfinal_memory);
      dinitial = ConvStateView(problem.c, dinitial_memory);
      FillNormal(dfinal_memory, 12);
    }
    for (const Tensor* tensor : {&dx, &dweight, &dbias, &dinitial_memory}) {
      if (tensor->defined()) FillNan(*tensor);
    }
  }
  ShortConvGradients call() const { return {dx.view(), dweight.view(), dbias.view(), dinitial}; }
  double Loss(const ConvProblem& problem) const {
    const ConvExpected expected = Convolved(problem);
    double loss = 0;
    for (std::size_t i = 0; i < expected.y.size(); ++i) loss += dy.as<double>()[i] * expected.y[i];
    if (!problem.c.state) return loss;
    const std::vector<double> gradient = Values(dfinal);
    for (std::size_t i = 0; i < gradient.size(); ++i) loss += gradient[i] * expected.state[i];
    return loss;
  }
  Tensor dy, dx, dweight, dbias, dfinal_memory, dinitial_memory;
  TensorView dfinal, dinitial;
};

TEST_P(ShortConvGradientOnTarget, IsTheDerivative) {
  std::vector<ConvCase> cases;
  for (std::int64_t width = 1; width <= 8; ++width) {
    cases.push_back(
        {.name = "gradient", .tokens = 5, .dim = 3, .width = width, .silu = true, .bias = true});
  }
  cases.push_back({.name = "plain", .batch = 2, .tokens = 6, .dim = 3});
  cases.push_back({.name = "without state", .tokens = 6, .dim = 3, .silu = true, .state = false});
  cases.push_back({.name = "short", .tokens = 1, .dim = 9, .width = 4, .silu = true});
  cases.push_back({.name = "long", .tokens = 67, .heads = 1, .dim = 1, .silu = true});
  cases.push_back({.name = "longer", .tokens = 515, .heads = 1, .dim = 1, .width = 3});
  cases.push_back(
      {.name = "packed", .tokens = 8, .dim = 2, .silu = true, .cu_seqlens = {0, 2, 2, 8}});
  for (const std::int64_t width : {1, 2, 4, 8}) {
    for (const std::int64_t tokens : {1, 3, 9, 70}) {
      cases.push_back({.name = "cache",
                       .batch = 2,
                       .tokens = tokens,
                       .heads = 1,
                       .dim = 2,
                       .width = width,
                       .silu = true,
                       .more_rows = width % 3,
                       .channel_by_channel = true});
    }
  }
  cases.push_back({.name = "packed cache",
                   .tokens = 8,
                   .dim = 2,
                   .cu_seqlens = {0, 2, 2, 8},
                   .more_rows = 2,
                   .channel_by_channel = true});
  for (ConvCase& c : cases) {
    c.data = c.parameters = c.states = DType::kFloat64;
    const ConvProblem problem(c);
    const ConvGradients g(problem);
    ApplyShortConvGradient(problem.conv(), problem.inputs(), problem.state, g.dy, g.dfinal,
                           g.call());
    const auto expect = [&](const Tensor& input, const Tensor& gradient, const char* name) {
      constexpr double kStep = 1e-5;
      for (std::int64_t i = 0; i < input.elements(); ++i) {
        double& value = input.as<double>()[static_cast<std::size_t>(i)];
        const double before = value;
        value = before + kStep;
        const double above = g.Loss(problem);
        value = before - kStep;
        const double below = g.Loss(problem);
        value = before;
        ASSERT_NEAR(gradient.as<double>()[static_cast<std::size_t>(i)],
                    (above - below) / (2 * kStep), 1e-8 * (1 + std::abs(above)))
            << c << " " << name << " " << i;
      }
    };
    expect(problem.x, g.dx, "dx");
    expect(problem.weight, g.dweight, "dweight");
    if (c.bias) expect(problem.bias, g.dbias, "dbias");
    if (c.state) expect(problem.state_memory, g.dinitial_memory, "dinitial");
    if (HasFatalFailure()) return;
  }
}

TEST(ShortConvGradient, InNarrowTypesIsThatInDouble) {
  for (const DType data : {DType::kFloat32, DType::kBFloat16}) {
    ConvCase c{.name = "narrow",
               .tokens = 600,
               .heads = 2,
               .dim = 20,
               .silu = true,
               .bias = true,
               .data = data,
               .parameters = data,
               .states = data};
    const ConvProblem narrow(c);
    c.data = c.parameters = c.states = DType::kFloat64;
    const ConvProblem wide(c);
    CopyInto(narrow.x, wide.x);
    CopyInto(narrow.weight, wide.weight);
    CopyInto(narrow.bias, wide.bias);
    CopyInto(narrow.state, wide.state);
    const ConvGradients g(narrow), exact(wide);
    ApplyShortConvGradient(narrow.conv(), narrow.inputs(), narrow.state, g.dy, g.dfinal, g.call());
    ApplyShortConvGradient(wide.conv(), wide.inputs(), wide.state, exact.dy, exact.dfinal,
                           exact.call());
    // Terms are below some 100 in size (four normal numbers and slopes of silu near 1); dweight and
    // dbias sum one for every token.
    const double eps = static_cast<double>(std::numeric_limits<float>::epsilon());
    const auto expect = [&](const TensorView& a, const TensorView& b, double terms,
                            const char* name) {
      ExpectWithin(a, Values(b),
                   std::vector<double>(static_cast<std::size_t>(b.shape().elements()),
                                       100 * eps * std::sqrt(terms)),
                   name);
    };
    expect(g.dx, exact.dx, 8, "dx");
    expect(g.dweight, exact.dweight, 600, "dweight");
    expect(g.dbias, exact.dbias, 600, "dbias");
    expect(g.dinitial, exact.dinitial, 8, "dinitial");
  }
}

TEST(ShortConvGradient, OfNoTokensHandsTheStateOn) {
  ConvCase c{.name = "empty", .tokens = 0, .data = DType::kFloat64};
  const ConvProblem problem(c);
  const ConvGradients g(problem);
  ApplyShortConvGradient(problem.conv(), problem.inputs(), problem.state, g.dy, g.dfinal, g.call());
  EXPECT_EQ(Values(g.dinitial), Values(g.dfinal));
  EXPECT_EQ(Values(g.dweight), std::vector<double>(40));
}

TEST(ShortConvGradient, SaysWhatIsWrong) {
  const ConvProblem p(ConvCase{.name = "errors"});
  const Tensor dy(DType::kFloat32, p.x.shape()), four(DType::kFloat32, {1, 4, 2, 5});
  const auto message = [&](const TensorView& dfinal, const ShortConvGradients& gradients) {
    try {
      ApplyShortConvGradient(p.conv(), p.inputs(), p.state, dy, dfinal, gradients);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_EQ(message(four, {}),
            "[short_conv_gradient] dfinal must be of as many rows as initial, 3 but is of 4");
  EXPECT_EQ(message({}, {.dinitial = four.view()}),
            "[short_conv_gradient] dinitial must be of as many rows as initial, 3 but is of 4");
  EXPECT_EQ(message({}, {.dinitial = p.state}),
            "[short_conv_gradient] dinitial must be memory of its own but is overlapping initial");
}

TEST(ShortConvGradient, OfManyChannelsIsThatOfEach) {
  ConvCase c{.name = "channels", .tokens = 5, .heads = 2, .dim = 700, .silu = true, .bias = true};
  c.data = c.parameters = c.states = DType::kFloat64;
  const ConvProblem problem(c);
  const ConvGradients all(problem), part(problem);
  ApplyShortConvGradient(problem.conv(), problem.inputs(), problem.state, all.dy, all.dfinal,
                         all.call());
  for (std::int64_t begin = 0; begin < c.dim; begin += 100) {
    const auto of = [&](const TensorView& view, int axis) { return view.Slice(axis, begin, 100); };
    ApplyShortConvGradient(
        {of(problem.weight, 1), of(problem.bias, 1), true}, {.x = of(problem.x, 3)},
        of(problem.state, 3), of(part.dy, 3), of(part.dfinal, 3),
        {of(part.dx, 3), of(part.dweight, 1), of(part.dbias, 1), of(part.dinitial, 3)});
  }
  EXPECT_EQ(Values(all.dx), Values(part.dx));
  EXPECT_EQ(Values(all.dweight), Values(part.dweight));
  EXPECT_EQ(Values(all.dbias), Values(part.dbias));
  EXPECT_EQ(Values(all.dinitial), Values(part.dinitial));
}

TEST(ShortConvGradient, HasTheSameBitsForAnyNumberOfThreads) {
  const ConvCase c{
      .name = "threads", .tokens = 3000, .heads = 4, .dim = 24, .silu = true, .bias = true};
  const auto three = MakeExecutor(3);
  const ConvProblem problem(c);
  const ConvGradients one(problem), many(problem);
  ApplyShortConvGradient(problem.conv(), problem.inputs(), problem.state, one.dy, one.dfinal,
                         one.call(), SequentialExecutor());
  ApplyShortConvGradient(problem.conv(), problem.inputs(), problem.state, many.dy, many.dfinal,
                         many.call(), *three);
  EXPECT_EQ(Values(one.dx), Values(many.dx));
  EXPECT_EQ(Values(one.dweight), Values(many.dweight));
  EXPECT_EQ(Values(one.dbias), Values(many.dbias));
}

}  // namespace
}  // namespace ttr::test
