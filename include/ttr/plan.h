/// From a recipe to the engine that runs it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ttr/inputs.h"
#include "ttr/recipe.h"

namespace ttr {

/// What runs a recipe, and why. Engines by name:
///
/// | name              | runs                                                                  |
/// |-------------------|-----------------------------------------------------------------------|
/// | `fast_weights`    | linear memories in chunks: Hebbian and delta rules                    |
/// | `curvature`       | linear memories whose steps are divided by few directions of the keys |
/// | `scan`            | memories that decay entry by entry: gated vectors, Mamba              |
/// | `least_squares`   | linear memories that solve their normal equations for every query     |
/// | `kernel_smoother` | weighted sums over kept pairs: softmax and the other kernels          |
/// | `kernel_regression` | kernel ridge regression on kept pairs: every prefix from one factor   |
/// | `kernel_dictionary` | the same in the span of a few keys: a budget                         |
/// | `window_regression` | kernel ridge regression, and least squares, over a window            |
/// | `local_polynomial` | a polynomial around every query, fitted to kept pairs                |
/// | `network`         | networks that are trained while they read                             |
/// | `definition`      | every recipe: the literal regression in double precision: right, slow |
struct Plan {
  std::string_view engine;
  bool exact = true;  ///< solves its regression exactly (up to rounding), or takes steps towards it
  std::string why;    ///< one sentence
};

/// The name of the engine that runs every recipe, and judges the others.
inline constexpr std::string_view kDefinition = "definition";

Plan MakePlan(const Recipe& recipe);
/// The plan for calls of these sizes: an engine may leave some to the definition.
Plan MakePlan(const Recipe& recipe, const Dims& dims);

/// The names of all engines; the definition is the last.
std::vector<std::string_view> Engines();

/// What a call costs: useful floating-point operations and bytes of state, q, k, v, y touched per
/// token and memory; and the size of one memory.
struct Cost {
  double flops_per_token = 0;
  double bytes_per_token = 0;
  double state_bytes = 0;
};
Cost EstimateCost(const Recipe& recipe, const Plan& plan, const Dims& dims);

}  // namespace ttr
