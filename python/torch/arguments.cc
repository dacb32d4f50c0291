#include "arguments.h"

#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/ops.h>

#include <bit>
#include <stdexcept>

#include "../names.h"
#include "../switches.h"
#include "ttr/error.h"

namespace ttr::pytorch {
namespace {

bool IsInt32(const Tensor& tensor) {
  std::int32_t type = 0;
  STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_get_dtype(tensor.get(), &type));
  return type == aoti_torch_dtype_int32();
}

}  // namespace

std::string SwitchKeywords() {
  std::string keywords;
  for (const CallSwitch& known : kCallSwitches) {
    keywords += ", bool " + std::string(known.name) + "=False";
  }
  return keywords;
}

CallOptions TakeSwitches(Stack& stack) {
  CallOptions options;
  for (const CallSwitch& known : kCallSwitches) options.*known.value = stack.Take<bool>();
  return options;
}

void ByBits::Check(std::string_view op, std::string_view name, std::size_t most) const {
  const bool fits = most >= 64 || bits_ >> most == 0;
  if (fits && static_cast<std::size_t>(std::popcount(bits_)) == tensors_.size()) return;
  throw Error(op, name, "as many tensors as its number has bits, of " + std::to_string(most),
              std::to_string(tensors_.size()));
}

ByBits TakeByBits(Stack& stack) {
  auto tensors = stack.Take<std::vector<Tensor>>();
  return {std::move(tensors), stack.Take<std::int64_t>()};
}

Inputs InputViews(std::string_view op, ByBits& tensors) {
  Inputs views;
  tensors.ForEach(op, "inputs", InputFields().size(), [&](std::size_t i, Tensor& tensor) {
    const InputField& field = InputFields()[i];
    if (field.view == &Inputs::cu_seqlens && IsInt32(tensor)) {
      tensor = torch::stable::to(tensor, torch::headeronly::ScalarType::Long);
    }
    if (!HasRows(tensor)) tensor = CopyRows(tensor);
    views.*field.view = ViewOf(op, field.name, tensor);
  });
  return views;
}

TensorView RowsOf(std::string_view op, std::string_view name, OptionalTensor& tensor) {
  if (tensor && !HasRows(*tensor)) tensor = CopyRows(*tensor);
  return ViewOf(op, name, tensor);
}

TensorView ViewOf(std::string_view op, std::string_view name, const OptionalTensor& tensor) {
  return tensor ? ViewOf(op, name, *tensor) : TensorView();
}

TensorView SequencesOf(std::string_view op, OptionalTensor& tensor) {
  return IntegersOf(op, "cu_seqlens", tensor);
}

TensorView IntegersOf(std::string_view op, std::string_view name, OptionalTensor& tensor) {
  if (tensor && IsInt32(*tensor)) {
    tensor = torch::stable::to(*tensor, torch::headeronly::ScalarType::Long);
  }
  return RowsOf(op, name, tensor);
}

State StateViews(std::string_view op, const std::vector<StateSpec>& specs, ByBits& tensors) {
  State state;
  tensors.ForEach(op, "the state", specs.size(), [&](std::size_t i, Tensor& tensor) {
    state.Bind(specs[i].name, ViewOf(op, specs[i].name, tensor));
  });
  return state;
}

State WholeState(std::string_view op, const Layer& layer, std::vector<Tensor> tensors) {
  const std::vector<StateSpec>& specs = layer.requirements().state;
  const std::uint64_t all = tensors.empty() ? 0 : (std::uint64_t{1} << specs.size()) - 1;
  ByBits entries(std::move(tensors), static_cast<std::int64_t>(all));
  return StateViews(op, specs, entries);
}

std::vector<Tensor> CopiesOf(std::string_view op, const State& state) {
  std::vector<Tensor> tensors;
  for (const State::Entry& entry : state.entries()) {
    tensors.push_back(Empty(entry.view.dtype(), entry.view.shape()));
    CopyInto(entry.view, ViewOf(op, entry.name, tensors.back()));
  }
  return tensors;
}

void Rethrow(const Error& error) { throw std::invalid_argument(WithKeywords(error.what())); }

}  // namespace ttr::pytorch
