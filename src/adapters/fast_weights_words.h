/// Recipes and tensors as options and operands of the fast-weights engine.
#pragma once

#include "src/adapters/engine.h"
#include "src/engines/fast_weights/fast_weights.h"
#include "ttr/inputs.h"
#include "ttr/state.h"

namespace ttr {

fast_weights::Options FastWeightsOptions(const Recipe& recipe, const Dims& dims,
                                         const Inputs& inputs);

/// Inputs, or their gradients, by the engine's names: what it calls `step` is a step size, or the
/// weight of a Hebbian memory.
fast_weights::Operands<TensorView> FastWeightsOperands(const Recipe& recipe, const Inputs& inputs);

/// A state, or its gradients, by the engine's names.
fast_weights::StateOperands<TensorView> FastWeightsStates(const Recipe& recipe, const State& state);

/// The tensors of a call that has been checked, but for its outputs; `state` is complete. Holds
/// what the engine needs and the caller does not have.
struct FastWeightsCall {
  FastWeightsCall(const EngineCall& from, const State& state, Needs needs);
  FastWeightsCall(const FastWeightsCall&) = delete;
  FastWeightsCall& operator=(const FastWeightsCall&) = delete;

  fast_weights::Call call;

 private:
  Tensor features_w_, features_b_;
};

}  // namespace ttr
