/// Gradients of kept pairs, from the shapes that engines write to those of a call.
#pragma once

#include "src/adapters/engine.h"
#include "src/core/working_copy.h"
#include "src/engines/common/pair_gradients.h"
#include "ttr/tensor.h"

namespace ttr {

/// Gradients as engines want them (views()). WriteBack() sums them into the caller's tensors: over
/// shared heads, and for constants over sequences.
class PairGradientCopies {
 public:
  PairGradientCopies(const EngineCall& call, const BackwardTensors& tensors);

  const common::PairGradientTensors& views() const { return views_; }
  void WriteBack() const;

 private:
  WorkingCopy q_, k_, v_, log_weight_;
  TensorView bandwidth_home_, ridge_home_;
  Tensor bandwidth_, ridge_;
  common::PairGradientTensors views_;
};

common::FinalPairGradients FinalPairGradientsOf(const State& dstate);

}  // namespace ttr
