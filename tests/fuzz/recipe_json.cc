// Recipes as JSON: refused, or a recipe with a meaning.
#include "tests/fuzz/recipes.h"

namespace ttr::fuzz {

void RecipeJson(Bytes bytes) {
  Recipe recipe;
  if (Accepts([&] { recipe = RecipeFromJson(TextOf(bytes)); })) ExpectMeaning(recipe);
}

}  // namespace ttr::fuzz
