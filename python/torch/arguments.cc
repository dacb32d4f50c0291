#include "arguments.h"

#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/ops.h>

#include <bit>
#include <utility>

#include "ttr/error.h"

namespace ttr::pytorch {
namespace {

bool IsInt32(const Tensor& tensor) {
  std::int32_t type = 0;
  STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_get_dtype(tensor.get(), &type));
  return type == aoti_torch_dtype_int32();
}

}  // namespace

std::string ArgumentName(std::string_view input) {
  std::string name(input);
  if (const std::size_t dot = name.find('.'); dot != std::string::npos) name[dot] = '_';
  return name;
}

InputTensors::InputTensors(Stack& stack) {
  tensors_.reserve(InputFields().size());
  for (std::size_t i = 0; i < InputFields().size(); ++i) {
    tensors_.push_back(stack.Take<OptionalTensor>());
  }
}

const Inputs& InputTensors::Views(std::string_view op) {
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    OptionalTensor& tensor = tensors_[i];
    if (!tensor) continue;
    const InputField& field = InputFields()[i];
    if (field.view == &Inputs::cu_seqlens && IsInt32(*tensor)) {
      tensor = torch::stable::to(*tensor, torch::headeronly::ScalarType::Long);
    }
    if (tensor->is_cpu()) tensor = WithRows(*tensor);
    views_.*field.view = ViewOf(op, ArgumentName(field.name), *tensor);
  }
  return views_;
}

StateTensors::StateTensors(std::vector<Tensor> tensors, std::int64_t entries)
    : tensors_(std::move(tensors)), entries_(entries) {
  if (tensors_.empty()) entries_ = 0;
}

const Tensor* StateTensors::Find(std::size_t entry) const {
  const auto bits = static_cast<std::uint64_t>(entries_);
  const std::uint64_t bit = std::uint64_t{1} << entry;
  if ((bits & bit) == 0) return nullptr;
  return &tensors_[static_cast<std::size_t>(std::popcount(bits & (bit - 1)))];
}

State StateTensors::Views(std::string_view op, const std::vector<StateSpec>& specs) {
  const std::uint64_t all = (std::uint64_t{1} << specs.size()) - 1;
  if (entries_ == -1) entries_ = static_cast<std::int64_t>(all);
  const auto bits = static_cast<std::uint64_t>(entries_);
  if ((bits & ~all) != 0 || static_cast<std::size_t>(std::popcount(bits)) != tensors_.size()) {
    throw Error(op, "the state", "of " + std::to_string(specs.size()) + " tensors, or of as many as `entries` has bits",
                std::to_string(tensors_.size()));
  }
  State state;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    if (const Tensor* const tensor = Find(i)) {
      state.Bind(specs[i].name, ViewOf(op, specs[i].name, *tensor));
    }
  }
  return state;
}

void Rethrow(const Error& error) {
  std::string text = error.what();
  for (const InputField& field : InputFields()) {
    if (field.name.find('.') == std::string_view::npos) continue;
    for (std::size_t at; (at = text.find(field.name)) != std::string::npos;) {
      text.replace(at, field.name.size(), ArgumentName(field.name));
    }
  }
  throw std::invalid_argument(text);
}

std::string InputArguments() {
  std::string text;
  for (const InputField& field : InputFields()) {
    text += "Tensor? " + ArgumentName(field.name) + "=None, ";
  }
  return text;
}

}  // namespace ttr::pytorch
