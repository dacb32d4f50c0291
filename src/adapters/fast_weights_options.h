/// Recipes and tensors as options and operands of the fast-weights engine.
#pragma once

#include <string_view>

#include "src/adapters/engine.h"
#include "src/core/call_scratch.h"
#include "src/engines/fast_weights/fast_weights.h"
#include "ttr/inputs.h"
#include "ttr/state.h"

namespace ttr {

fast_weights::Options FastWeightsOptions(const Recipe& recipe, const Dims& dims,
                                         const Inputs& inputs);

/// Inputs, or their gradients, by the engine's names: what it calls `step` is a step size, or the
/// weight of a Hebbian memory.
fast_weights::Operands<TensorView> FastWeightsOperands(const Recipe& recipe, const Inputs& inputs);

/// A state, or its gradients, by the engine's names: get(name) is an entry.
template <class Get>
fast_weights::StateOperands<TensorView> FastWeightsStates(const Recipe& recipe, const Get& get) {
  return {.state = get("state"),
          .second = get(recipe.weights.phase ? "state.im" : "state.momentum"),
          .sum = get("state.n"),
          .maximum = get("state.m"),
          .curvature = get("state.d"),
          .position = get("state.position")};
}
inline fast_weights::StateOperands<TensorView> FastWeightsStates(const Recipe& recipe,
                                                                 const State& state) {
  return FastWeightsStates(recipe, [&](std::string_view name) { return state.Get(name); });
}

/// The tensors of a call that has been checked, but for its outputs; `states` are complete.
fast_weights::Call FastWeightsCall(const EngineCall& from,
                                   const fast_weights::StateOperands<TensorView>& states,
                                   Needs needs, CallScratch& scratch);

}  // namespace ttr
