/// From a recipe to the options of the networks' engine.
#pragma once

#include "src/engines/network/network.h"
#include "ttr/dtype.h"
#include "ttr/inputs.h"
#include "ttr/recipe.h"

namespace ttr {

network::Options NetworkOptions(const Recipe& recipe, const Dims& dims);

network::Sizes NetworkSizes(const Recipe& recipe, const Dims& dims, DType dtype);

}  // namespace ttr
