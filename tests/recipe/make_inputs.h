/// Inputs of the right shapes for any recipe, from its own specs.
#pragma once

#include <deque>
#include <map>

#include "ttr/inputs.h"

namespace ttr {

/// B = 2, T = 12, Hq = 4, Hk = 1, Hv = 2, H = 2, Dk = Dv = 4, F = 6.
inline std::int64_t SizeOf(Axis axis, const Recipe& recipe) {
  const bool sgd = recipe.optimizer.solver == Solver::kSgd;
  switch (axis) {
    case Axis::kBatch: return 2;
    case Axis::kTokens: return 12;
    case Axis::kRows: return 12 * (sgd ? recipe.optimizer.steps : 1);
    case Axis::kQueryHeads: return 4;
    case Axis::kKeyHeads: return 1;
    case Axis::kValueHeads: return 2;
    case Axis::kHeads: return 2;
    case Axis::kKeyDim: return 4;
    case Axis::kValueDim: return 4;
    case Axis::kFeatures: return 6;
    case Axis::kMiniBatch: return recipe.optimizer.mini_batch;
    case Axis::kSteps: return recipe.optimizer.steps;
    case Axis::kOne: return 1;
    default: return 3;
  }
}

struct OwnedInputs {
  std::deque<Tensor> tensors;
  Inputs inputs;

  void Add(TensorView Inputs::* view, DType dtype, const Shape& shape) {
    tensors.emplace_back(dtype, shape);
    inputs.*view = tensors.back().view();
  }
};

/// All inputs but cu_seqlens; `alternative` chooses among the shapes of an input.
inline OwnedInputs MakeInputs(const Recipe& recipe, std::size_t alternative = 0) {
  OwnedInputs made;
  for (const InputSpec& spec : InputSpecs(recipe)) {
    if (spec.name == "cu_seqlens") continue;
    std::vector<std::int64_t> sizes;
    for (const Axis axis : spec.shapes[std::min(alternative, spec.shapes.size() - 1)]) {
      sizes.push_back(SizeOf(axis, recipe));
    }
    made.Add(spec.view, DType::kFloat32, Shape(sizes));
  }
  return made;
}

}  // namespace ttr
