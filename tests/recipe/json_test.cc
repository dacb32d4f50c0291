#include <gtest/gtest.h>

#include "src/recipe/validate.h"
#include "tests/recipe/message.h"
#include "tests/support/random_recipe.h"
#include "ttr/recipe.h"

namespace ttr {
namespace {

std::string JsonMessage(std::string_view text) {
  return Message([&] { RecipeFromJson(text); });
}

TEST(RecipeJson, EveryRecipeReadsBackToItself) {
  RandomRecipes random(5);
  for (int i = 0; i < 12000; ++i) {
    const Recipe recipe = NearestValid(random.Next());
    ASSERT_EQ(RecipeFromJson(ToJson(recipe)), recipe) << ToJson(recipe);
  }
}

TEST(RecipeJson, IsNestedByPartWithPlainValues) {
  EXPECT_EQ(ToJson(ParseRecipe("mesa{decay: 0.99}")),
            R"({"weights":{"decay":0.99,"importance":"input"},"function":{"function":"linear"},)"
            R"("optimizer":{"optimizer":"exact","ridge":0.25,"ridge_kind":"constant"}})");
  EXPECT_EQ(ToJson(ParseRecipe("rwkv6")),
            R"({"weights":{"decay":"channel"},"function":{"function":"linear"},)"
            R"("optimizer":{"optimizer":"gradient"},"reading":{"read":"before","bonus":true}})");
}

TEST(RecipeJson, DefaultsMayBeLeftOut) {
  EXPECT_EQ(RecipeFromJson("{}"), Recipe());
  EXPECT_EQ(RecipeFromJson(R"( {"optimizer": {"optimizer": "sgd", "steps": 2}} )"),
            ParseRecipe("deltanet{steps: 2}"));
}

TEST(RecipeJson, RefusesWhatItDoesNotKnow) {
  EXPECT_EQ(
      JsonMessage(R"({"wieghts": {}})"),
      "[recipe] JSON key must be one of weights, similarity, function, optimizer, reading but "
      "is 'wieghts' (did you mean weights?)");
  EXPECT_EQ(
      JsonMessage(R"({"weights": {"ridge": 1}})"),
      "[recipe] JSON key in weights must be one of decay, phase, importance, window, pair_bias, "
      "extent, exponent but is 'ridge'");
  EXPECT_EQ(JsonMessage(R"({"weights": {"decay": 0.5, "decay": 0.6}})"),
            "[recipe] JSON key 'decay' must be said once but is said twice");
  EXPECT_EQ(JsonMessage(R"({"weights": {}, "weights": {}})"),
            "[recipe] JSON key 'weights' must be said once but is said twice");
  EXPECT_EQ(JsonMessage(R"({"weights": 3})"), "[recipe] weights must be an object but is number");
  EXPECT_EQ(JsonMessage(R"({"weights": {"phase": null}})"),
            "[recipe] phase must be a word, a number, true or false but is null");
  EXPECT_EQ(JsonMessage(R"({"weights": {"phase": 1}})"),
            "[recipe] phase must be true or false but is '1'");
  EXPECT_EQ(JsonMessage("3"), "[recipe] JSON must be an object but is number");
  EXPECT_EQ(JsonMessage(R"({"weights": })"),
            "[recipe] text must be JSON but is malformed at byte 13");
  EXPECT_EQ(
      JsonMessage(R"({"optimizer": {"optimizer": "exact", "ridge": -1}})"),
      "[recipe] uniform | linear | exact(ridge: -1) has no meaning: ridge must be a number >= "
      "0; the nearest that has one is uniform | linear | exact");
}

TEST(RecipeJson, BoundsHostileText) {
  std::string deep;
  for (int i = 0; i < 10000; ++i) deep += R"({"a":)";
  EXPECT_EQ(JsonMessage(deep), "[recipe] JSON must be objects of options but is nested deeper");
  EXPECT_EQ(JsonMessage(std::string(20000, '[')),
            "[recipe] JSON must be objects of options but is an array");
  EXPECT_EQ(JsonMessage(std::string(100000, ' ')),
            "[recipe] JSON must be at most 65536 bytes but is 100000 bytes");
  EXPECT_EQ(JsonMessage(std::string("{\"\xff\": 1}")).substr(0, 21), "[recipe] text must be");
}

}  // namespace
}  // namespace ttr
