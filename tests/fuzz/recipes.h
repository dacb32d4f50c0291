// What holds for every recipe, from wherever it came.
#pragma once

#include "src/recipe/validate.h"
#include "tests/fuzz/fuzzers.h"
#include "ttr/inputs.h"
#include "ttr/recipe.h"

namespace ttr::fuzz {

// A recipe with a meaning goes through text and JSON, and says what it takes and carries.
inline void ExpectMeaning(const Recipe& recipe) {
  const std::string text = ToString(recipe);
  Validate(recipe);
  Expect(NearestValid(recipe) == recipe, "a recipe with a meaning is not its own nearest: " + text);
  Expect(ParseRecipe(text) == recipe, "its text says another recipe: " + text);
  Expect(RecipeFromJson(ToJson(recipe)) == recipe, "its JSON says another recipe: " + text);
  const Requirements requirements(recipe);
  Expect(!requirements.inputs.empty(), "it takes nothing: " + text);
}

}  // namespace ttr::fuzz
