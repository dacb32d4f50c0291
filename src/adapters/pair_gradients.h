/// Gradients of kept pairs, from the shapes that engines write to those of a call.
#pragma once

#include "src/adapters/engine.h"
#include "src/adapters/output_norm.h"
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
  WorkingCopy q_, k_, v_, pair_bias_, log_weight_;
  TensorView given_bandwidth_, given_ridge_;
  Tensor bandwidth_, ridge_;
  common::PairGradientTensors views_;
};

common::FinalPairGradients FinalPairGradientsOf(const State& dstate);

/// The backward pass of an engine that keeps its pairs, which `operands` are a call of. read(call)
/// finds y alone; back(dy, final, gradients) goes back from outputs without a norm.
template <class Call, class Read, class Back>
void BackwardThroughPairs(const EngineCall& call, const BackwardTensors& tensors,
                          const Call& operands, const Read& read, const Back& back) {
  const Tensor dz = GradientBeforeNorm(call, call.dtype, tensors.dy, [&](const TensorView& z) {
    Call reading = operands;
    reading.y = z;
    read(reading);
  });
  const PairGradientCopies copies(call, tensors);
  back(dz.defined() ? dz.view() : tensors.dy, FinalPairGradientsOf(tensors.dstate), copies.views());
  copies.WriteBack();
}

}  // namespace ttr
