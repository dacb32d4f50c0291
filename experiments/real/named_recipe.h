/// A memory as the user named it.
#pragma once

#include <string>
#include <vector>

#include "ttr/recipe.h"

namespace ttr::experiments {

struct NamedRecipe {
  std::string text;  ///< names its results
  Recipe recipe;
};

/// Names for the bars of a chart, which need their room: NAME{..} for NAME{changes}, unless two
/// would be called the same.
std::vector<std::string> ShortNames(const std::vector<std::string>& methods);

}  // namespace ttr::experiments
