// Gradients of the layers that the scan engine runs, against those of the definition.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "tests/support/calls.h"
#include "tests/support/gradients.h"
#include "ttr/layer.h"
#include "ttr/util/random.h"

namespace ttr {
namespace {

using test::Call;
using test::Differentiate;
using test::ExpectWithin;
using test::Gradients;
using test::LargestDifference;
using test::Normal;
using test::RandomState;

/// Away from 0, where sqrt(1 - g^2) is too steep for differences.
void Steepen(const TensorView& log_decay) {
  if (!log_decay.defined()) return;
  double* numbers = log_decay.as<double>();
  for (std::int64_t i = 0; i < log_decay.shape().elements(); ++i) numbers[i] -= 0.3;
}

class ScanGradient : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override { ASSERT_EQ(layer_.plan().engine, "scan"); }
  Layer layer_{ParseRecipe(GetParam())};
};

INSTANTIATE_TEST_SUITE_P(
    All, ScanGradient,
    testing::Values("lru", "hgrn", "rg_lru", "mamba", "hgrn{phase: true, eta: 0.5}",
                    "lru{read: before}", "rg_lru{output_norm: l2}", "lru{output_norm: rms}",
                    "decay(channel) x importance(input) | constant | gradient",
                    "decay(scalar) x importance(input) | constant | gradient(eta: 2)",
                    "decay(retention) | constant | gradient", "uniform | constant | gradient",
                    "decay(0.9) | constant | gradient | reading(read: before)",
                    "mamba{read: before, eta: 0.7}", "mamba{normalise_qk: true, scale: rsqrt_dk}",
                    "mamba{output_norm: rms}",
                    "decay(matrix) x importance(input) | linear | gradient"),
    [](const auto& one) { return "case" + std::to_string(one.index); });

TEST_P(ScanGradient, IsThatOfTheDefinition) {
  for (const bool grouped : {false, true}) {
    Dims dims = test::SmallDims(layer_.recipe());
    dims.batch = 1;
    dims.tokens = 5;
    if (grouped && dims.key_heads == dims.heads) continue;  // vectors have no groups
    dims.value_heads = grouped ? 2 : 4;
    dims.query_heads = grouped ? 2 : 8;
    if (dims.key_heads == dims.heads) dims.query_heads = 4;
    if (dims.key_heads == dims.heads) dims.value_heads = 4;
    const Call call(layer_.recipe(), dims, DType::kFloat64, 3, true);
    Steepen(call.inputs.log_decay);
    const State initial = RandomState(layer_, call.inputs, 10);
    const State dstate = RandomState(layer_, call.inputs, 20);
    const Tensor dy =
        Normal(DType::kFloat64, {dims.batch, dims.tokens, dims.output_heads(), dims.value_dim}, 30);
    const Gradients got = Differentiate(layer_, call.inputs, initial, dy, dstate);
    const Layer defined(layer_.recipe(), kDefinition);
    const Gradients expected = Differentiate(defined, call.inputs, initial, dy, dstate);
    // The error of central differences of step h = 6e-6 is h^2 / 6 = 6e-12 times the third
    // derivative, which a norm of small answers takes to 1e4.
    ExpectWithin(got, expected, 3e-7);
  }
}

TEST_P(ScanGradient, HasTheSameBitsForAnyNumberOfThreads) {
  Dims dims = test::SmallDims(layer_.recipe());
  dims.tokens = 70;
  const Call call(layer_.recipe(), dims, DType::kFloat32, 4, true);
  const Tensor dy =
      Normal(DType::kFloat32, {dims.batch, dims.tokens, dims.output_heads(), dims.value_dim}, 30);
  const auto three = MakeExecutor(3);
  const ttr::CallOptions one_thread{.executor = &SequentialExecutor(), .scratch = {}};
  const ttr::CallOptions threads{.executor = three.get(), .scratch = {}};
  const Gradients one = Differentiate(layer_, call.inputs, {}, dy, {}, one_thread);
  const Gradients many = Differentiate(layer_, call.inputs, {}, dy, {}, threads);
  ExpectWithin(one, many, 0);
}

TEST(ScanGradients, OfAForgottenPastAreZero) {
  const Layer layer(ParseRecipe("rg_lru"));
  Dims dims = test::SmallDims(layer.recipe());
  Call call(layer.recipe(), dims, DType::kFloat64, 5);
  constexpr double kInf = std::numeric_limits<double>::infinity();
  const std::int64_t t = 6;
  call.inputs.log_decay.Set({0, t, 1, 2}, -kInf);
  call.inputs.v.Set({0, 2, 1, 2}, std::numeric_limits<double>::quiet_NaN());
  const Tensor dy =
      Normal(DType::kFloat64, {dims.batch, dims.tokens, dims.output_heads(), dims.value_dim}, 6);
  // Nobody asks for what was forgotten, so that its NaN belongs to no loss.
  for (std::int64_t before = 2; before < t; ++before) dy.view().Set({0, before, 1, 2}, 0);
  const Gradients got = Differentiate(layer, call.inputs, {}, dy, {});
  EXPECT_EQ(got.inputs.log_decay.At({0, t, 1, 2}), 0);
  for (std::int64_t s = t; s < dims.tokens; ++s) {
    EXPECT_TRUE(std::isfinite(got.inputs.v.At({0, s, 1, 2})));
    EXPECT_TRUE(std::isfinite(got.inputs.log_decay.At({0, s, 1, 2})));
  }
  EXPECT_EQ(got.inputs.v.At({0, t - 1, 1, 2}), 0);
}

}  // namespace
}  // namespace ttr
