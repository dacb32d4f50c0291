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

/// The final state. Where the caller wants it, its entries are tensors from the beginning if their
/// sizes and their start are known: then nothing is copied afterwards.
class FinalState {
 public:
  FinalState(const CachedLayer& cached, const Dims& dims, const Inputs& inputs,
             const State& initial, bool wanted)
      : specs_(cached.layer.requirements().state), cached_(cached), dims_(dims) {
    dtype_ = ArithmeticType(inputs, initial);
    if (wanted) tensors_.resize(specs_.size());
    if (wanted && !cached.keeps_pairs) {
      Make(initial);
      return;
    }
    for (const State::Entry& entry : initial.entries()) {
      state_.Set(entry.name, ttr::Tensor::Copy(entry.view));
    }
  }

  State& state() { return state_; }

  /// One tensor an entry; copies of what the library made itself.
  std::vector<Tensor> Tensors() {
    std::vector<Tensor> tensors;
    tensors.reserve(tensors_.size());
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      const StateSpec& spec = specs_[i];
      const TensorView view = state_.Get(spec.name);
      if (!view.defined()) {  // nothing was run: an empty batch
        tensors.push_back(Zeros(TypeOf(spec), StateShape(spec, recipe(), dims_)));
      } else if (tensors_[i] && tensors_[i]->data_ptr() == view.data()) {
        tensors.push_back(std::move(*tensors_[i]));
      } else {
        tensors.push_back(Empty(view.dtype(), view.shape()));
        CopyInto(view, ViewOf(kOp, spec.name, tensors.back()));
      }
    }
    return tensors;
  }

 private:
  const Recipe& recipe() const { return cached_.layer.recipe(); }
  DType TypeOf(const StateSpec& spec) const { return spec.counts() ? DType::kInt64 : dtype_; }

  void Make(const State& initial) {
    for (std::size_t i = 0; i < specs_.size(); ++i) {
      const StateSpec& spec = specs_[i];
      const TensorView from = initial.Get(spec.name);
      if (from.defined()) {
        tensors_[i] = Empty(from.dtype(), from.shape());
      } else if (cached_.starts_at_zero) {
        tensors_[i] = Zeros(TypeOf(spec), StateShape(spec, recipe(), dims_));
      } else {
        continue;
      }
      const TensorView to = ViewOf(kOp, spec.name, *tensors_[i]);
      if (from.defined()) CopyInto(from, to);
      state_.Bind(spec.name, to);
    }
  }

  const std::vector<StateSpec>& specs_;
  const CachedLayer& cached_;
  const Dims& dims_;
  DType dtype_;
  std::vector<OptionalTensor> tensors_;  // an entry each; none where the state is not wanted
  State state_;
};

}  // namespace

void Forward(StableIValue* values) {
  Stack stack(values);
  const std::string recipe = stack.TakeText();
  ByBits input_tensors = TakeByBits(stack);
  ByBits initial_tensors = TakeByBits(stack);
  const bool wants_final = stack.Take<bool>();
  const bool saves = stack.Take<bool>();
  const std::optional<std::string> engine = stack.Take<std::optional<std::string>>();
  CallOptions options = TakeSwitches(stack);
  // A call for gradients multiplies in float32, also where there is nothing to save.
  if (saves) options.bfloat16_products = false;

  const auto cached = FindLayer(recipe, engine.value_or(""));
  const Layer& layer = cached->layer;
  const Inputs inputs = InputViews(kOp, input_tensors);
  const State initial = StateViews(kOp, layer.requirements().state, initial_tensors);
  const Dims dims = InferDims(kOp, layer.requirements(), inputs);
  CheckDims(kOp, dims);
  CheckSequences(kOp, dims, inputs);
  CheckState(kOp, layer.requirements(), dims, initial);

  TorchExecutor executor;
  FinalState final_state(*cached, dims, inputs, initial, wants_final);
  const Tensor y = Empty(inputs.v.dtype(), OutputShape(dims));
  std::vector<Tensor> saved;
  if (saves) {
    saved.push_back(EmptyBytes(layer.SavedBytes(dims, ArithmeticType(inputs, initial))));
    options.saved = BytesOf(kOp, "saved", saved.front());
  }
  const CallScratch scratch(layer.ScratchBytes(dims, executor.threads()));
  options.executor = &executor;
  options.scratch = scratch.bytes();
  layer.Forward(inputs, final_state.state(), {.y = ViewOf(kOp, "y", y)}, options);
  Return(values, y, final_state.Tensors(), saved);
}

}  // namespace ttr::pytorch
