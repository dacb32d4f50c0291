#include "tests/support/pair_gradients.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "tests/support/calls.h"
#include "tests/support/engines.h"
#include "tests/support/gradients.h"

namespace ttr::test {
namespace {

Tensor GradientOfOutputs(const Call& call) {
  return Normal(call.inputs.q.dtype(), OutputShape(call.dims), 30);
}

// Drawn, with room for what the call writes.
State FinalGradient(const Layer& layer, const Call& call) {
  State state = RandomState(layer, call.inputs, 20);
  for (const StateSpec& spec : layer.requirements().state) {
    if (spec.counts()) continue;
    const Shape shape = StateShape(spec, layer.recipe(), call.dims, 12);
    state.Set(spec.name, Normal(DType::kFloat64, shape, 21));
  }
  return state;
}

double Largest(const TensorView& numbers) {
  double largest = 1;
  for (std::int64_t i = 0; i < numbers.shape().elements(); ++i) {
    largest = std::max(largest, std::abs(numbers.as<double>()[i]));
  }
  return largest;
}

}  // namespace

void Raise(const Inputs& inputs) {
  for (const TensorView* view : {&inputs.importance, &inputs.ridge}) {
    if (!view->defined()) continue;
    for (std::int64_t i = 0; i < view->shape().elements(); ++i) {
      const double number = LoadElement(view->data(), view->dtype(), i);
      StoreElement(view->data(), view->dtype(), i, 0.4 + number);
    }
  }
}

// Central differences of step 6e-6 have some nine digits where they do not meet an edge of a
// compact kernel.
void ExpectGradientsOfTheDefinition(const Layer& layer, double tolerance) {
  const Layer defined(layer.recipe(), kDefinition);
  for (const std::int64_t query_heads : {8, 2}) {
    SCOPED_TRACE(query_heads);
    Dims dims = SmallDims(layer.recipe());
    dims.batch = 1;
    dims.tokens = 5;
    dims.query_heads = query_heads;
    Call call(layer.recipe(), dims, DType::kFloat64, 3, true);
    if (layer.recipe().optimizer.ridge == 0) call.inputs.ridge = {};
    Raise(call.inputs);
    const Shape pairs{dims.batch, dims.tokens, dims.query_heads, 12};  // those of a state, too
    const Tensor bias = Normal(DType::kFloat64, pairs, 22);
    if (call.inputs.pair_bias.defined()) call.inputs.pair_bias = bias;
    const Tensor dy = GradientOfOutputs(call);
    State initial, dstate;
    if (layer.recipe().reading.causal) {
      initial = RandomState(layer, call.inputs, 10);
      dstate = FinalGradient(layer, call);
    }
    ExpectClose(Differentiate(layer, call.inputs, initial, dy, dstate),
                Differentiate(defined, call.inputs, initial, dy, dstate), tolerance);
  }
}

void ExpectSlopesAtNoImportance(const Layer& layer) {
  const Layer defined(layer.recipe(), kDefinition);
  const Call call(layer.recipe(), TwoMemories(6, 3, 4), DType::kFloat64, 3, true);
  Raise(call.inputs);
  for (const std::int64_t t : {1, 2, 5}) call.inputs.importance.Set({0, t, 1}, 0);
  const Tensor dy = GradientOfOutputs(call);
  const Gradients got = Differentiate(layer, call.inputs, {}, dy, {});
  Gradients expected = Differentiate(defined, call.inputs, {}, dy, {});
  expected.initial = got.initial;
  ExpectClose(got, expected, 1e-7);
}

void ExpectSameGradientsOnAnyThreads(const Layer& layer, std::int64_t tokens) {
  Dims dims = SmallDims(layer.recipe());
  dims.batch = 1;
  dims.heads = dims.key_heads = dims.value_heads = dims.query_heads = 2;
  dims.tokens = tokens;
  const Call call(layer.recipe(), dims, DType::kFloat32, 4, true);
  const Tensor dy = GradientOfOutputs(call);
  const auto five = MakeExecutor(5);
  ExpectWithin(Differentiate(layer, call.inputs, {}, dy, {}, {.executor = &SequentialExecutor()}),
               Differentiate(layer, call.inputs, {}, dy, {}, {.executor = five.get()}), 0);
}

void ExpectGradientsInDouble(const Layer& layer, const Dims& dims, double tolerance) {
  const Call narrow(layer.recipe(), dims, DType::kFloat32, 5, true);
  Raise(narrow.inputs);
  const Call wide(layer.recipe(), dims, DType::kFloat64, 5, true);
  for (const InputField& field : InputFields()) {
    const TensorView& from = narrow.inputs.*field.view;
    if (from.defined()) CopyInto(from, wide.inputs.*field.view);
  }
  const Tensor dy = GradientOfOutputs(narrow);
  const Gradients expected = Differentiate(layer, wide.inputs, {}, dy, {});
  std::vector<Gradients> found;
  found.push_back(Differentiate(layer, narrow.inputs, {}, dy, {}));
  if (AlignedBytes saved(layer.SavedBytes(dims)); !saved.empty()) {
    State state;
    const Tensor y(DType::kFloat32, OutputShape(dims));
    layer.Forward(narrow.inputs, state, {.y = y}, {.saved = saved});
    found.push_back(Differentiate(layer, narrow.inputs, {}, dy, {}, {.saved = saved}));
  }
  for (const InputField& field : InputFields()) {
    const TensorView exact = expected.inputs.*field.view;
    if (!exact.defined()) continue;
    for (const Gradients& got : found) {
      EXPECT_LE(LargestDifference(got.inputs.*field.view, exact), tolerance * Largest(exact))
          << field.name;
    }
  }
}

}  // namespace ttr::test
