// Kernel regression and least squares over a window beside the definition, and what they are by
// other names.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>

#include "tests/support/agreement.h"
#include "tests/support/calls.h"
#include "tests/support/directions.h"
#include "tests/support/engines.h"
#include "tests/support/gradients.h"
#include "tests/support/pair_gradients.h"
#include "ttr/layer.h"

namespace ttr {
namespace {

using test::Call;
using test::LargestDifference;
using test::RunWhole;

class WindowRegression : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override { ASSERT_EQ(layer.plan().engine, "window_regression"); }
  Layer layer{ParseRecipe(GetParam())};
};

INSTANTIATE_TEST_SUITE_P(
    All, WindowRegression,
    testing::Values("window_rls{window: 7}", "window_rls{window: 1}",
                    "window_rls{window: 40, ridge: 0.1}",
                    "window_rls{window: 5, importance: input, ridge: 0.5}",
                    "window_rls{window: 6, importance: log, read: before, ridge: 1}",
                    "window_rls{window: 9, normalise_qk: true, output_norm: rms, ridge: 0.2}",
                    "kernel_ridge{window: 12, kernel: gaussian, bandwidth: 2, ridge: 0.1}",
                    "window_rls{window: 3, ridge: 0}"),
    [](const auto& one) { return "case" + std::to_string(one.index); });

// Windows that are shorter and longer than keys; several queries a memory.
TEST_P(WindowRegression, IsTheDefinition) {
  Dims dims = test::TwoMemories(61, 5, 3);
  dims.batch = 2;
  dims.query_heads = 4;
  const Call call(layer.recipe(), dims, DType::kFloat64, 1, true);
  test::ExpectAgreement(layer, call, {.outputs = 1e-8, .state = 1e-12, .piece = 13});
}

TEST_P(WindowRegression, OfPackedSequencesIsThatOfEach) {
  const Dims dims = test::TwoMemories(30, 4, 3);
  const Call call(layer.recipe(), dims, DType::kFloat64, 2, true);
  const test::Result packed = test::RunPacked(layer, call, {0, 11, 11, 30});
  for (const auto& [begin, count] : {std::pair{0, 11}, std::pair{11, 19}}) {
    const test::Result one = test::RunTokens(layer, call, begin, count);
    EXPECT_LE(LargestDifference(packed.y.view().Slice(1, begin, count), one.y), 1e-12);
  }
}

TEST_P(WindowRegression, LeavesWhatIsNotFiniteToItsWindow) {
  const Dims dims = test::TwoMemories(60, 4, 3);
  const Call call(layer.recipe(), dims, DType::kFloat64, 3, true);
  const test::Result before = RunWhole(layer, call);
  call.inputs.v.Set({0, 10, 0, 1}, std::numeric_limits<double>::quiet_NaN());
  const test::Result spoilt = RunWhole(layer, call);
  const std::int64_t window = layer.recipe().weights.window;
  for (std::int64_t t = 0; t < 60; ++t) {
    const double y = spoilt.y.view().At({0, t, 0, 1}), kept = before.y.view().At({0, t, 0, 1});
    if (t < 10 || t > 10 + window) {
      EXPECT_EQ(y, kept) << t;
    }
    if (t > 10 && t < 10 + window) {
      EXPECT_TRUE(std::isnan(y)) << t;
    }
  }
}

// From a state, through the final one.
TEST_P(WindowRegression, HasGradientsThatAreThoseOfTheDefinition) {
  if (layer.recipe().optimizer.ridge == 0) return;  // the rank of every window changes
  test::ExpectGradientsOfTheDefinition(layer, 1e-6);
}

TEST_P(WindowRegression, HasGradientsOfTheSameBitsForAnyNumberOfThreads) {
  test::ExpectSameGradientsOnAnyThreads(layer, 150);
}

// More tokens than are taken together.
TEST_P(WindowRegression, HasGradientsThatAreSlopes) {
  if (layer.recipe().optimizer.ridge == 0) return;
  const Dims dims = test::TwoMemories(100, 7, 3);
  const Call call(layer.recipe(), dims, DType::kFloat64, 5, true);
  test::Raise(call.inputs);
  test::ExpectSlopeOfTheDefinition(layer, call,
                                   test::Normal(DType::kFloat64, OutputShape(dims), 32), 1e-6);
}

TEST_P(WindowRegression, HasGradientsInFloat32ThatAreThoseInFloat64) {
  if (layer.recipe().optimizer.ridge == 0) return;  // the rank of every window changes
  test::ExpectGradientsInDouble(layer, test::TwoMemories(90, 19, 21), 1e-5);
}

// The matrix of a window's pairs is worse conditioned than that of the channels, which least
// squares would solve: pairs are more than channels here, and keys follow one another.
TEST_P(WindowRegression, OfFloat32HasItsDigitsWhereKeysFollowEachOther) {
  if (layer.recipe().reading.normalise_qk) return;  // unit keys are rounded as the state has them
  Call call(layer.recipe(), test::TwoMemories(120, 4, 3), DType::kFloat32, 6, true);
  for (std::int64_t t = 1; t < 120; ++t) {
    for (std::int64_t i = 0; i < 8; ++i) {
      const double last = call.inputs.k.At({0, t - 1, i / 4, i % 4});
      call.inputs.k.Set({0, t, i / 4, i % 4}, last + 0.05 * call.inputs.k.At({0, t, i / 4, i % 4}));
    }
  }
  const test::Result got = RunWhole(layer, call);
  const test::Result expected = RunWhole(Layer(layer.recipe(), kDefinition), call);
  for (std::int64_t t = 0; t < 120; ++t) {
    const TensorView y = got.y.view().Slice(1, t, 1), exact = expected.y.view().Slice(1, t, 1);
    const Tensor nothing(DType::kFloat64, exact.shape());
    EXPECT_LE(LargestDifference(y, exact), 1e-6 * LargestDifference(exact, nothing)) << t;
  }
}

TEST(WindowRegressions, HaveSlopesWhereAnImportanceIsZero) {
  for (const char* recipe : {"window_rls{window: 3, importance: input, ridge: 0.5}",
                             "kernel_ridge{window: 4, importance: input, ridge: 0.5}"}) {
    test::ExpectSlopesAtNoImportance(Layer(ParseRecipe(recipe)));
  }
}

// What is not finite reaches the windows that hold it, and what these depend on.
TEST(WindowRegressions, HaveGradientsThatLeaveWhatIsNotFiniteToItsWindow) {
  const Layer layer(ParseRecipe("window_rls{window: 4, ridge: 0.3}"));
  const Dims dims = test::TwoMemories(30, 4, 3);
  const Call call(layer.recipe(), dims, DType::kFloat64, 3);
  const Tensor dy = test::Normal(DType::kFloat64, OutputShape(dims), 30);
  const test::Gradients clean = test::Differentiate(layer, call.inputs, {}, dy, {});
  call.inputs.k.Set({0, 12, 1, 2}, std::numeric_limits<double>::quiet_NaN());
  const test::Gradients spoilt = test::Differentiate(layer, call.inputs, {}, dy, {});
  for (std::int64_t t = 0; t < 30; ++t) {
    const bool query = t >= 12 && t < 16, pair = t >= 9 && t < 16;
    EXPECT_EQ(std::isnan(spoilt.inputs.q.At({0, t, 1, 0})), query) << t;
    EXPECT_EQ(std::isnan(spoilt.inputs.v.At({0, t, 1, 0})), pair) << t;
    EXPECT_EQ(std::isnan(spoilt.inputs.k.At({0, t, 1, 0})), pair) << t;
    EXPECT_EQ(spoilt.inputs.k.At({0, t, 0, 1}), clean.inputs.k.At({0, t, 0, 1})) << t;
  }
}

TEST(WindowRegressions, OfAllPairsAreLeastSquares) {
  const Dims dims = test::TwoMemories(50, 6, 4);
  const Call call(ParseRecipe("rls{ridge: 0.1}"), dims, DType::kFloat64, 4);
  const test::Result all = RunWhole(Layer(call.recipe), call);
  State state;
  const Tensor y(DType::kFloat64, OutputShape(dims));
  Layer(ParseRecipe("window_rls{window: 50, ridge: 0.1}")).Forward(call.inputs, state, {.y = y});
  EXPECT_LE(LargestDifference(all.y, y), 1e-11);
}

// The last three pairs, as a sequence of their own.
TEST(WindowRegressions, ForgetWhatHasLeftTheWindow) {
  const Dims dims = test::TwoMemories(20, 6, 4);
  const Call call(ParseRecipe("rls{ridge: 0.1}"), dims, DType::kFloat64, 5);
  State state;
  const Tensor y(DType::kFloat64, OutputShape(dims));
  Layer(ParseRecipe("window_rls{window: 3, ridge: 0.1}")).Forward(call.inputs, state, {.y = y});
  const test::Result three = test::RunTokens(Layer(call.recipe), call, 17, 3);
  EXPECT_LE(LargestDifference(three.y.view().Slice(1, 2, 1), y.view().Slice(1, 19, 1)), 1e-12);
}

// Steps over the last two pairs, the older first, are a delta product whose rows are these.
TEST(WindowRegressions, DeltaRulesReplayAWindowAsRows) {
  const Dims dims = test::TwoMemories(9, 4, 3);
  const Call one(ParseRecipe("deltanet"), dims, DType::kFloat64, 6);
  const Call two(ParseRecipe("delta_product{decay: none, steps: 2}"), dims, DType::kFloat64, 6);
  for (std::int64_t t = 0; t < 9; ++t) {
    for (std::int64_t h = 0; h < 2; ++h) {
      for (std::int64_t j = 0; j < 2; ++j) {
        const std::int64_t from = t - 1 + j, to = 2 * t + j;
        two.inputs.step.Set({0, to, h}, from < 0 ? 0 : one.inputs.step.At({0, from, h}));
        for (std::int64_t c = 0; from >= 0 && c < 4; ++c) {
          two.inputs.k.Set({0, to, h, c}, one.inputs.k.At({0, from, h, c}));
          if (c < 3) two.inputs.v.Set({0, to, h, c}, one.inputs.v.At({0, from, h, c}));
        }
      }
    }
  }
  const test::Result replayed = RunWhole(Layer(two.recipe), two);
  // By hand: M <- M + b (v - M k) k^T for the pair before, then for this one.
  for (std::int64_t h = 0; h < 2; ++h) {
    double m[3][4] = {};
    for (std::int64_t t = 0; t < 9; ++t) {
      for (std::int64_t i = t - 1; i <= t; ++i) {
        for (std::int64_t r = 0; i >= 0 && r < 3; ++r) {
          double error = one.inputs.v.At({0, i, h, r});
          for (std::int64_t c = 0; c < 4; ++c) error -= m[r][c] * one.inputs.k.At({0, i, h, c});
          for (std::int64_t c = 0; c < 4; ++c) {
            m[r][c] += one.inputs.step.At({0, i, h}) * error * one.inputs.k.At({0, i, h, c});
          }
        }
      }
      for (std::int64_t r = 0; r < 3; ++r) {
        double y = 0;
        for (std::int64_t c = 0; c < 4; ++c) y += m[r][c] * two.inputs.q.At({0, t, h, c});
        EXPECT_NEAR(replayed.y.view().At({0, t, h, r}), y, 1e-13);
      }
    }
  }
}

}  // namespace
}  // namespace ttr
