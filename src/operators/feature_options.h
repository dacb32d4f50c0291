/// A recipe's feature map as options of the row-wise engine.
#pragma once

#include "src/engines/rows/features.h"
#include "ttr/recipe.h"

namespace ttr {

rows::FeatureOptions FeatureOptionsOf(const Function& function);

}  // namespace ttr
