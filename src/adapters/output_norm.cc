#include "src/adapters/output_norm.h"

#include "src/engines/rows/norm.h"

namespace ttr {
namespace {

/// The kind of the recipe's norm, which must have one.
rows::NormKind KindOf(const Recipe& recipe) {
  return recipe.reading.output_norm == OutputNorm::kL2 ? rows::NormKind::kL2 : rows::NormKind::kRms;
}

bool HasNorm(const Recipe& recipe) { return recipe.reading.output_norm != OutputNorm::kNone; }

}  // namespace

common::OutputNorm OutputNormOf(const Recipe& recipe) {
  switch (recipe.reading.output_norm) {
    case OutputNorm::kNone: return common::OutputNorm::kNone;
    case OutputNorm::kL2: return common::OutputNorm::kL2;
    case OutputNorm::kRms: return common::OutputNorm::kRms;
  }
  return common::OutputNorm::kNone;
}

OutputsBeforeNorm::OutputsBeforeNorm(const Recipe& recipe, const TensorView& y, DType dtype,
                                     CallScratch& scratch)
    : recipe_(recipe), y_(y), plain_(y), scratch_(scratch) {
  if (HasNorm(recipe) && y.defined() && y.dtype() != dtype)
    plain_ = scratch.Zeros(dtype, y.shape());
}

void OutputsBeforeNorm::Normalise(Executor& executor) const {
  if (!HasNorm(recipe_) || !y_.defined()) return;
  rows::Normalise({KindOf(recipe_), 0, plain_, {}, {}, {}}, y_, executor,
                  scratch_.Take(rows::NormScratchBytes(y_.size(3), executor.threads())));
}

std::size_t OutputsBeforeNorm::ScratchBytes(const Recipe& recipe, const Dims& dims, int threads) {
  if (!HasNorm(recipe)) return 0;
  return CallScratch::Bytes(DType::kFloat64, OutputShape(dims)) +
         CallScratch::RoundedUp(rows::NormScratchBytes(dims.value_dim, threads));
}

Tensor GradientBeforeNorm(const EngineCall& call, DType dtype, const TensorView& dy,
                          const std::function<void(const TensorView& z)>& retrieve) {
  const Recipe& recipe = call.recipe();
  if (!HasNorm(recipe)) return {};
  Tensor z(dtype, dy.shape()), dz(dtype, dy.shape());
  retrieve(z);
  rows::NormaliseGradient({KindOf(recipe), 0, z, {}, {}, {}}, dy, {dz, {}, {}, {}}, call.executor);
  return dz;
}

}  // namespace ttr
