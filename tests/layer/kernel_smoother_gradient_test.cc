// Gradients of the layers that the kernel smoother runs, against those of the definition.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>

#include "tests/support/calls.h"
#include "tests/support/directions.h"
#include "tests/support/engines.h"
#include "tests/support/gradients.h"
#include "tests/support/pair_gradients.h"
#include "ttr/layer.h"

namespace ttr {
namespace {

using test::Call;
using test::Differentiate;
using test::ExpectClose;
using test::Gradients;
using test::Normal;

class KernelSmootherGradient : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override { ASSERT_EQ(layer_.plan().engine, "kernel_smoother"); }
  Layer layer_{ParseRecipe(GetParam())};
};

INSTANTIATE_TEST_SUITE_P(
    All, KernelSmootherGradient,
    testing::Values("softmax", "softmax{normalise_qk: true, scale: 3}", "softmax{read: before}",
                    "softmax{causal: false}", "softmax{output_norm: rms}", "kernel_smoother",
                    "kernel_smoother{kernel: gaussian, bandwidth: 2, eta: 0.5}",
                    "window_softmax{window: 3}", "decayed_softmax",
                    "decayed_softmax{importance: input, read: before}",
                    "decayed_softmax{importance: log, window: 4}", "softmax{decay: 0.9}",
                    "kernel_smoother{decay: scalar, importance: log}",
                    "kernel_smoother{decay: scalar, importance: input, causal: false}",
                    "nadaraya_watson{bandwidth: 2}", "nadaraya_watson{kernel: laplace}",
                    "nadaraya_watson{kernel: epanechnikov, bandwidth: 3}",
                    "nadaraya_watson{kernel: biweight, bandwidth: 3, decay: scalar}",
                    "nadaraya_watson{kernel: triweight, bandwidth: 3, normalise_qk: true}",
                    "softmax{kernel: inverse_distance}", "softmax{pair_bias: input}",
                    "softmax{pair_bias: input, causal: false}",
                    "softmax{pair_bias: power, exponent: 2, decay: scalar}",
                    "softmax{pair_bias: block, extent: 3, causal: false}",
                    "kernel_smoother{pair_bias: input, decay: scalar, importance: input}",
                    "nadaraya_watson{kernel: triweight, bandwidth: 3, pair_bias: input}"),
    [](const auto& one) { return "case" + std::to_string(one.index); });

TEST_P(KernelSmootherGradient, IsThatOfTheDefinition) {
  test::ExpectGradientsOfTheDefinition(layer_, 1e-7);
}

// More pairs than a block has.
TEST_P(KernelSmootherGradient, IsThatOfTheDefinitionAlongADirection) {
  const Dims dims = test::TwoMemories(200, 5, 3);
  const Call call(layer_.recipe(), dims, DType::kFloat64, 6, true);
  test::Raise(call.inputs);
  test::ExpectSlopeOfTheDefinition(layer_, call, Normal(DType::kFloat64, OutputShape(dims), 32),
                                   1e-7);
}

TEST(KernelSmootherGradients, OfImportanceAtZeroAreThoseOfTheDefinition) {
  for (const char* recipe :
       {"decayed_softmax{importance: input}",
        "kernel_smoother{importance: input, kernel: gaussian, bandwidth: 2}"}) {
    test::ExpectSlopesAtNoImportance(Layer(ParseRecipe(recipe)));
  }
}

// Keys and queries drift: what a compact kernel reaches, and what strong decays leave, is within a
// window. Blocks beyond are skipped, forward and backward; a window leaves them out by their place.
TEST(KernelSmootherGradients, OfPairsOutOfReachAreNone) {
  for (const auto& [recipe, windowed] :
       {std::pair{"nadaraya_watson{kernel: epanechnikov, bandwidth: 2}",
                  "nadaraya_watson{kernel: epanechnikov, bandwidth: 2, window: 100}"},
        std::pair{"nadaraya_watson{kernel: triweight, bandwidth: 2, decay: scalar}",
                  "nadaraya_watson{kernel: triweight, bandwidth: 2, decay: scalar, window: 100}"},
        std::pair{"decayed_softmax", "decayed_softmax{window: 100}"}}) {
    const Layer layer(ParseRecipe(recipe)), within(ParseRecipe(windowed));
    const Dims dims = test::TwoMemories(900, 5, 6);
    const Call call(layer.recipe(), dims, DType::kFloat64, 7, true);
    const bool drifts = layer.recipe().similarity.kernel != Kernel::kExponential;
    for (std::int64_t t = 0; t < dims.tokens; ++t) {
      for (std::int64_t h = 0; h < 2; ++h) {
        const double place = 0.021 * static_cast<double>(t);  // 96 tokens are beyond 2
        if (drifts) call.inputs.q.Set({0, t, h, 0}, place);
        if (drifts) call.inputs.k.Set({0, t, h, 0}, place);
        // exp(-8 x 100) is 0.
        if (call.inputs.log_decay.defined()) {
          call.inputs.log_decay.Set({0, t, h}, drifts ? -0.01 : -8);
        }
      }
    }
    State state, other;
    const Tensor y(DType::kFloat64, OutputShape(dims)), expected(DType::kFloat64, y.shape());
    layer.Forward(call.inputs, state, {.y = y});
    within.Forward(call.inputs, other, {.y = expected});
    EXPECT_LE(test::LargestDifference(y, expected), 1e-13) << recipe;
    const Tensor dy = Normal(DType::kFloat64, OutputShape(dims), 30);
    const Gradients got = Differentiate(layer, call.inputs, {}, dy, {});
    ExpectClose(got, Differentiate(within, call.inputs, {}, dy, {}), 1e-11);
    // A key beyond reach that is not a number is for those who see it, and all see it.
    call.inputs.k.Set({0, 3, 0, 1}, std::nan(""));
    layer.Forward(call.inputs, state = State(), {.y = y});
    EXPECT_TRUE(std::isnan(y.view().At({0, 899, 0, 0}))) << recipe;
    EXPECT_FALSE(std::isnan(y.view().At({0, 899, 1, 0}))) << recipe;
  }
}

TEST_P(KernelSmootherGradient, HasTheSameBitsForAnyNumberOfThreads) {
  test::ExpectSameGradientsOnAnyThreads(layer_, 300);
}

TEST_P(KernelSmootherGradient, OfManyBlocksIsThatInDouble) {
  test::ExpectGradientsInDouble(layer_, test::TwoMemories(300, 19, 21), 3e-5);
}

}  // namespace
}  // namespace ttr
