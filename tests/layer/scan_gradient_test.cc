// Gradients of the layers that the scan engine runs, against those of the definition.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "tests/support/calls.h"
#include "ttr/layer.h"
#include "ttr/random.h"

namespace ttr {
namespace {

using test::Call;
using test::LargestDifference;

Tensor Normal(DType dtype, const Shape& shape, std::uint64_t seed) {
  Tensor tensor(dtype, shape);
  CounterRandom random(seed, 0);
  for (std::int64_t i = 0; i < tensor.elements(); ++i) {
    StoreElement(tensor.data(), dtype, i, random.Normal());
  }
  return tensor;
}

/// A state of the layer, drawn at random.
State RandomState(const Layer& layer, const Inputs& inputs, std::uint64_t seed) {
  State state = layer.InitialState(inputs);
  State drawn;
  for (const State::Entry& entry : state.entries()) {
    drawn.Set(entry.name, Normal(entry.view.dtype(), entry.view.shape(), seed++));
  }
  return drawn;
}

/// Away from 0, where sqrt(1 - g^2) is too steep for differences.
void Steepen(const TensorView& log_decay) {
  if (!log_decay.defined()) return;
  double* numbers = log_decay.as<double>();
  for (std::int64_t i = 0; i < log_decay.shape().elements(); ++i) numbers[i] -= 0.3;
}

/// The gradients of everything that a call takes.
struct Result {
  std::vector<Tensor> tensors;
  Inputs inputs;
  State initial;
};

Result Differentiate(const Layer& layer, const Inputs& inputs, const State& initial,
                     const TensorView& dy, const State& dstate, const Run& run = {}) {
  Result result;
  for (const InputField& field : InputFields()) {
    const TensorView& input = inputs.*field.view;
    if (!input.defined() || !IsFloating(input.dtype())) continue;
    result.tensors.push_back(Normal(DType::kFloat64, input.shape(), 99));  // to be overwritten
    result.inputs.*field.view = result.tensors.back().view();
  }
  layer.Backward(inputs, initial, dy, dstate, result.inputs, result.initial, run);
  return result;
}

void ExpectEqual(const Result& a, const Result& b, double tolerance) {
  for (const InputField& field : InputFields()) {
    const TensorView& x = a.inputs.*field.view;
    if (!x.defined()) continue;
    EXPECT_LE(LargestDifference(x, b.inputs.*field.view), tolerance) << field.name;
  }
  ASSERT_EQ(a.initial.entries().size(), b.initial.entries().size());
  for (const State::Entry& entry : a.initial.entries()) {
    EXPECT_LE(LargestDifference(entry.view, b.initial.Get(entry.name)), tolerance) << entry.name;
  }
}

class ScanGradient : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override { ASSERT_EQ(layer_.plan().engine, Engine::kScan); }
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
    const Result got = Differentiate(layer_, call.inputs, initial, dy, dstate);
    const Layer defined(layer_.recipe(), Engine::kDefinition);
    const Result expected = Differentiate(defined, call.inputs, initial, dy, dstate);
    // The error of central differences of step h = 6e-6 is h^2 / 6 = 6e-12 times the third
    // derivative, which a norm of small answers takes to 1e4.
    ExpectEqual(got, expected, 3e-7);
  }
}

TEST_P(ScanGradient, HasTheSameBitsForAnyNumberOfThreads) {
  Dims dims = test::SmallDims(layer_.recipe());
  dims.tokens = 70;
  const Call call(layer_.recipe(), dims, DType::kFloat32, 4, true);
  const Tensor dy =
      Normal(DType::kFloat32, {dims.batch, dims.tokens, dims.output_heads(), dims.value_dim}, 30);
  const auto three = MakeExecutor(3);
  const ttr::Run one_thread{.executor = &SequentialExecutor(), .scratch = {}};
  const ttr::Run threads{.executor = three.get(), .scratch = {}};
  const Result one = Differentiate(layer_, call.inputs, {}, dy, {}, one_thread);
  const Result many = Differentiate(layer_, call.inputs, {}, dy, {}, threads);
  ExpectEqual(one, many, 0);
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
  // Of what was forgotten nobody asks, so that its NaN belongs to no loss.
  for (std::int64_t before = 2; before < t; ++before) dy.view().Set({0, before, 1, 2}, 0);
  const Result got = Differentiate(layer, call.inputs, {}, dy, {});
  EXPECT_EQ(got.inputs.log_decay.At({0, t, 1, 2}), 0);
  for (std::int64_t s = t; s < dims.tokens; ++s) {
    EXPECT_TRUE(std::isfinite(got.inputs.v.At({0, s, 1, 2})));
    EXPECT_TRUE(std::isfinite(got.inputs.log_decay.At({0, s, 1, 2})));
  }
  EXPECT_EQ(got.inputs.v.At({0, t - 1, 1, 2}), 0);
}

}  // namespace
}  // namespace ttr
