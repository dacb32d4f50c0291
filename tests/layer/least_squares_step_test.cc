// What least squares keeps from token to token beside its state: a factor, which is used only where
// it is that of the state.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/calls.h"
#include "ttr/layer.h"

namespace ttr {
namespace {

using test::Call;

Dims SmallDims() {
  Dims dims;
  dims.tokens = 60;
  dims.key_dim = 21;
  dims.value_dim = 5;
  dims.heads = dims.key_heads = dims.value_heads = 2;
  dims.query_heads = 4;
  return dims;
}

Tensor StepAnswer(const Layer& layer, const Call& call, std::int64_t token, State& state) {
  Tensor y(DType::kFloat64, {1, 1, call.dims.output_heads(), call.dims.value_dim});
  layer.Step(test::TokensOf(call, token, 1), state, {.y = y, .status = {}});
  return y;
}

Tensor ReadAnswer(const Layer& layer, const Call& call, std::int64_t token, const State& state) {
  Tensor y(DType::kFloat64, {1, 1, call.dims.output_heads(), call.dims.value_dim});
  layer.Retrieve({.q = test::TokensOf(call, token, 1).q}, state, {.y = y, .status = {}});
  return y;
}

// The entries alone.
State WithoutFactor(const State& state) {
  State plain;
  for (const State::Entry& entry : state.entries()) plain.Set(entry.name, Tensor::Copy(entry.view));
  return plain;
}

class LeastSquaresStep : public ::testing::TestWithParam<std::string> {
 protected:
  LeastSquaresStep() : call(ParseRecipe(GetParam()), SmallDims(), DType::kFloat64, 3) {}

  // After this many tokens, one by one.
  State After(std::int64_t tokens) const {
    State state;
    for (std::int64_t t = 0; t < tokens; ++t) StepAnswer(layer, call, t, state);
    return state;
  }
  // A step from here gives what it gives without a factor.
  void ExpectRight(State state, std::int64_t token, const char* what) const {
    State plain = WithoutFactor(state);
    const Tensor expected = StepAnswer(layer, call, token, plain);
    const Tensor answer = StepAnswer(layer, call, token, state);
    EXPECT_LT(test::LargestDifference(answer, expected), 1e-10) << what;
    const Tensor read = ReadAnswer(layer, call, token, state);
    EXPECT_LT(test::LargestDifference(read, ReadAnswer(layer, call, token, plain)), 1e-10) << what;
  }

  Call call;
  Layer layer{ParseRecipe(GetParam())};
};

INSTANTIATE_TEST_SUITE_P(Recipes, LeastSquaresStep,
                         ::testing::Values("rls{ridge: 0.1}", "weighted_rls{ridge: 0.1}",
                                           "rls{ridge: 0.1, decay: 0.9, read: before}",
                                           "mesa{decay: none, ridge: 0.1}"),
                         [](const auto& recipe) { return std::to_string(recipe.index); });

TEST_P(LeastSquaresStep, TakesOnAFactorFromTokenToToken) {
  const State state = After(40);
  EXPECT_TRUE(state.companion().defined());
  EXPECT_NE(state.companion().At({0, 0, 0}), 0);
  ExpectRight(state, 40, "as it is");
}

TEST_P(LeastSquaresStep, GoesByTheStateWhereThatIsChanged) {
  State state = After(40);
  for (const double larger : {1 + 0x1p-50, 1.5, 0.}) {
    const TensorView a = state.Get("state.a");
    a.Set({0, 0, 3, 4}, a.At({0, 0, 3, 4}) * larger);  // the diagonal stays
    a.Set({0, 0, 4, 3}, a.At({0, 0, 3, 4}));
    ExpectRight(state, 40, "one number more");
  }
}

TEST_P(LeastSquaresStep, GoesByTheStateWhereThatIsReplaced) {
  State state = After(40);
  const State earlier = After(20);
  for (const State::Entry& entry : earlier.entries()) {
    state.Set(entry.name, Tensor::Copy(entry.view));
  }
  ExpectRight(state, 40, "replaced");
  // The heads change places, as rows of a batch do in a search with beams.
  const Tensor a = Tensor::Copy(state.Get("state.a"));
  for (std::int64_t i = 0; i < 21; ++i) {
    for (std::int64_t j = 0; j < 21; ++j) {
      for (std::int64_t h = 0; h < 2; ++h) {
        state.Get("state.a").Set({0, h, i, j}, a.view().At({0, 1 - h, i, j}));
      }
    }
  }
  ExpectRight(state, 40, "exchanged");
}

TEST_P(LeastSquaresStep, GoesOnFromALongerCall) {
  State state = After(20);
  Tensor y(DType::kFloat64, {1, 20, call.dims.output_heads(), call.dims.value_dim});
  layer.Forward(test::TokensOf(call, 20, 20), state, {.y = y, .status = {}});
  ExpectRight(state, 40, "after a chunk");
}

TEST_P(LeastSquaresStep, MemorizesAndRetrievesWithIt) {
  State state;
  for (std::int64_t t = 0; t < 40; ++t) {
    Inputs inputs = test::TokensOf(call, t, 1);
    inputs.q = {};
    layer.Memorize(inputs, state);
  }
  EXPECT_NE(state.companion().At({0, 0, 0}), 0);
  const Tensor read = ReadAnswer(layer, call, 41, state);
  EXPECT_LT(test::LargestDifference(read, ReadAnswer(layer, call, 41, WithoutFactor(state))),
            1e-10);
}

TEST(LeastSquaresStepRidge, FollowsARidgeThatChangesFromCallToCall) {
  const Layer layer(ParseRecipe("mesa{decay: none}"));
  const Call call(layer.recipe(), SmallDims(), DType::kFloat64, 3, true);
  ASSERT_TRUE(call.inputs.ridge.defined());
  State state;
  for (std::int64_t t = 0; t < 40; ++t) StepAnswer(layer, call, t, state);
  for (std::int64_t h = 0; h < 2; ++h) {
    call.inputs.ridge.as<double>()[h * call.inputs.ridge.stride(0)] *= 3;
  }
  State plain = WithoutFactor(state);
  const Tensor expected = StepAnswer(layer, call, 40, plain);
  EXPECT_LT(test::LargestDifference(StepAnswer(layer, call, 40, state), expected), 1e-10);
}

}  // namespace
}  // namespace ttr
