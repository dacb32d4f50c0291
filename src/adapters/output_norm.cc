#include "src/adapters/output_norm.h"

#include "src/engines/rows/norm.h"

namespace ttr {
namespace {

/// The kind of the recipe's norm, which must have one.
rows::NormKind KindOf(const Recipe& recipe) {
  return recipe.reading.output_norm == OutputNorm::kL2 ? rows::NormKind::kL2 : rows::NormKind::kRms;
}

}  // namespace

common::OutputNorm OutputNormOf(const Recipe& recipe) {
  switch (recipe.reading.output_norm) {
    case OutputNorm::kNone: return common::OutputNorm::kNone;
    case OutputNorm::kL2: return common::OutputNorm::kL2;
    case OutputNorm::kRms: return common::OutputNorm::kRms;
  }
  return common::OutputNorm::kNone;
}

OutputsBeforeNorm::OutputsBeforeNorm(const Recipe& recipe, const Outputs& outputs, DType dtype)
    : recipe_(&recipe), y_(outputs.y) {
  if (recipe.reading.output_norm != OutputNorm::kNone) plain_ = Tensor(dtype, y_.shape());
}

void OutputsBeforeNorm::Normalise(Executor& executor) const {
  if (plain_.defined()) rows::Normalise({KindOf(*recipe_), 0, plain_, {}, {}, {}}, y_, executor);
}

Tensor GradientBeforeNorm(const EngineCall& call, DType dtype, const TensorView& dy,
                          const std::function<void(const TensorView& z)>& retrieve) {
  const Recipe& recipe = call.recipe();
  if (recipe.reading.output_norm == OutputNorm::kNone) return {};
  Tensor z(dtype, dy.shape()), dz(dtype, dy.shape());
  retrieve(z);
  rows::NormaliseGradient({KindOf(recipe), 0, z, {}, {}, {}}, dy, {dz, {}, {}, {}}, call.executor);
  return dz;
}

}  // namespace ttr
