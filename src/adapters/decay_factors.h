/// Decays that a recipe states itself, as engines take them.
#pragma once

#include <vector>

#include "ttr/inputs.h"

namespace ttr {

/// One factor a memory; empty where the decay comes from the inputs or is none.
std::vector<double> DecayFactors(const Recipe& recipe, const Dims& dims);

}  // namespace ttr
