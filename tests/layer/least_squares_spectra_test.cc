// Iterations that take eigenvalues: preconditioners of low rank, Chebyshev under a ridge that
// fades.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

#include "tests/support/regressions.h"
#include "tests/support/targets.h"
#include "ttr/executor.h"
#include "ttr/layer.h"

namespace ttr {
namespace {

using test::Call;
using test::Condition;
using test::Keys;
using test::RunWhole;

Call CallOf(const std::string& recipe, std::int64_t tokens, std::int64_t key_dim, DType dtype) {
  return Call(ParseRecipe(recipe), test::TwoMemories(tokens, key_dim, 5), dtype, 3);
}

// The greatest |difference| / (condition |M| |q|) from the definition's answers, where that is
// regular.
double Error(const Call& call, const Layer& layer) {
  const test::Result defined = RunWhole(Layer(call.recipe, kDefinition), call);
  const test::Result got = RunWhole(layer, call);
  const std::vector<Condition> conditions = test::Conditions(call);
  const std::vector<double> lengths = test::QueryLengths(call);
  double worst = 0;
  for (std::int64_t t = 0; t < call.dims.tokens; ++t) {
    for (std::int64_t h = 0; h < call.dims.heads; ++h) {
      const auto at = static_cast<std::size_t>(t * call.dims.heads + h);
      const Condition& condition = conditions[at];
      if (condition.rank < call.dims.key_dim) continue;
      double squares = 0;
      for (std::int64_t c = 0; c < call.dims.value_dim; ++c) {
        squares += std::pow(defined.y.view().At({0, t, h, c}) - got.y.view().At({0, t, h, c}), 2);
      }
      const double size = condition.number * condition.memory * lengths[at];
      worst = std::max(worst, squares == 0 ? 0 : std::sqrt(squares) / size);
    }
  }
  return worst;
}

TEST(Spectra, AgreeWithTheDefinitionForAllKeysAndSizes) {
  for (const std::string& target : test::Targets()) {
    const test::OnTarget on(target);
    for (const char* recipe :
         {"quasi_newton{preconditioner: low_rank, rank: 3, steps: 3, ridge: 0.01}",
          "quasi_newton{preconditioner: low_rank, rank: 1, steps: 2, eta: 0.5, ridge: 0.01}",
          "kalmanet{ridge_kind: fading, decay: 0.99, ridge: 0.01, steps: 10}"}) {
      for (const std::int64_t key_dim : {1, 2, 3, 8, 17, 35}) {
        for (const Keys keys : test::kAllKeys) {
          const Call call = CallOf(recipe, 40, key_dim, DType::kFloat64);
          test::FillKeys(keys, 5, call);
          EXPECT_LE(Error(call, Layer(call.recipe)), 1e-14)
              << target << ", " << recipe << ", " << key_dim << " channels, " << Name(keys);
        }
      }
    }
  }
}

// Newton's method: A x = q in one step, whatever the definition's eigenvalues are.
TEST(Spectra, OneStepOfFullRankIsExact) {
  for (const std::int64_t key_dim : {1, 2, 12, 40}) {
    const Call step = CallOf(
        "quasi_newton{preconditioner: low_rank, rank: 40, steps: 1, ridge: "
        "0.1}",
        50, key_dim, DType::kFloat64);
    const Recipe exact = ParseRecipe("rls{ridge: 0.1}");
    ASSERT_EQ(Layer(step.recipe).plan().engine, "least_squares");
    const test::Result got = RunWhole(Layer(step.recipe), step);
    const test::Result expected =
        RunWhole(Layer(exact), CallOf("rls{ridge: 0.1}", 50, key_dim, DType::kFloat64));
    EXPECT_LE(test::LargestDifference(got.y, expected.y), 1e-10) << key_dim;
  }
}

// Squares of the elements of A would overflow, or vanish; eigenvalues do neither.
TEST(Spectra, HoldForHugeAndTinyKeys) {
  constexpr double kRidge = 0.25;
  const std::string recipe =
      "uniform | linear | gradient(steps: 3, preconditioner: low_rank, rank: 2, ridge: ";
  const Call plain = CallOf(recipe + "0.25)", 20, 6, DType::kFloat64);
  const test::Result expected = RunWhole(Layer(plain.recipe), plain);
  for (const double scale : {0x1p300, 0x1p-300}) {  // A by its square, y by its inverse
    const Call scaled = CallOf(recipe + "0.25)", 20, 6, DType::kFloat64);
    for (std::int64_t i = 0; i < scaled.inputs.k.shape().elements(); ++i) {
      scaled.inputs.k.as<double>()[i] *= scale;
    }
    State state;
    Tensor a(DType::kFloat64, {1, 2, 6, 6}), b(DType::kFloat64, {1, 2, 6, 5});
    for (std::int64_t h = 0; h < 2; ++h) {
      for (std::int64_t i = 0; i < 6; ++i) a.view().Set({0, h, i, i}, kRidge * scale * scale);
    }
    state.Set("state.a", std::move(a));
    state.Set("state", std::move(b));
    Tensor y(DType::kFloat64, {1, 20, 2, 5});
    Outputs outputs;
    outputs.y = y.view();
    Layer(scaled.recipe).Forward(scaled.inputs, state, outputs);
    for (double& x : y.as<double>()) x *= scale;
    EXPECT_LE(test::LargestDifference(y, expected.y), 1e-12) << scale;
  }
}

// Lanes without a matrix, and what is behind the last channel, hold what the scratch held.
TEST(Spectra, DoNotDependOnTheScratch) {
  const Call call =
      CallOf("quasi_newton{preconditioner: low_rank, rank: 2}", 3, 5, DType::kFloat64);
  const Layer layer(call.recipe);
  const test::Result expected = RunWhole(layer, call);
  for (const std::byte content :
       {std::byte{0x00}, std::byte{0x3f}, std::byte{0xff}}) {  // zeros, numbers, NaN
    std::vector<std::byte> scratch(layer.ScratchBytes(call.dims, 1), content);
    State state = layer.InitialState(call.inputs);
    Tensor y(DType::kFloat64, expected.y.shape());
    Outputs outputs;
    outputs.y = y.view();
    layer.Forward(call.inputs, state, outputs,
                  {.executor = &SequentialExecutor(), .scratch = scratch});
    EXPECT_EQ(test::LargestDifference(y, expected.y), 0) << std::to_integer<int>(content);
  }
}

// A token whose square is not finite leaves no memory; the tokens before it keep theirs.
TEST(Spectra, OfWhatIsNotFiniteAreNan) {
  constexpr std::int64_t kSpoilt = 20;
  for (const char* recipe : {"quasi_newton{preconditioner: low_rank, rank: 3}",
                             "kalmanet{ridge_kind: fading, decay: 0.9}"}) {
    const Call clean = CallOf(recipe, 40, 24, DType::kFloat64);
    const Call call = CallOf(recipe, 40, 24, DType::kFloat64);
    for (std::int64_t c = 0; c < 24; ++c) call.inputs.k.Set({0, kSpoilt, 0, c}, 1e200);
    const test::Result expected = RunWhole(Layer(call.recipe), clean);
    const test::Result got = RunWhole(Layer(call.recipe), call);
    for (std::int64_t t = 0; t < call.dims.tokens; ++t) {
      for (std::int64_t h = 0; h < 2; ++h) {
        const double y = got.y.view().At({0, t, h, 0});
        const double whole = expected.y.view().At({0, t, h, 0});
        if (h == 0 && t >= kSpoilt) {
          EXPECT_TRUE(std::isnan(y)) << recipe << " token " << t;
        } else {
          EXPECT_NEAR(y, whole, 1e-9 * (1 + std::abs(whole))) << recipe << " token " << t;
        }
      }
    }
  }
}

// Without keys there is nothing in A: no direction is preconditioned, and all answers are 0.
TEST(Spectra, OfNothingAreZero) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
    const Call call =
        CallOf("quasi_newton{preconditioner: low_rank, rank: 2, ridge: 0}", 20, 6, dtype);
    CopyInto(Tensor(dtype, call.inputs.k.shape()).view(), call.inputs.k);
    const test::Result got = RunWhole(Layer(call.recipe), call);
    EXPECT_EQ(test::LargestDifference(got.y, Tensor(got.y.dtype(), got.y.shape())), 0);
  }
}

// Directions that were never seen have eigenvalues of rounding, which are not to be inverted.
TEST(Spectra, LeaveAloneWhatWasNeverSeen) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
    const Call wide = CallOf("quasi_newton{preconditioner: low_rank, rank: 6, ridge: 0, steps: 2}",
                             30, 24, DType::kFloat64);
    test::FillKeys(Keys::kLowRank, 7, wide);
    const Call call = CallOf("quasi_newton{preconditioner: low_rank, rank: 6, ridge: 0, steps: 2}",
                             30, 24, dtype);
    for (const InputField& field : InputFields()) {
      if ((wide.inputs.*field.view).defined()) {
        CopyInto(wide.inputs.*field.view, call.inputs.*field.view);
        CopyInto(call.inputs.*field.view, wide.inputs.*field.view);
      }
    }
    const test::Result defined = RunWhole(Layer(wide.recipe, kDefinition), wide);
    const test::Result got = RunWhole(Layer(call.recipe), call);
    const double size =
        test::LargestDifference(defined.y, Tensor(DType::kFloat64, defined.y.shape()));
    EXPECT_LE(test::LargestDifference(defined.y, got.y),
              (dtype == DType::kFloat32 ? 2e-3 : 1e-11) * size)
        << Name(dtype);
  }
}

}  // namespace
}  // namespace ttr
