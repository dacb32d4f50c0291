/// The norm of outputs: as an option of engines that take it, and around those that do not.
#pragma once

#include <functional>

#include "src/adapters/engine.h"
#include "src/engines/common/output_norm.h"
#include "ttr/recipe.h"

namespace ttr {

common::OutputNorm OutputNormOf(const Recipe& recipe);

/// Where an engine writes its outputs: the caller's, or others of `dtype` that Normalise takes to
/// those.
class OutputsBeforeNorm {
 public:
  OutputsBeforeNorm(const Recipe& recipe, const Outputs& outputs, DType dtype);

  TensorView y() const { return plain_.defined() ? plain_.view() : y_; }
  void Normalise(Executor& executor) const;

 private:
  const Recipe* recipe_;
  TensorView y_;
  Tensor plain_;
};

/// The gradient of outputs before the recipe's norm; undefined where it has none. retrieve(z) finds
/// those outputs.
Tensor GradientBeforeNorm(const EngineCall& call, DType dtype, const TensorView& dy,
                          const std::function<void(const TensorView& z)>& retrieve);

}  // namespace ttr
