/// A memory as the user named it.
#pragma once

#include <string>

#include "ttr/recipe.h"

namespace ttr::experiments {

struct NamedRecipe {
  std::string text;  ///< names its results
  Recipe recipe;
};

}  // namespace ttr::experiments
