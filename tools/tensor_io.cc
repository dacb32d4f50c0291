#include "tools/tensor_io.h"

#include <algorithm>

#include "ttr/error.h"

namespace ttr::tools {
namespace {

constexpr std::string_view kState = "state";
constexpr std::string_view kStateGradient = "dstate";

bool IsStateName(std::string_view name, std::string_view stem) {
  return name == stem || (name.starts_with(stem) && name.substr(stem.size()).starts_with("."));
}

std::string NamesTaken(const Recipe& recipe) {
  std::string names;
  for (const InputSpec& spec : InputSpecs(recipe)) names += std::string(spec.name) + ", ";
  for (const StateSpec& spec : StateSpecs(recipe)) names += spec.name + ", ";
  return names + "or (for gradients) dy, dstate...";
}

bool PerToken(const InputSpec& spec, Axis* axis) {
  const std::vector<Axis>& shape = spec.shapes.front();
  if (shape.size() < 2 || shape[0] != Axis::kBatch) return false;
  *axis = shape[1];
  return shape[1] == Axis::kTokens || shape[1] == Axis::kRows;
}

}  // namespace

DType StateDType(const Inputs& inputs) {
  const TensorView& typed = inputs.v.defined() ? inputs.v : inputs.q;
  return typed.defined() && typed.dtype() == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
}

LayerFile SortTensors(const std::string& path, const TensorFile& file, const Recipe& recipe) {
  LayerFile sorted;
  const auto fields = InputFields();
  for (const auto& [name, tensor] : file.tensors) {
    const auto field = std::find_if(fields.begin(), fields.end(),
                                    [&, &key = name](const auto& f) { return f.name == key; });
    if (field != fields.end()) {
      sorted.inputs.*field->view = tensor.view();
    } else if (name == "dy") {
      sorted.dy = tensor.view();
    } else if (!IsStateName(name, kState) && !IsStateName(name, kStateGradient)) {
      throw Error(path + ": tensor \"" + name + "\" is nothing that this layer takes; it takes " +
                  NamesTaken(recipe));
    }
  }
  // States last: their dtype follows from the inputs.
  const DType dtype = StateDType(sorted.inputs);
  for (const auto& [name, tensor] : file.tensors) {
    const DType as = IsFloating(tensor.dtype()) ? dtype : tensor.dtype();
    if (IsStateName(name, kState)) sorted.state.Set(name, Tensor::Copy(tensor, as));
    if (IsStateName(name, kStateGradient)) {
      sorted.dstate.Set(name.substr(1), Tensor::Copy(tensor, as));
    }
  }
  UpgradeCounts(recipe, sorted.state);
  return sorted;
}

Inputs SliceTokens(const Recipe& recipe, const Inputs& inputs, std::int64_t begin,
                   std::int64_t count, Tensor& cu_seqlens) {
  const std::int64_t rows = recipe.optimizer.solver == Solver::kSgd ? recipe.optimizer.steps : 1;
  Inputs part = inputs;
  for (const InputSpec& spec : InputSpecs(recipe)) {
    TensorView& view = part.*spec.view;
    Axis axis{};
    if (!view.defined() || !PerToken(spec, &axis)) continue;
    const std::int64_t n = axis == Axis::kRows ? rows : 1;
    view = view.Slice(1, begin * n, count * n);
  }
  if (inputs.cu_seqlens.defined()) {
    cu_seqlens = Tensor::Copy(inputs.cu_seqlens);
    for (std::int64_t& bound : cu_seqlens.as<std::int64_t>()) {
      bound = std::clamp<std::int64_t>(bound - begin, 0, count);
    }
    part.cu_seqlens = cu_seqlens.view();
  }
  return part;
}

}  // namespace ttr::tools
