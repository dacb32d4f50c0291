// Gradients of the layers that the engine local_polynomial runs, against those of the definition.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "tests/support/calls.h"
#include "tests/support/directions.h"
#include "tests/support/engines.h"
#include "tests/support/gradients.h"
#include "ttr/layer.h"

namespace ttr {
namespace {

using test::Call;
using test::Differentiate;
using test::ExpectClose;
using test::ExpectWithin;
using test::Gradients;
using test::Normal;
using test::RandomState;

// Importance and ridge away from 0, where slopes are too steep for differences.
void Raise(const Inputs& inputs) {
  for (const TensorView* view : {&inputs.importance, &inputs.ridge}) {
    if (!view->defined()) continue;
    for (std::int64_t i = 0; i < view->shape().elements(); ++i) {
      StoreElement(view->data(), view->dtype(), i,
                   0.5 + LoadElement(view->data(), view->dtype(), i));
    }
  }
}

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
                    "local_linear{ridge: 0}", "local_linear{kernel: gaussian, bandwidth: 2}",
                    "local_linear{kernel: laplace, bandwidth: 1}",
                    "local_linear{kernel: epanechnikov, bandwidth: 4}",
                    "local_linear{kernel: biweight, bandwidth: 4, decay: scalar}",
                    "local_linear{kernel: triweight, bandwidth: 4, read: before}",
                    "local_linear{kernel: inverse_distance}", "local_quadratic{ridge: 0.5}",
                    "local_quadratic{kernel: gaussian, bandwidth: 3, ridge: 2, decay: scalar}",
                    "local_cubic{kernel: laplace, bandwidth: 3, ridge: 1, causal: false}"),
    [](const auto& one) { return "case" + std::to_string(one.index); });

// Central differences of step 6e-6 have some nine digits where they do not meet an edge of a
// compact kernel.
TEST_P(LocalPolynomialGradient, IsThatOfTheDefinition) {
  for (const bool grouped : {false, true}) {
    Dims dims = test::SmallDims(layer_.recipe());
    dims.batch = 1;
    dims.tokens = 5;
    dims.query_heads = grouped ? 2 : 8;
    Call call(layer_.recipe(), dims, DType::kFloat64, 3, true);
    if (layer_.recipe().optimizer.ridge == 0) call.inputs.ridge = {};
    Raise(call.inputs);
    const Tensor dy = Normal(DType::kFloat64, OutputShape(dims), 30);
    const Layer defined(layer_.recipe(), kDefinition);
    State initial, dstate;
    if (layer_.recipe().reading.causal) {
      initial = RandomState(layer_, call.inputs, 10);
      dstate = RandomState(layer_, call.inputs, 20);
      for (const StateSpec& spec : layer_.requirements().state) {
        if (spec.counts) continue;
        dstate.Set(spec.name,
                   Normal(DType::kFloat64, StateShape(spec, layer_.recipe(), dims, 12), 21));
      }
    }
    const Gradients got = Differentiate(layer_, call.inputs, initial, dy, dstate);
    const Gradients expected = Differentiate(defined, call.inputs, initial, dy, dstate);
    ExpectClose(got, expected, 1e-7);
  }
}

// A pair of importance 0 takes no part, and yet has a slope.
TEST(LocalPolynomialGradients, OfImportanceAtZeroAreThoseOfTheDefinition) {
  for (const char* recipe :
       {"local_linear{decay: scalar, importance: input, ridge: 2}",
        "local_quadratic{importance: input, kernel: gaussian, bandwidth: 2, ridge: 2}"}) {
    const Layer layer(ParseRecipe(recipe)), defined(layer.recipe(), kDefinition);
    const Dims dims = test::TwoMemories(6, 3, 4);
    const Call call(layer.recipe(), dims, DType::kFloat64, 3, true);
    Raise(call.inputs);
    for (const std::int64_t t : {1, 2, 5}) call.inputs.importance.Set({0, t, 1}, 0);
    const Tensor dy = Normal(DType::kFloat64, OutputShape(dims), 30);
    const Gradients got = Differentiate(layer, call.inputs, {}, dy, {});
    Gradients expected = Differentiate(defined, call.inputs, {}, dy, {});
    expected.initial = got.initial;
    ExpectClose(got, expected, 1e-7);
  }
}

TEST_P(LocalPolynomialGradient, HasTheSameBitsForAnyNumberOfThreads) {
  Dims dims = test::SmallDims(layer_.recipe());
  dims.batch = 1;
  dims.heads = dims.key_heads = dims.value_heads = dims.query_heads = 2;
  dims.tokens = 150;
  const Call call(layer_.recipe(), dims, DType::kFloat32, 4, true);
  const Tensor dy = Normal(DType::kFloat32, OutputShape(dims), 30);
  const auto five = MakeExecutor(5);
  const Gradients one =
      Differentiate(layer_, call.inputs, {}, dy, {}, {.executor = &SequentialExecutor()});
  const Gradients many = Differentiate(layer_, call.inputs, {}, dy, {}, {.executor = five.get()});
  ExpectWithin(one, many, 0);
}

// More pairs than a block has.
TEST_P(LocalPolynomialGradient, IsThatOfTheDefinitionAlongADirection) {
  const std::int64_t channels = layer_.recipe().function.degree == 1 ? 5 : 3;
  const Dims dims = test::TwoMemories(140, channels, 2);
  const Call call(layer_.recipe(), dims, DType::kFloat64, 6, true);
  Raise(call.inputs);
  test::ExpectSlopeOfTheDefinition(layer_, call, Normal(DType::kFloat64, OutputShape(dims), 32),
                                   1e-7);
}

// A whole sequence of several blocks, in float32 and from what the forward pass saved.
void ExpectThoseInDouble(const Layer& layer, const Dims& dims) {
  const Call narrow(layer.recipe(), dims, DType::kFloat32, 5, true);
  Raise(narrow.inputs);
  const Call wide(layer.recipe(), dims, DType::kFloat64, 5, true);
  for (const InputField& field : InputFields()) {
    const TensorView& from = narrow.inputs.*field.view;
    if (from.defined()) CopyInto(from, wide.inputs.*field.view);
  }
  const Tensor dy = Normal(DType::kFloat32, OutputShape(dims), 30);
  const Gradients expected = Differentiate(layer, wide.inputs, {}, dy, {});
  const Gradients plain = Differentiate(layer, narrow.inputs, {}, dy, {});
  test::AlignedBytes saved(layer.SavedBytes(dims));
  State state;
  const Tensor y(DType::kFloat32, OutputShape(dims));
  layer.Forward(narrow.inputs, state, {.y = y}, {.saved = saved});
  const Gradients again = Differentiate(layer, narrow.inputs, {}, dy, {}, {.saved = saved});
  for (const InputField& field : InputFields()) {
    const TensorView exact = expected.inputs.*field.view;
    if (!exact.defined()) continue;
    double largest = 1;
    for (std::int64_t i = 0; i < exact.shape().elements(); ++i) {
      largest = std::max(largest, std::abs(exact.as<double>()[i]));
    }
    for (const Gradients* got : {&plain, &again}) {
      EXPECT_LE(test::LargestDifference(got->inputs.*field.view, exact), 3e-5 * largest)
          << field.name;
    }
  }
}

TEST_P(LocalPolynomialGradient, OfManyBlocksIsThatInDouble) {
  const std::int64_t degree = layer_.recipe().function.degree;
  ExpectThoseInDouble(layer_, test::TwoMemories(140, degree == 1 ? 19 : degree == 2 ? 6 : 4, 21));
}

// Their forward pass goes by conjugate gradients.
TEST(LocalPolynomialGradients, OfManyChannelsAreThoseInDouble) {
  for (const char* recipe : {"local_linear{ridge: 2}", "local_linear{normalise_qk: true}"}) {
    ExpectThoseInDouble(Layer(ParseRecipe(recipe)), test::TwoMemories(140, 64, 5));
  }
}

}  // namespace
}  // namespace ttr
