// ttr::backward: gradients of what ttr::forward was given.
#include <algorithm>
#include <string>
#include <utility>

#include "arguments.h"
#include "executor.h"
#include "layers.h"
#include "operators.h"
#include "scratch.h"
#include "tensors.h"
#include "ttr/error.h"
#include "ttr/layer.h"

namespace ttr::pytorch {
namespace {

constexpr std::string_view kOp = "backward";

/// A layer without gradients of its own takes two forward calls of the definition per number.
constexpr std::int64_t kMostDifferences = 4096;

/// What forward saved, at a multiple of 64: a hook may have moved it.
Tensor Aligned(const Tensor& saved) {
  const std::span<std::byte> bytes = BytesOf(kOp, "saved", saved);
  if (reinterpret_cast<std::uintptr_t>(bytes.data()) % 64 == 0) return saved;
  Tensor copy = EmptyBytes(bytes.size());
  std::copy(bytes.begin(), bytes.end(), BytesOf(kOp, "saved", copy).begin());
  return copy;
}

/// The gradients that are wanted: bit i of `wanted` is input i, and behind the inputs entry i of the
/// state.
class Gradients {
 public:
  Gradients(const std::vector<StateSpec>& specs, const Inputs& given, const State& initial,
            std::uint64_t wanted) {
    std::size_t bit = 0;
    for (const InputField& field : InputFields()) {
      const bool is_wanted = (wanted >> bit++ & 1) != 0;
      if (!is_wanted) continue;
      const TensorView& input = given.*field.view;
      if (!input.defined()) throw Error(kOp, ArgumentName(field.name), "given, for its gradient is wanted", "absent");
      inputs.*field.view = Make(field.name, input);
    }
    for (const StateSpec& spec : specs) {
      const bool is_wanted = (wanted >> bit++ & 1) != 0;
      if (!is_wanted) continue;
      const TensorView entry = initial.Get(spec.name);
      if (!entry.defined()) throw Error(kOp, spec.name, "given, for its gradient is wanted", "absent");
      state.Bind(spec.name, Make(spec.name, entry));
    }
  }

  std::int64_t numbers() const { return numbers_; }

  Inputs inputs;
  State state;
  std::vector<Tensor> tensors;  // in the order of the bits

 private:
  TensorView Make(std::string_view name, const TensorView& of) {
    tensors.push_back(Empty(of.dtype(), of.shape()));
    numbers_ += of.shape().elements();
    return ViewOf(kOp, name, tensors.back());
  }

  std::int64_t numbers_ = 0;
};

}  // namespace

void Backward(StableIValue* values) {
  Stack stack(values);
  const std::string recipe = stack.TakeText();
  std::vector<Tensor> initial_tensors = stack.Take<std::vector<Tensor>>();
  const auto entries = stack.Take<std::int64_t>();
  std::vector<Tensor> dstate_tensors = stack.Take<std::vector<Tensor>>();
  const auto dstate_entries = stack.Take<std::int64_t>();
  InputTensors tensors(stack);
  OptionalTensor dy = stack.Take<OptionalTensor>();
  OptionalTensor saved = stack.Take<OptionalTensor>();
  const auto wanted = stack.Take<std::int64_t>();

  const auto cached = FindLayer(recipe);
  const Layer& layer = cached->layer;
  const std::vector<StateSpec>& specs = layer.requirements().state;
  const Inputs& inputs = tensors.Views(kOp);
  StateTensors initial_state(std::move(initial_tensors), entries);
  const State initial = initial_state.Views(kOp, specs);
  StateTensors final_gradients(std::move(dstate_tensors), dstate_entries);
  const State dstate = final_gradients.Views(kOp, specs);
  const Dims dims = InferDims(kOp, layer.requirements(), inputs);
  CheckDims(kOp, dims);
  CheckState(kOp, layer.requirements(), dims, initial);

  // The loss may hang on the final state alone.
  if (!dy) dy = Zeros(inputs.v.dtype(), OutputShape(dims));
  Gradients gradients(specs, inputs, initial, static_cast<std::uint64_t>(wanted));
  if (!layer.HasGradients() && gradients.numbers() > kMostDifferences) {
    throw Error(kOp, "the gradient of a recipe without an engine (central differences)",
                "of at most " + std::to_string(kMostDifferences) + " numbers",
                "of " + std::to_string(gradients.numbers()));
  }
  TorchExecutor executor;
  if (saved && saved->numel() > 0) saved = Aligned(*saved);
  const CallScratch scratch(layer.BackwardScratchBytes(dims, executor.threads()));
  layer.Backward(
      inputs, initial, ViewOf(kOp, "dy", *dy), dstate, gradients.inputs, gradients.state,
      {.executor = &executor,
       .scratch = scratch.bytes(),
       .saved = saved ? BytesOf(kOp, "saved", *saved) : std::span<std::byte>(),
       .ranges_checked = true});
  Return(values, gradients.tensors);
}

}  // namespace ttr::pytorch
