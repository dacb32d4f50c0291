// Steps divided by a curvature of low rank, beside the definition, and what they are by other
// names.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>

#include "tests/support/agreement.h"
#include "tests/support/calls.h"
#include "tests/support/directions.h"
#include "tests/support/gradients.h"
#include "tests/support/pair_gradients.h"
#include "ttr/layer.h"
#include "ttr/plan.h"

namespace ttr {
namespace {

using test::Call;
using test::Differentiate;
using test::ExpectClose;
using test::Gradients;
using test::LargestDifference;
using test::Normal;
using test::RunWhole;

class Curvature : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override { ASSERT_EQ(layer.plan().engine, "curvature"); }
  Layer layer{ParseRecipe(GetParam())};
};

INSTANTIATE_TEST_SUITE_P(
    All, Curvature,
    testing::Values(
        "low_rank_rls{rank: 3}", "low_rank_rls{rank: 1, ridge: 0.3}", "low_rank_rls{rank: 9}",
        "low_rank_rls{rank: 2, curvature_decay: 0.9, importance: input, ridge: 0.5}",
        "low_rank_rls{rank: 2, step: input, decay: scalar, curvature_decay: 0.8}",
        "low_rank_rls{rank: 3, step: input, decay: channel, read: before, curvature_decay: 0}",
        "low_rank_rls{rank: 3, step: input, weight_decay: coupled, normalise_qk: true}",
        "low_rank_rls{rank: 2, weight_decay: decoupled, function: affine, output_norm: rms}",
        "low_rank_rls{rank: 4, features: dpfp, scale: rsqrt_dk, decay: 0.95}",
        "affine_projection{steps: 3, rank: 2, ridge: 0.1}",
        "low_rank_rls{rank: 2, steps: 3, step: input, importance: input, curvature_decay: 0.7, "
        "decay: scalar, read: before}"),
    [](const auto& one) { return "case" + std::to_string(one.index); });

// One pair: w = k / (ridge + |k|^2). k less nearly all of k would leave half of the digits.
TEST(Curvatures, LoseNoDigitsToASmallRidge) {
  const Layer layer(ParseRecipe("low_rank_rls{rank: 2, ridge: 1e-8}"));
  const Dims dims = test::TwoMemories(1, 5, 3);
  const Call call(layer.recipe(), dims, DType::kFloat64, 6);
  const Tensor y = RunWhole(layer, call).y;
  for (std::int64_t h = 0; h < 2; ++h) {
    double kk = 0, kq = 0;
    for (std::int64_t c = 0; c < 5; ++c) {
      kk += std::pow(call.inputs.k.At({0, 0, h, c}), 2);
      kq += call.inputs.k.At({0, 0, h, c}) * call.inputs.q.At({0, 0, h, c});
    }
    for (std::int64_t c = 0; c < 3; ++c) {
      const double expected = call.inputs.v.At({0, 0, h, c}) * kq / (1e-8 + kk);
      EXPECT_NEAR(y.view().At({0, 0, h, c}), expected, 1e-13 * std::abs(expected));
    }
  }
}

// What is left of a key that was there before is rounding, which the ridge divides: in the state,
// but along keys that come again there must be none of it.
TEST(Curvatures, LoseNoDigitsToKeysThatComeAgain) {
  for (const std::int64_t period : {1, 2, 3}) {
    for (const char* recipe :
         {"low_rank_rls{rank: 3, ridge: 1e-12}", "low_rank_rls{rank: 5, ridge: 1e-6}",
          "low_rank_rls{rank: 3, ridge: 1e-12, importance: input}"}) {
      const Layer layer(ParseRecipe(recipe));
      const Call call(layer.recipe(), test::TwoMemories(24, 5, 3), DType::kFloat64, 7);
      for (std::int64_t t = 0; t < 24; ++t) {
        if (t >= period) {
          CopyInto(call.inputs.k.Slice(1, t % period, 1), call.inputs.k.Slice(1, t, 1));
        }
        if (call.inputs.importance.defined()) {  // from nearly nothing to much
          for (std::int64_t h = 0; h < 2; ++h) {
            call.inputs.importance.Set({0, t, h}, t < period ? 1 : std::pow(10., t % 22 - 20));
          }
        }
      }
      CopyInto(call.inputs.k, call.inputs.q);
      const double rounding = 1e-14 / layer.recipe().optimizer.ridge;
      test::ExpectAgreement(layer, call, {.outputs = 1e-11, .state = rounding, .piece = 13});
    }
  }
}

// Keys that memories share, several queries a memory, more memories than are taken together.
TEST_P(Curvature, IsTheDefinition) {
  Dims dims = test::SmallDims(layer.recipe());
  dims.batch = 2;
  dims.heads = dims.value_heads = 6;
  dims.key_heads = 3;
  dims.query_heads = 12;
  dims.tokens = 41;
  const Call call(layer.recipe(), dims, DType::kFloat64, 1, true);
  test::ExpectAgreement(layer, call, {.outputs = 1e-12, .state = 1e-12, .piece = 13});
}

TEST_P(Curvature, OfPackedSequencesIsThatOfEach) {
  const Dims dims = test::TwoMemories(30, 5, 3);
  const Call call(layer.recipe(), dims, DType::kFloat64, 2, true);
  const test::Result packed = test::RunPacked(layer, call, {0, 11, 11, 30});
  for (const auto& [begin, count] : {std::pair{0, 11}, std::pair{11, 19}}) {
    const test::Result one = test::RunTokens(layer, call, begin, count);
    EXPECT_LE(LargestDifference(packed.y.view().Slice(1, begin, count), one.y), 1e-9);
  }
}

TEST_P(Curvature, HasGradientsThatAreThoseOfTheDefinition) {
  Dims dims = test::SmallDims(layer.recipe());
  dims.batch = 1;
  dims.heads = dims.value_heads = 2;
  dims.key_heads = 1;
  dims.query_heads = 4;
  dims.tokens = 6;
  const Call call(layer.recipe(), dims, DType::kFloat64, 3, true);
  test::Raise(call.inputs);
  const State initial = test::RandomState(layer, call.inputs, 10);
  const State dstate = test::RandomState(layer, call.inputs, 20);
  const Tensor dy = Normal(DType::kFloat64, OutputShape(dims), 30);
  const Layer defined(layer.recipe(), kDefinition);
  ExpectClose(Differentiate(layer, call.inputs, initial, dy, dstate),
              Differentiate(defined, call.inputs, initial, dy, dstate), 1e-6);
}

// Over several blocks of the backward pass, from nothing.
TEST_P(Curvature, HasGradientsThatAreSlopes) {
  const Dims dims = test::TwoMemories(50, 5, 3);
  const Call call(layer.recipe(), dims, DType::kFloat64, 5, true);
  test::Raise(call.inputs);
  test::ExpectSlopeOfTheDefinition(layer, call, Normal(DType::kFloat64, OutputShape(dims), 32),
                                   1e-5);
}

TEST_P(Curvature, HasGradientsOfTheSameBitsForAnyNumberOfThreads) {
  test::ExpectSameGradientsOnAnyThreads(layer, 60);
}

TEST_P(Curvature, HasGradientsInFloat32ThatAreThoseInFloat64) {
  test::ExpectGradientsInDouble(layer, test::TwoMemories(40, 7, 9), 1e-3);
}

TEST_P(Curvature, LeavesWhatIsNotFiniteToLaterTokens) {
  const Dims dims = test::TwoMemories(20, 5, 3);
  const Call call(layer.recipe(), dims, DType::kFloat64, 3, true);
  const test::Result before = RunWhole(layer, call);
  const std::int64_t rows = call.inputs.k.size(1) / dims.tokens;
  call.inputs.k.Set({0, 10 * rows, 0, 1}, std::numeric_limits<double>::quiet_NaN());
  const test::Result spoilt = RunWhole(layer, call);
  for (std::int64_t t = 0; t < 20; ++t) {
    if (t < 10) {
      EXPECT_EQ(spoilt.y.view().At({0, t, 0, 1}), before.y.view().At({0, t, 0, 1})) << t;
    }
    if (t > 10) {
      EXPECT_TRUE(std::isnan(spoilt.y.view().At({0, t, 0, 1}))) << t;
    }
    EXPECT_EQ(spoilt.y.view().At({0, t, 1, 1}), before.y.view().At({0, t, 1, 1})) << t;
  }
}

// Where rows of U span less than all, and a token has importance 0: on the side where it has some.
TEST(Curvatures, HaveSlopesWhereAnImportanceIsZero) {
  const Layer layer(ParseRecipe("low_rank_rls{rank: 2, importance: input}"));
  const Layer defined(layer.recipe(), kDefinition);
  const Call call(layer.recipe(), test::TwoMemories(8, 5, 4), DType::kFloat64, 3, true);
  test::Raise(call.inputs);
  for (const std::int64_t t : {3, 4, 6}) call.inputs.importance.Set({0, t, 1}, 0);
  const Tensor dy = Normal(DType::kFloat64, OutputShape(call.dims), 30);
  const Gradients got = Differentiate(layer, call.inputs, {}, dy, {});
  const Gradients expected = Differentiate(defined, call.inputs, {}, dy, {});
  EXPECT_LE(LargestDifference(got.inputs.importance, expected.inputs.importance), 1e-6);
  EXPECT_NE(got.inputs.importance.At({0, 4, 1}), 0);
}

// A curvature of all directions forgets none.
TEST(Curvatures, OfAllDirectionsAreLeastSquares) {
  const Dims dims = test::TwoMemories(60, 6, 4);
  const Call call(ParseRecipe("rls{ridge: 0.5}"), dims, DType::kFloat32, 4);
  const test::Result all = RunWhole(Layer(call.recipe), call);
  State state;
  const Tensor y(DType::kFloat32, OutputShape(dims));
  Layer(ParseRecipe("low_rank_rls{rank: 6, ridge: 0.5}")).Forward(call.inputs, state, {.y = y});
  EXPECT_LE(LargestDifference(all.y, y), 1e-4);
}

// The memory recalls all of its window.
TEST(Curvatures, OfRowsOfAWindowAreAffineProjection) {
  constexpr std::int64_t kTokens = 7, kWindow = 3, kDk = 5, kDv = 2;
  Dims dims = test::TwoMemories(kTokens, kDk, kDv);
  const Call pairs(ParseRecipe("deltanet"), dims, DType::kFloat64, 6);
  const Layer layer(ParseRecipe("affine_projection{steps: 3, rank: 2, ridge: 1e-6}"));
  const Call call(layer.recipe(), dims, DType::kFloat64, 6);
  for (std::int64_t t = 0; t < kTokens; ++t) {
    for (std::int64_t j = 0; j < kWindow; ++j) {
      const std::int64_t from = t - kWindow + 1 + j;
      for (std::int64_t h = 0; h < 2; ++h) {
        for (std::int64_t c = 0; c < kDk; ++c) {
          const double k = from < 0 ? 0 : pairs.inputs.k.At({0, from, h, c});
          call.inputs.k.Set({0, kWindow * t + j, h, c}, k);
        }
        for (std::int64_t c = 0; c < kDv; ++c) {
          const double v = from < 0 ? 0 : pairs.inputs.v.At({0, from, h, c});
          call.inputs.v.Set({0, kWindow * t + j, h, c}, v);
        }
      }
    }
  }
  const test::Result whole = RunWhole(layer, call);
  const TensorView m = whole.state.Get("state");
  for (std::int64_t h = 0; h < 2; ++h) {
    for (std::int64_t t = kTokens - kWindow; t < kTokens; ++t) {
      for (std::int64_t c = 0; c < kDv; ++c) {
        double y = 0;
        for (std::int64_t i = 0; i < kDk; ++i) {
          y += m.At({0, h, i, c}) * pairs.inputs.k.At({0, t, h, i});
        }
        EXPECT_NEAR(y, pairs.inputs.v.At({0, t, h, c}), 1e-4);
      }
    }
  }
}

// One token of all pairs, from nothing.
TEST(Curvatures, OfOneTokenAreLeastSquaresOfItsRows) {
  Dims dims = test::TwoMemories(6, 5, 3);
  const Call pairs(ParseRecipe("rls{ridge: 0.2}"), dims, DType::kFloat64, 6);
  const test::Result all = RunWhole(Layer(pairs.recipe), pairs);
  dims.tokens = 1;
  const Layer layer(ParseRecipe("affine_projection{steps: 6, rank: 5, ridge: 0.2}"));
  const Call one(layer.recipe(), dims, DType::kFloat64, 6);
  CopyInto(pairs.inputs.k, one.inputs.k);
  CopyInto(pairs.inputs.v, one.inputs.v);
  CopyInto(pairs.inputs.q.Slice(1, 5, 1), one.inputs.q);
  EXPECT_LE(LargestDifference(all.y.view().Slice(1, 5, 1), RunWhole(layer, one).y), 1e-11);
}

TEST(Curvatures, OfOneRowAreNormalisedSteps) {
  const Dims dims = test::TwoMemories(30, 5, 3);
  const Call call(ParseRecipe("nlms{eps: 0.2}"), dims, DType::kFloat64, 6);
  const Tensor y(DType::kFloat64, OutputShape(dims));
  State state;
  Layer(ParseRecipe("affine_projection{steps: 1, rank: 1, ridge: 0.2}"))
      .Forward(call.inputs, state, {.y = y});
  EXPECT_LE(LargestDifference(RunWhole(Layer(call.recipe), call).y, y), 1e-12);
}

TEST(Curvatures, OfMapsByPositionGoToTheDefinition) {
  const Layer layer(ParseRecipe("low_rank_rls{features: cosformer}"));
  EXPECT_EQ(layer.plan().engine, kDefinition);
}

}  // namespace
}  // namespace ttr
