// ttr::forward: every token memorized, every query answered.
#include <algorithm>
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

constexpr std::string_view kOp = "forward";

DType StateTypeOf(const Inputs& inputs, const State& initial) {
  for (const State::Entry& entry : initial.entries()) {
    if (IsFloating(entry.view.dtype())) return entry.view.dtype();
  }
  return inputs.v.defined() && inputs.v.dtype() == DType::kFloat64 ? DType::kFloat64
                                                                   : DType::kFloat32;
}

/// The final state. Its entries are tensors from the beginning where their sizes and their start are
/// known: then the library writes nothing that is copied afterwards.
class FinalState {
 public:
  FinalState(const CachedLayer& cached, const Dims& dims, const Inputs& inputs,
             const State& initial)
      : specs_(cached.layer.requirements().state), tensors_(specs_.size()) {
    const DType dtype = StateTypeOf(inputs, initial);
    const Recipe& recipe = cached.layer.recipe();
    for (std::size_t i = 0; i < specs_.size(); ++i) {
      const StateSpec& spec = specs_[i];
      const TensorView from = initial.Get(spec.name);
      if (!from.defined() && !cached.starts_at_zero) continue;
      const DType type = spec.counts ? DType::kInt64 : dtype;
      const Shape shape = from.defined() ? from.shape() : StateShape(spec, recipe, dims);
      tensors_[i] = from.defined() ? Empty(from.dtype(), shape) : Zeros(type, shape);
      const TensorView to = ViewOf(kOp, spec.name, *tensors_[i]);
      if (from.defined()) CopyInto(from, to);
      state_.Bind(spec.name, to);
    }
  }

  State& state() { return state_; }

  /// One tensor an entry; copies of what the library made itself.
  std::vector<Tensor> Tensors() {
    std::vector<Tensor> tensors;
    tensors.reserve(specs_.size());
    for (std::size_t i = 0; i < specs_.size(); ++i) {
      const TensorView view = state_.Get(specs_[i].name);
      if (!tensors_[i] || tensors_[i]->data_ptr() != view.data()) {
        tensors_[i] = Empty(view.dtype(), view.shape());
        CopyInto(view, ViewOf(kOp, specs_[i].name, *tensors_[i]));
      }
      tensors.push_back(std::move(*tensors_[i]));
    }
    return tensors;
  }

 private:
  const std::vector<StateSpec>& specs_;
  std::vector<OptionalTensor> tensors_;
  State state_;
};

}  // namespace

void Forward(StableIValue* values) {
  Stack stack(values);
  const std::string recipe = stack.TakeText();
  std::vector<Tensor> initial_tensors = stack.Take<std::vector<Tensor>>();
  const auto entries = stack.Take<std::int64_t>();
  InputTensors tensors(stack);
  const bool save = stack.Take<bool>();
  const bool bfloat16_products = stack.Take<bool>();
  const std::optional<std::string> engine = stack.Take<std::optional<std::string>>();

  const auto cached = FindLayer(recipe, engine.value_or(""));
  const Layer& layer = cached->layer;
  const Inputs& inputs = tensors.Views(kOp);
  StateTensors initial_state(std::move(initial_tensors), entries);
  const State initial = initial_state.Views(kOp, layer.requirements().state);
  const Dims dims = InferDims(kOp, layer.requirements(), inputs);
  CheckDims(kOp, dims);
  CheckState(kOp, layer.requirements(), dims, initial);
  CheckSequences(kOp, dims, inputs);

  TorchExecutor executor;
  FinalState final_state(*cached, dims, inputs, initial);
  const Tensor y = Empty(inputs.v.dtype(), OutputShape(dims));
  const std::size_t saved_bytes =
      save ? layer.SavedBytes(dims, StateTypeOf(inputs, initial)) : 0;
  const Tensor saved = EmptyBytes(saved_bytes);
  const CallScratch scratch(layer.ScratchBytes(dims, executor.threads()));
  layer.Forward(inputs, final_state.state(), {.y = ViewOf(kOp, "y", y)},
                {.executor = &executor,
                 .scratch = scratch.bytes(),
                 .saved = BytesOf(kOp, "saved", saved),
                 .bfloat16_products = bfloat16_products});
  Return(values, y, final_state.Tensors(), saved);
}

}  // namespace ttr::pytorch
