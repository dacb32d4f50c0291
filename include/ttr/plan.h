/// From a recipe to the engine that runs it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "ttr/inputs.h"
#include "ttr/recipe.h"

namespace ttr {

enum class Engine : std::uint8_t {
  kDefinition,    ///< the literal regression in double precision: always right, slow
  kFastWeights,   ///< linear memories in chunks: Hebbian and delta rules
  kScan,          ///< memories that decay entry by entry: gated vectors, Mamba
  kLeastSquares,  ///< linear memories that solve their normal equations for every query
};

std::string_view Name(Engine engine);

/// What runs a recipe, and why.
struct Plan {
  Engine engine = Engine::kDefinition;
  bool exact = true;  ///< solves its regression exactly (up to rounding), or takes steps towards it
  std::string why;    ///< one sentence
};

Plan MakePlan(const Recipe& recipe);

/// What a call costs: useful floating-point operations and bytes of state, q, k, v, y touched per
/// token and memory; and the size of one memory.
struct Cost {
  double flops_per_token = 0;
  double bytes_per_token = 0;
  double state_bytes = 0;
};
Cost EstimateCost(const Recipe& recipe, const Plan& plan, const Dims& dims);

}  // namespace ttr
