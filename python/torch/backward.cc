// ttr::backward: gradients of what ttr::forward was given.
#include <algorithm>
#include <string>
#include <utility>

#include "arguments.h"
#include "executor.h"
#include "gradients.h"
#include "layers.h"
#include "operators.h"
#include "scratch.h"
#include "tensors.h"
#include "ttr/error.h"
#include "ttr/layer.h"

namespace ttr::pytorch {
namespace {

constexpr std::string_view kOp = "backward";

/// What forward saved, at a multiple of 64: a hook may have moved it.
Tensor Aligned(const Tensor& saved) {
  const std::span<std::byte> bytes = BytesOf(kOp, "saved", saved);
  if (reinterpret_cast<std::uintptr_t>(bytes.data()) % 64 == 0) return saved;
  Tensor copy = EmptyBytes(bytes.size());
  std::copy(bytes.begin(), bytes.end(), BytesOf(kOp, "saved", copy).begin());
  return copy;
}

}  // namespace

void Backward(StableIValue* values) {
  Stack stack(values);
  const std::string recipe = stack.TakeText();
  ByBits input_tensors = TakeByBits(stack);
  ByBits initial_tensors = TakeByBits(stack);
  OptionalTensor dy = stack.Take<OptionalTensor>();
  ByBits final_gradients = TakeByBits(stack);
  std::vector<Tensor> saved = stack.Take<std::vector<Tensor>>();
  Gradients gradients(kOp, stack.Take<std::int64_t>());
  CallOptions options = TakeSwitches(stack);

  const auto cached = FindLayer(recipe);
  const Layer& layer = cached->layer;
  const std::vector<StateSpec>& specs = layer.requirements().state;
  const Inputs inputs = InputViews(kOp, input_tensors);
  const State initial = StateViews(kOp, specs, initial_tensors);
  const State dfinal = StateViews(kOp, specs, final_gradients);
  const Dims dims = InferDims(kOp, layer.requirements(), inputs);
  CheckDims(kOp, dims);

  // Bits: the inputs that are given, then the entries of the initial state that are.
  Inputs dinputs;
  for (const InputField& field : InputFields()) {
    const TensorView& input = inputs.*field.view;
    if (input.defined()) dinputs.*field.view = gradients.Next(field.name, input);
  }
  State dinitial;
  for (const State::Entry& entry : initial.entries()) {
    const TensorView gradient = gradients.Next(entry.name, entry.view);
    if (gradient.defined()) dinitial.Bind(entry.name, gradient);
  }
  if (!layer.HasGradients(dims) && gradients.numbers() > kMostDifferences) {
    throw Error(kOp, "the gradient of a recipe without an engine (central differences)",
                "of at most " + std::to_string(kMostDifferences) + " numbers",
                "of " + std::to_string(gradients.numbers()));
  }
  // The loss may hang on the final state alone.
  if (!dy) dy = Zeros(inputs.v.dtype(), OutputShape(dims));
  if (!saved.empty() && saved.front().numel() > 0) {
    saved.front() = Aligned(saved.front());
    options.saved = BytesOf(kOp, "saved", saved.front());
  }
  TorchExecutor executor;
  const CallScratch scratch(layer.BackwardScratchBytes(dims, executor.threads()));
  options.executor = &executor;
  options.scratch = scratch.bytes();
  layer.Backward(inputs, initial, ViewOf(kOp, "dy", *dy), dfinal, dinputs, dinitial, options);
  Return(values, gradients.tensors());
}

}  // namespace ttr::pytorch
