#include "tools/tensor_io.h"

#include <algorithm>

#include "ttr/error.h"

namespace ttr::tools {
namespace {

// What a file may name beside the inputs: the state and its gradient.
struct KnownNames {
  std::vector<std::string> states, gradients;
};

KnownNames NamesOf(const Recipe& recipe) {
  KnownNames names;
  for (const StateSpec& spec : StateSpecs(recipe)) {
    names.states.push_back(spec.name);
    names.gradients.push_back("d" + spec.name);
  }
  return names;
}

bool Contains(const std::vector<std::string>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

[[noreturn]] void FailUnknown(const std::string& path, const std::string& name,
                              const Recipe& recipe, const KnownNames& names) {
  std::string known;
  for (const InputSpec& spec : InputSpecs(recipe)) known += std::string(spec.name) + ", ";
  for (const std::string& state : names.states) known += state + ", ";
  known += "and for gradients dy";
  for (const std::string& gradient : names.gradients) known += ", " + gradient;
  throw Error(path + ": tensor \"" + name + "\" is nothing that this layer takes; it takes " +
              known);
}

// A copy in the states' dtype; counts, and what is wrong, as they are.
Tensor StateCopy(const Tensor& tensor, DType dtype) {
  return Tensor::Copy(tensor, IsFloating(tensor.dtype()) ? dtype : tensor.dtype());
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
  const KnownNames names = NamesOf(recipe);
  for (const auto& [name, tensor] : file.tensors) {
    const auto field = std::find_if(fields.begin(), fields.end(),
                                    [&, &key = name](const auto& f) { return f.name == key; });
    if (field != fields.end()) {
      sorted.inputs.*field->view = tensor.view();
    } else if (name == "dy") {
      sorted.dy = tensor.view();
    } else if (!Contains(names.states, name) && !Contains(names.gradients, name)) {
      FailUnknown(path, name, recipe, names);
    }
  }
  // States last: their dtype follows from the inputs.
  const DType dtype = StateDType(sorted.inputs);
  for (const auto& [name, tensor] : file.tensors) {
    if (Contains(names.states, name)) {
      sorted.state.Set(name, StateCopy(tensor, dtype));
    } else if (Contains(names.gradients, name)) {
      sorted.dstate.Set(name.substr(1), StateCopy(tensor, dtype));
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
