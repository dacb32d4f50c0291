#include "src/adapters/decay_factors.h"

#include <cmath>

namespace ttr {

std::vector<double> DecayFactors(const Recipe& recipe, const Dims& dims) {
  std::vector<double> factors;
  for (std::int64_t h = 0; h < dims.heads; ++h) {
    switch (recipe.weights.decay) {
      case Decay::kConstant: factors.push_back(recipe.weights.decay_factor); break;
      case Decay::kRetention:
        factors.push_back(1 - std::exp2(-5.0 - static_cast<double>(h)));
        break;
      default: return {};
    }
  }
  return factors;
}

}  // namespace ttr
