/// A recipe's feature map in the words of the row-wise engine.
#pragma once

#include "src/engines/rows/features.h"
#include "ttr/recipe.h"

namespace ttr {

rows::FeatureOptions FeatureWords(const Function& function);

}  // namespace ttr
