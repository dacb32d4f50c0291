/// A recipe's kernel in the words of engines that weigh pairs by closeness.
#pragma once

#include "src/engines/common/closeness.h"
#include "ttr/recipe.h"

namespace ttr {

/// Of none the exponential one.
common::Kernel KernelOf(Kernel kernel);

}  // namespace ttr
