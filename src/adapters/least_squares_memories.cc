#include "src/adapters/least_squares_memories.h"

#include <cstdint>
#include <string_view>

#include "src/recipe/family.h"

namespace ttr {
std::string_view GramEntry(const Recipe& recipe) {
  return IsRotated(recipe) ? "state.r" : "state.a";
}

TensorView RidgeOfMemories(const Recipe& recipe, const Dims& dims, const TensorView& given,
                           CallScratch& scratch) {
  const std::int64_t phi = PhiDim(recipe, dims);
  const bool affine = recipe.function.kind == FunctionClass::kAffine;
  const TensorView ridge = scratch.Zeros(DType::kFloat64, {dims.heads, phi});
  double* numbers = ridge.as<double>();
  for (std::int64_t h = 0; h < dims.heads; ++h) {
    for (std::int64_t i = 0; i < phi - (affine ? 1 : 0); ++i) {
      double& number = numbers[h * phi + i];
      number = recipe.optimizer.ridge;
      if (given.defined()) number = given.rank() == 1 ? given.At({h}) : given.At({h, i});
    }
  }
  return ridge;
}

bool AsksForRidge(const Recipe& recipe, const State& state) {
  return recipe.optimizer.solver != Solver::kExact ||
         recipe.optimizer.ridge_kind != RidgeKind::kFading ||
         !state.Get(GramEntry(recipe)).defined();
}

LeastSquaresMemories::LeastSquaresMemories(const Recipe& recipe, const Dims& dims,
                                           const TensorView& ridge, DType dtype, State& state,
                                           CallScratch& scratch) {
  const auto entry = [&](std::string_view name, std::int64_t columns) {
    const Shape shape{dims.states(), dims.heads, PhiDim(recipe, dims), columns};
    if (!recipe.reading.causal) return scratch.Zeros(dtype, shape);
    state.Set(name, Tensor(dtype, shape));
    return state.Get(name);
  };
  b = state.Get("state");
  if (!b.defined()) b = entry("state", dims.value_dim);
  given_a_ = state.Get(GramEntry(recipe));
  if (!given_a_.defined()) {
    given_a_ = entry(GramEntry(recipe), PhiDim(recipe, dims));
    if (recipe.optimizer.ridge_kind == RidgeKind::kFading) StartWith(ridge);
  }
  // Arithmetic is in one type: A gets that of B.
  a = given_a_.dtype() == b.dtype() ? given_a_ : scratch.Copy(given_a_, b.dtype());
  if (IsRotated(recipe)) AddSquares(recipe, dims, dtype, state, scratch);
}

void LeastSquaresMemories::Return() const {
  if (a.data() != given_a_.data()) CopyInto(a, given_a_);
  if (rss.data() != given_rss_.data()) CopyInto(rss, given_rss_);
}

std::size_t LeastSquaresMemories::ScratchBytes(const Recipe& recipe, const Dims& dims) {
  if (recipe.reading.causal) return 0;
  const std::int64_t phi = PhiDim(recipe, dims);
  return CallScratch::Bytes(DType::kFloat64, {dims.states(), dims.heads, phi, dims.value_dim}) +
         CallScratch::Bytes(DType::kFloat64, {dims.states(), dims.heads, phi, phi}) +
         CallScratch::Bytes(DType::kFloat64, {dims.states(), dims.heads, dims.value_dim});
}

void LeastSquaresMemories::AddSquares(const Recipe& recipe, const Dims& dims, DType dtype,
                                      State& state, CallScratch& scratch) {
  const Shape shape{dims.states(), dims.heads, dims.value_dim};
  given_rss_ = state.Get("state.rss");
  if (!given_rss_.defined() && recipe.reading.causal) {
    state.Set("state.rss", Tensor(dtype, shape));
    given_rss_ = state.Get("state.rss");
  } else if (!given_rss_.defined()) {
    given_rss_ = scratch.Zeros(dtype, shape);
  }
  rss = given_rss_.dtype() == b.dtype() ? given_rss_ : scratch.Copy(given_rss_, b.dtype());
}

void LeastSquaresMemories::StartWith(const TensorView& ridge) const {
  for (std::int64_t n = 0; n < given_a_.size(0); ++n) {
    for (std::int64_t h = 0; h < given_a_.size(1); ++h) {
      for (std::int64_t i = 0; i < given_a_.size(2); ++i) {
        given_a_.Set({n, h, i, i}, ridge.At({h, i}));
      }
    }
  }
}

}  // namespace ttr
