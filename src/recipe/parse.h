#pragma once

#include <string_view>

#include "ttr/recipe.h"

namespace ttr {

/// ParseRecipe without the final Validate.
Recipe ParseUnchecked(std::string_view text);

}  // namespace ttr
