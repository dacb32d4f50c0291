// What least squares keeps from token to token beside its state: a factor, which is used only where
// it is that of the state.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/calls.h"
#include "ttr/decoder.h"
#include "ttr/error.h"

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

Inputs Written(const Call& call, std::int64_t token) {
  Inputs inputs = test::TokensOf(call, token, 1);
  inputs.q = {};
  return inputs;
}

Tensor Answer(const Call& call, std::int64_t token, const Decoder& decoder) {
  Tensor y(DType::kFloat64, {1, 1, call.dims.output_heads(), call.dims.value_dim});
  decoder.Retrieve({.q = test::TokensOf(call, token, 1).q}, {.y = y});
  return y;
}

class LeastSquaresStep : public ::testing::TestWithParam<std::string> {
 protected:
  LeastSquaresStep() : call(ParseRecipe(GetParam()), SmallDims(), DType::kFloat64, 3) {}

  // After this many tokens, written one by one.
  Decoder After(std::int64_t tokens) const {
    Decoder decoder(layer, call.dims, DType::kFloat64);
    for (std::int64_t t = 0; t < tokens; ++t) decoder.Memorize(Written(call, t));
    return decoder;
  }
  // The entries alone.
  Decoder WithoutFactor(Decoder& decoder) const {
    Decoder plain(layer, call.dims, DType::kFloat64);
    plain.Start(decoder.state());
    return plain;
  }
  // What it goes on to give from here is what it gives without a factor.
  void ExpectRight(Decoder& decoder, std::int64_t token, const char* what) const {
    Decoder plain = WithoutFactor(decoder);
    EXPECT_LT(test::LargestDifference(Answer(call, token, decoder), Answer(call, token, plain)),
              1e-10)
        << what;
    decoder.Memorize(Written(call, token));
    plain.Memorize(Written(call, token));
    EXPECT_LT(test::LargestDifference(Answer(call, token, decoder), Answer(call, token, plain)),
              1e-10)
        << what << ", a token later";
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
  Decoder decoder = After(40);
  EXPECT_TRUE(decoder.auxiliary().defined());
  EXPECT_NE(decoder.auxiliary().At({0, 0, 0}), 0);
  ExpectRight(decoder, 40, "as it is");
}

TEST_P(LeastSquaresStep, GoesByTheStateWhereThatIsChanged) {
  Decoder decoder = After(40);
  for (const double larger : {1 + 0x1p-50, 1.5, 0.}) {
    const TensorView a = decoder.state().Get("state.a");
    a.Set({0, 0, 3, 4}, a.At({0, 0, 3, 4}) * larger);  // the diagonal stays
    a.Set({0, 0, 4, 3}, a.At({0, 0, 3, 4}));
    ExpectRight(decoder, 40, "one number more");
  }
}

TEST_P(LeastSquaresStep, GoesByTheStateWhereThatIsReplaced) {
  Decoder decoder = After(40), earlier = After(20);
  for (const State::Entry& entry : earlier.state().entries()) {
    CopyInto(entry.view, decoder.state().Get(entry.name));
  }
  ExpectRight(decoder, 40, "replaced");
  // The heads change places, as rows of a batch do in a search with beams.
  const Tensor a = Tensor::Copy(decoder.state().Get("state.a"));
  for (std::int64_t h = 0; h < 2; ++h) {
    CopyInto(a.view().Slice(1, 1 - h, 1), decoder.state().Get("state.a").Slice(1, h, 1));
  }
  ExpectRight(decoder, 41, "exchanged");
}

TEST_P(LeastSquaresStep, GoesOnFromALongerCall) {
  Decoder decoder = After(20);
  State state;
  Tensor y(DType::kFloat64, {1, 40, call.dims.output_heads(), call.dims.value_dim});
  layer.Forward(test::TokensOf(call, 0, 40), state, {.y = y});
  decoder.Start(state);
  EXPECT_FALSE(decoder.auxiliary().defined());
  ExpectRight(decoder, 40, "after a chunk");
}

// A factor that is saved and put back gives the same bits.
TEST_P(LeastSquaresStep, GoesOnBitForBitWithItsFactor) {
  Decoder decoder = After(40);
  Decoder restored(layer, call.dims, DType::kFloat64);
  const Tensor factor = Tensor::Copy(decoder.auxiliary());
  restored.Start(decoder.state());
  restored.SetAuxiliary(factor.view());
  for (std::int64_t t = 40; t < 50; ++t) {
    EXPECT_EQ(test::LargestDifference(Answer(call, t, decoder), Answer(call, t, restored)), 0);
    decoder.Memorize(Written(call, t));
    restored.Memorize(Written(call, t));
  }
  EXPECT_THROW(restored.SetAuxiliary(factor.view().Slice(2, 0, 1)), Error);
}

TEST(LeastSquaresStepRidge, FollowsARidgeThatChangesFromCallToCall) {
  const Layer layer(ParseRecipe("mesa{decay: none}"));
  const Call call(layer.recipe(), SmallDims(), DType::kFloat64, 3, true);
  ASSERT_TRUE(call.inputs.ridge.defined());
  Decoder decoder(layer, call.dims, DType::kFloat64);
  Tensor y(DType::kFloat64, {1, 1, call.dims.output_heads(), call.dims.value_dim});
  for (std::int64_t t = 0; t < 40; ++t) decoder.Step(test::TokensOf(call, t, 1), {.y = y});
  for (std::int64_t h = 0; h < 2; ++h) {
    call.inputs.ridge.as<double>()[h * call.inputs.ridge.stride(0)] *= 3;
  }
  State plain = decoder.state();
  Tensor expected(DType::kFloat64, y.shape());
  layer.Step(test::TokensOf(call, 40, 1), plain, {.y = expected});
  Decoder again(layer, call.dims, DType::kFloat64);
  for (std::int64_t h = 0; h < 2; ++h) {
    call.inputs.ridge.as<double>()[h * call.inputs.ridge.stride(0)] /= 3;
  }
  for (std::int64_t t = 0; t < 40; ++t) again.Step(test::TokensOf(call, t, 1), {.y = y});
  for (std::int64_t h = 0; h < 2; ++h) {
    call.inputs.ridge.as<double>()[h * call.inputs.ridge.stride(0)] *= 3;
  }
  again.Step(test::TokensOf(call, 40, 1), {.y = y});
  EXPECT_LT(test::LargestDifference(y, expected), 1e-10);
}

}  // namespace
}  // namespace ttr
