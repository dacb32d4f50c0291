/// The norm of outputs: as an option of engines that take it, and around those that do not.
#pragma once

#include <functional>

#include "src/adapters/engine.h"
#include "src/core/call_scratch.h"
#include "src/engines/common/output_norm.h"
#include "ttr/recipe.h"

namespace ttr {

common::OutputNorm OutputNormOf(const Recipe& recipe);

/// Where an engine that knows no norm writes its outputs, y(): the caller's tensor, or one of
/// `dtype` where the caller's is of another and the recipe has a norm. Normalise() leaves the norm
/// of them in the caller's. Nothing where that is absent.
class OutputsBeforeNorm {
 public:
  OutputsBeforeNorm(const Recipe& recipe, const TensorView& y, DType dtype, CallScratch& scratch);

  const TensorView& y() const { return plain_; }
  void Normalise(Executor& executor) const;

  /// Bytes that it takes of the scratch.
  static std::size_t ScratchBytes(const Recipe& recipe, const Dims& dims, int threads);

 private:
  const Recipe& recipe_;
  TensorView y_, plain_;
  CallScratch& scratch_;
};

/// The gradient of outputs before the recipe's norm; undefined where it has none. retrieve(z) finds
/// those outputs.
Tensor GradientBeforeNorm(const EngineCall& call, DType dtype, const TensorView& dy,
                          const std::function<void(const TensorView& z)>& retrieve);

}  // namespace ttr
