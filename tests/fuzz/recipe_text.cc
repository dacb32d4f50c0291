// Recipes as text: refused, or printed and parsed again as they are, with a meaning or not.
#include "src/recipe/parse.h"
#include "tests/fuzz/recipes.h"

namespace ttr::fuzz {

void RecipeText(Bytes bytes) {
  Recipe recipe;
  if (!Accepts([&] { recipe = ParseUnchecked(TextOf(bytes)); })) {
    Expect(!Accepts([&] { ParseRecipe(TextOf(bytes)); }), "refused, but parsed with its check");
    return;
  }
  const std::string text = ToString(recipe);
  Expect(ParseUnchecked(text) == recipe, "printed, it says another recipe: " + text);
  Expect(ToString(ParseUnchecked(text)) == text, "it prints in two ways: " + text);
  for (const OptionInfo& option : RecipeOptions()) {
    Recipe copy = recipe;
    SetOption(copy, option.name, GetOption(recipe, option.name));
    Expect(copy == recipe, std::string(option.name) + " does not survive its own text: " + text);
  }
  if (Accepts([&] { Validate(recipe); })) {
    ExpectMeaning(recipe);
  } else {
    ExpectMeaning(NearestValid(recipe));
  }
}

}  // namespace ttr::fuzz
