/// Gates for memories that read real input, where nothing is learned: what a network would compute
/// for every token (decay, step size, ...) is a constant here.
#pragma once

#include <string_view>
#include <vector>

#include "ttr/forecast.h"
#include "ttr/inputs.h"
#include "ttr/recipe.h"

namespace ttr::forecasting {

/// One gate that a recipe requires.
struct ConstantGate {
  std::string_view name;
  TensorView Inputs::* view;
  std::vector<Axis> shape;
  bool is_key = false;  ///< `erase_key`: the key itself instead of a constant
  double value = 0;
};

/// The gates that `recipe` requires beside q, k and v. Throws Error for constants out of range, and
/// for a recipe that cannot run so: it takes several pairs a token, or weights that are learned.
std::vector<ConstantGate> ConstantInputs(const Recipe& recipe, const GateConstants& constants);

/// g, by which an association fades from one token to the next, of the first memory: the recipe's
/// own, or `decay` where it takes one a token; 1 where ages weigh the same. What a step size or a
/// weight decay forgets is not in it.
double ConstantDecay(const Recipe& recipe, const GateConstants& constants);

}  // namespace ttr::forecasting
