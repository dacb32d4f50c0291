// Gradients of the layers that the engine local_polynomial runs, against those of the definition.
#include <gtest/gtest.h>

#include <string>

#include "tests/support/calls.h"
#include "tests/support/directions.h"
#include "tests/support/engines.h"
#include "tests/support/gradients.h"
#include "tests/support/pair_gradients.h"
#include "ttr/layer.h"

namespace ttr {
namespace {

using test::Call;
using test::Normal;

class LocalPolynomialGradient : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override { ASSERT_EQ(layer_.plan().engine, "local_polynomial"); }
  Layer layer_{ParseRecipe(GetParam())};
};

INSTANTIATE_TEST_SUITE_P(
    All, LocalPolynomialGradient,
    testing::Values("local_linear", "local_linear{normalise_qk: true, scale: 3}",
                    "local_linear{read: before, ridge: 0.3}", "local_linear{causal: false}",
                    "local_linear{output_norm: rms}", "local_linear{window: 3}",
                    "local_linear{decay: scalar, importance: input, read: before}",
                    "local_linear{decay: scalar, importance: log, window: 4}",
                    "local_linear{decay: 0.9}",
                    "local_linear{decay: scalar, importance: input, causal: false}",
                    "local_linear{pair_bias: input}",
                    "local_linear{pair_bias: input, importance: input, causal: false, ridge: 0}",
                    "local_linear{ridge: 0}", "local_linear{kernel: gaussian, bandwidth: 2}",
                    "local_linear{kernel: laplace, bandwidth: 1}",
                    "local_linear{kernel: epanechnikov, bandwidth: 4}",
                    "local_linear{kernel: biweight, bandwidth: 4, decay: scalar}",
                    "local_linear{kernel: triweight, bandwidth: 4, read: before}",
                    "local_linear{kernel: inverse_distance}", "local_quadratic{ridge: 0.5}",
                    "local_quadratic{kernel: gaussian, bandwidth: 3, ridge: 2, decay: scalar}",
                    "local_cubic{kernel: laplace, bandwidth: 3, ridge: 1, causal: false}"),
    [](const auto& one) { return "case" + std::to_string(one.index); });

TEST_P(LocalPolynomialGradient, IsThatOfTheDefinition) {
  test::ExpectGradientsOfTheDefinition(layer_, 1e-7);
}

TEST(LocalPolynomialGradients, OfImportanceAtZeroAreThoseOfTheDefinition) {
  for (const char* recipe :
       {"local_linear{decay: scalar, importance: input, ridge: 2}",
        "local_quadratic{importance: input, kernel: gaussian, bandwidth: 2, ridge: 2}"}) {
    test::ExpectSlopesAtNoImportance(Layer(ParseRecipe(recipe)));
  }
}

// A query that is a key, or two, has the mean of their values: the slope of a share is what its
// value differs from that.
TEST(LocalPolynomialGradients, OfImportanceWhereKeysAreHitAreThoseOfTheDefinition) {
  const Layer layer(ParseRecipe("local_linear{kernel: inverse_distance, importance: input}"));
  const Layer defined(layer.recipe(), kDefinition);
  for (const std::int64_t tokens : {6, 40}) {
    const Call call(layer.recipe(), test::TwoMemories(tokens, 3, 2), DType::kFloat64, 3, true);
    test::Raise(call.inputs);
    for (std::int64_t c = 0; c < 3; ++c) {
      call.inputs.q.Set({0, 4, 0, c}, call.inputs.k.At({0, 1, 0, c}));
      for (const std::int64_t t : {2, 3}) {
        call.inputs.k.Set({0, t, 1, c}, call.inputs.k.At({0, 1, 1, c}));
      }
      call.inputs.q.Set({0, 5, 1, c}, call.inputs.k.At({0, 1, 1, c}));
    }
    const Tensor dy = Normal(DType::kFloat64, OutputShape(call.dims), 32);
    const test::Gradients got = test::Differentiate(layer, call.inputs, {}, dy, {});
    const test::Gradients expected = test::Differentiate(defined, call.inputs, {}, dy, {});
    EXPECT_LE(test::LargestDifference(got.inputs.importance, expected.inputs.importance), 1e-6);
  }
}

TEST_P(LocalPolynomialGradient, HasTheSameBitsForAnyNumberOfThreads) {
  test::ExpectSameGradientsOnAnyThreads(layer_, 150);
}

// More pairs than a block has.
TEST_P(LocalPolynomialGradient, IsThatOfTheDefinitionAlongADirection) {
  const std::int64_t channels = layer_.recipe().function.degree == 1 ? 5 : 3;
  const Dims dims = test::TwoMemories(140, channels, 2);
  const Call call(layer_.recipe(), dims, DType::kFloat64, 6, true);
  test::Raise(call.inputs);
  test::ExpectSlopeOfTheDefinition(layer_, call, Normal(DType::kFloat64, OutputShape(dims), 32),
                                   1e-7);
}

TEST_P(LocalPolynomialGradient, OfManyBlocksIsThatInDouble) {
  const std::int64_t degree = layer_.recipe().function.degree;
  const std::int64_t channels = degree == 1 ? 19 : degree == 2 ? 6 : 4;
  test::ExpectGradientsInDouble(layer_, test::TwoMemories(140, channels, 21), 3e-5);
}

// The definition runs what has more monomials than the engine takes.
TEST(LocalPolynomialGradients, AreThereForSizesOfTheEngineAlone) {
  const Layer layer(ParseRecipe("local_quadratic"));
  EXPECT_TRUE(layer.HasGradients());
  EXPECT_TRUE(layer.HasGradients(test::TwoMemories(8, 21, 2)));
  EXPECT_FALSE(layer.HasGradients(test::TwoMemories(8, 24, 2)));
  EXPECT_TRUE(Layer(ParseRecipe("local_linear")).HasGradients(test::TwoMemories(8, 300, 2)));
}

// Their forward pass goes by conjugate gradients.
TEST(LocalPolynomialGradients, OfManyChannelsAreThoseInDouble) {
  for (const char* recipe : {"local_linear{ridge: 2}", "local_linear{normalise_qk: true}"}) {
    test::ExpectGradientsInDouble(Layer(ParseRecipe(recipe)), test::TwoMemories(140, 64, 5), 3e-5);
  }
}

}  // namespace
}  // namespace ttr
