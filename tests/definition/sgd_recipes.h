/// Recipes of stochastic gradient descent, and two of them side by side on the same tokens.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>

#include "tests/definition/token.h"

namespace ttr::definition {

constexpr std::int64_t kTokens = 12, kDk = 4, kDv = 3;

// An SGD recipe with some options changed.
inline Recipe With(const std::function<void(Recipe&)>& change = {}) {
  Recipe recipe;
  recipe.optimizer.solver = Solver::kSgd;
  if (change) change(recipe);
  return recipe;
}

inline Recipe WithStep(StepRule rule) {
  return With([rule](Recipe& r) { r.optimizer.step = rule; });
}

inline Recipe WithErase(Erase erase, StepRule rule = StepRule::kInput) {
  return With([=](Recipe& r) {
    r.optimizer.erase = erase;
    r.optimizer.step = rule;
  });
}

inline std::unique_ptr<Memory> Make(const Recipe& recipe) {
  return MakeSgd(Sized(recipe, kDk, kDv));
}

using Change = std::function<void(Token&)>;

// Writes the same random tokens into both, each side's gates set by its own function, and returns
// the largest difference between the two answers over all tokens.
inline double Differ(const Recipe& left, const Change& as_left, const Recipe& right,
                     const Change& as_right, bool unit_keys = false) {
  const auto a = Make(left), b = Make(right);
  Noise noise(1);
  double gap = 0;
  for (std::int64_t t = 0; t < kTokens; ++t) {
    Token token =
        Pair(unit_keys ? noise.Unit(kDk) : noise.Vec(kDk), noise.Vec(kDv), noise.Uniform(0.1, 0.4));
    Token other = token;
    if (as_left) as_left(token);
    if (as_right) as_right(other);
    a->Write(token);
    b->Write(other);
    const Vector q = noise.Vec(kDk);
    gap = std::max(gap, Gap(a->Read(q).y, b->Read(q).y));
  }
  return gap;
}

inline Matrix StateOf(const Memory& memory) { return memory.Save().at("state").transposed(); }

inline Recipe WithWeightDecay(WeightDecay kind) {
  return With([kind](Recipe& r) { r.optimizer.weight_decay = kind; });
}

inline Recipe WithDecay(Decay decay) {
  return With([decay](Recipe& r) { r.weights.decay = decay; });
}

inline Recipe Preconditioned(double decay, double centre) {
  return With([=](Recipe& r) {
    r.optimizer.preconditioner = Preconditioner::kDiagonal;
    r.optimizer.curvature_decay = decay;
    r.optimizer.curvature_centre = centre;
  });
}

inline Recipe Momentum() {
  return With([](Recipe& r) {
    r.optimizer.momentum = true;
    r.optimizer.weight_decay = WeightDecay::kDecoupled;
  });
}

}  // namespace ttr::definition
