// Printing and parsing.
#include <gtest/gtest.h>

#include <set>

#include "src/recipe/family.h"
#include "src/recipe/parse.h"
#include "src/recipe/validate.h"
#include "tests/recipe/message.h"
#include "tests/support/random_recipe.h"
#include "ttr/recipe.h"
#include "ttr/zoo.h"

namespace ttr {
namespace {

std::string ParseMessage(std::string_view text) {
  return Message([&] { ParseRecipe(text); });
}

TEST(RecipeText, EveryRecipeParsesBackToItself) {
  RandomRecipes random(1);
  for (int i = 0; i < 12000; ++i) {
    const Recipe recipe = random.Next();
    const std::string text = ToString(recipe);
    ASSERT_EQ(ParseUnchecked(text), recipe) << text;
    ASSERT_EQ(ToString(ParseUnchecked(text)), text);
  }
}

TEST(RecipeText, EveryOptionGoesThroughSetAndGet) {
  RandomRecipes random(2);
  for (int i = 0; i < 12000; ++i) {
    const Recipe recipe = random.Next();
    Recipe copy;
    for (const OptionInfo& info : RecipeOptions()) {
      SetOption(copy, info.name, GetOption(recipe, info.name));
    }
    ASSERT_EQ(copy, recipe) << ToString(recipe);
  }
}

TEST(RecipeText, RecipesWithAMeaningComeInAllFamiliesAndParse) {
  RandomRecipes random(3);
  std::set<Family> families;
  for (int i = 0; i < 12000; ++i) {
    const Recipe recipe = NearestValid(random.Next());
    ASSERT_NO_THROW(Validate(recipe)) << ToString(recipe);
    ASSERT_EQ(ParseRecipe(ToString(recipe)), recipe);
    families.insert(FamilyOf(recipe));
  }
  EXPECT_EQ(families.size(), 9u);
}

TEST(RecipeText, PrintsTheShortestNumbersAndOnlyWhatIsNotDefault) {
  Recipe recipe;
  EXPECT_EQ(ToString(recipe), "uniform | linear | gradient");
  SetOption(recipe, "decay", ".99");
  SetOption(recipe, "eta", "1e-3");
  SetOption(recipe, "scale", "0.1");
  EXPECT_EQ(ToString(recipe), "decay(0.99) | linear | gradient(eta: 0.001) | reading(scale: 0.1)");
  SetOption(recipe, "decay", "scalar");
  SetOption(recipe, "eta", "1");
  SetOption(recipe, "scale", "rsqrt_dk");
  EXPECT_EQ(ToString(recipe), "decay(scalar) | linear | gradient | reading(scale: rsqrt_dk)");
  EXPECT_EQ(recipe.weights.decay_factor, 1);
  EXPECT_EQ(recipe.reading.scale, 1);
}

TEST(RecipeText, SpacesDoNotMatter) {
  EXPECT_EQ(ParseRecipe(" decay( scalar )x importance(input)|linear|exact( ridge:1e-3 ) "),
            ParseRecipe("weighted_rls"));
  EXPECT_EQ(ParseRecipe("mesa{ridge:.5}"), ParseRecipe("\tmesa { ridge : 0.5 }\n"));
  EXPECT_EQ(ParseRecipe("mesa{}"), ParseRecipe("mesa"));
}

TEST(RecipeText, BracesChangeANamedLayer) {
  EXPECT_EQ(ToString(ParseRecipe("gated_deltanet{step: longhorn, read: before}")),
            "decay(scalar) | linear | sgd(step: longhorn) | reading(read: before)");
  EXPECT_EQ(ToString(ParseRecipe("mesa{decay: .99, ridge: 1e-3}")),
            "decay(0.99) x importance(input) | linear | exact(ridge: 0.001, ridge_kind: constant)");
  EXPECT_EQ(ToString(ParseRecipe("nadaraya_watson{kernel: gaussian, bandwidth: 16}")),
            "similarity(gaussian, bandwidth: 16) | constant | exact");
  EXPECT_EQ(ToString(ParseRecipe("deltanet{features: dpfp, nu: 2}")),
            "uniform | linear(features: dpfp, nu: 2) | sgd");
}

TEST(RecipeText, BracesForgetWhatTheyLeaveWithoutEffect) {
  EXPECT_EQ(ToString(ParseRecipe("nadaraya_watson{kernel: inverse_distance}")),
            "similarity(inverse_distance) | constant | exact");
  EXPECT_EQ(ToString(ParseRecipe("local_linear{kernel: laplace, bandwidth: 2}")),
            "similarity(laplace, bandwidth: 2) | polynomial(degree: 1) | exact(ridge: 0.01)");
  // What was said stays, and is refused.
  EXPECT_NE(ParseMessage("nadaraya_watson{kernel: inverse_distance, bandwidth: 3}")
                .find("bandwidth belongs to the gaussian"),
            std::string::npos);
}

TEST(RecipeText, ErrorsNameTheWordItsPlaceAndTheNearestOne) {
  EXPECT_EQ(ParseMessage("gated_deltanit"),
            "[recipe] text at character 1 must be a name of the zoo, or weights | function | "
            "optimizer but is 'gated_deltanit' (did you mean gated_deltanet?)");
  EXPECT_EQ(
      ParseMessage("decay(scaler) | linear | sgd"),
      "[recipe] decay at character 7 must be one of none, retention, scalar, channel, matrix, "
      "or a number > 0 and <= 1 but is 'scaler' (did you mean scalar?)");
  EXPECT_EQ(ParseMessage("mesa{rigde: 3}"),
            "[recipe] text at character 6 must be the name of an option but is 'rigde' (did you "
            "mean ridge?)");
  EXPECT_EQ(ParseMessage("uniform | linear | sgd(step: longhornn)"),
            "[recipe] step at character 30 must be one of input, nlms, longhorn, efla, one but is "
            "'longhornn' (did you mean longhorn?)");
  EXPECT_EQ(ParseMessage("mesa{ridge: 1, ridge: 2}"),
            "[recipe] ridge at character 23 must be said once but is said twice");
  EXPECT_EQ(ParseMessage("uniform | linear"), "[recipe] text must be '|' but is at its end");
  EXPECT_EQ(
      ParseMessage("uniform | linear(step: one) | sgd"),
      "[recipe] text at character 18 must be one of features, nu, feature_dim, max_length, "
      "seed, degree, depth, expansion, activation, gated, norm, residual, bias but is 'step'");
  EXPECT_EQ(ParseMessage("deltanet}"), "[recipe] text at character 9 must be '{' but is '}'");
  EXPECT_EQ(ParseMessage("deltanet{causal: maybe}"),
            "[recipe] causal at character 18 must be true or false but is 'maybe'");
  EXPECT_EQ(ParseMessage("rls{ridge: nan}"),
            "[recipe] ridge at character 12 must be a number >= 0 but is 'nan'");
  EXPECT_EQ(ParseMessage("rls{ridge: 1e999}"),
            "[recipe] ridge at character 12 must be a number >= 0 but is '1e999'");
  EXPECT_EQ(Message([] {
              Recipe recipe;
              SetOption(recipe, "momentun", "true");
            }),
            "[recipe] text must be the name of an option but is 'momentun' (did you mean "
            "momentum?)");
}

TEST(RecipeText, ErrorsAreOneLineWhateverIsGiven) {
  const std::string hostile("\n\x01\xff{", 4);
  std::string commas(3000, ',');
  commas.insert(0, "deltanet{");
  for (const std::string& text :
       {hostile, std::string(100000, '('), std::string(3000, 'x'), commas}) {
    const std::string message = ParseMessage(text);
    EXPECT_LT(message.size(), 400u);
    for (const char c : message) EXPECT_TRUE(c >= ' ' && c <= '~');
  }
}

// Damaged recipes: an Error or a recipe with a meaning, nothing else.
TEST(RecipeText, SurvivesDamage) {
  RandomRecipes random(4);
  const std::string letters = "{}(),:|x_.-+019 eq\n\t\xc3";
  int parsed = 0;
  for (int i = 0; i < 20000; ++i) {
    const auto& entry = Zoo()[static_cast<std::size_t>(
        random.Integer(0, static_cast<std::int64_t>(Zoo().size()) - 1))];
    std::string text(entry.recipe);
    for (std::int64_t n = random.Integer(1, 4); n > 0 && !text.empty(); --n) {
      const auto at =
          static_cast<std::size_t>(random.Integer(0, static_cast<std::int64_t>(text.size()) - 1));
      const char letter = letters[static_cast<std::size_t>(
          random.Integer(0, static_cast<std::int64_t>(letters.size()) - 1))];
      switch (random.Integer(0, 3)) {
        case 0: text[at] = letter; break;
        case 1: text.insert(at, 1, letter); break;
        case 2: text.erase(at, static_cast<std::size_t>(random.Integer(1, 5))); break;
        default: text.insert(at, text.substr(0, at)); break;
      }
    }
    try {
      Validate(ParseRecipe(text));
      ++parsed;
    } catch (const Error& error) {
      ASSERT_EQ(std::string(error.what()).substr(0, 9), "[recipe] ") << text;
    }
  }
  EXPECT_GT(parsed, 100);
}

}  // namespace
}  // namespace ttr
