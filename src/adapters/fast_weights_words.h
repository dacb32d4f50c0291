/// Recipes and tensors in the words of the fast-weights engine.
#pragma once

#include <vector>

#include "src/engines/fast_weights/fast_weights.h"
#include "ttr/inputs.h"
#include "ttr/state.h"

namespace ttr {

fast_weights::Options FastWeightsOptions(const Recipe& recipe, const Dims& dims,
                                         const Inputs& inputs);

/// The input that the engine calls `step`: a step size, or the weight of a Hebbian memory.
TensorView Inputs::* FastWeightsStep(const Recipe& recipe);

/// The tensors of a call that has been checked, but for its outputs; `state` is complete. Holds
/// what the engine needs and the caller does not have.
struct FastWeightsCall {
  FastWeightsCall(const Recipe& recipe, const Dims& dims, const Inputs& inputs, const State& state,
                  Needs needs);
  FastWeightsCall(const FastWeightsCall&) = delete;
  FastWeightsCall& operator=(const FastWeightsCall&) = delete;

  fast_weights::Call call;

 private:
  std::vector<double> factors_;
  Tensor features_w_, features_b_;
};

}  // namespace ttr
