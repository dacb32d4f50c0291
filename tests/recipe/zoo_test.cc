#include "ttr/zoo.h"

#include <gtest/gtest.h>

#include <set>
#include <sstream>

#include "src/recipe/family.h"
#include "src/recipe/feature_maps.h"

namespace ttr {
namespace {

std::set<std::string> Words(const std::string& text) {
  std::istringstream words(text);
  return {std::istream_iterator<std::string>(words), {}};
}

TEST(Zoo, HoldsEveryNameOfTheContract) {
  const std::set<std::string> contract = Words(
      "linear_attention retnet gla gateloop hgrn2 rwkv6 rwkv7 mlstm mamba mamba2 lru hgrn rg_lru "
      "deltanet nlms longhorn efla leaky_lms decoupled_lms gated_deltanet kda comba "
      "gated_deltanet2 "
      "delta_product erase_then_delta preconditioned_deltanet preconditioned_gated_deltanet "
      "preconditioned_kda low_rank_rls affine_projection momentum_deltanet adagrad_lms adam_lms "
      "rls weighted_rls "
      "mesa intention "
      "kalmanet batch_gd quasi_newton softmax kernel_smoother nadaraya_watson kernel_ridge "
      "kernel_gd "
      "kernel_rls window_rls "
      "local_linear local_quadratic local_cubic window_softmax decayed_softmax affine_rls "
      "feature_rls ttt_linear ttt_mlp titans lact in_place_ttt");
  std::set<std::string> names;
  for (const ZooEntry& entry : Zoo()) names.insert(std::string(entry.name));
  EXPECT_EQ(names, contract);
  EXPECT_EQ(Zoo().size(), contract.size());
}

TEST(Zoo, EveryRecipeHasAMeaningAndPrintsAsItIsWritten) {
  for (const ZooEntry& entry : Zoo()) {
    const Recipe recipe = ParseRecipe(entry.recipe);
    EXPECT_EQ(ToString(recipe), entry.recipe);
    EXPECT_EQ(ParseRecipe(entry.name), recipe);
    EXPECT_EQ(RecipeFromJson(ToJson(recipe)), recipe);
    EXPECT_EQ(FindInZoo(entry.name), &entry);
    EXPECT_FALSE(entry.title.empty() || entry.source.empty() || entry.recurrence.empty());
  }
}

TEST(Zoo, NoTwoLayersAreTheSame) {
  std::set<std::string_view> recipes;
  for (const ZooEntry& entry : Zoo())
    EXPECT_TRUE(recipes.insert(entry.recipe).second) << entry.name;
}

TEST(Zoo, UnknownNamesAreNull) {
  EXPECT_EQ(FindInZoo("transformer"), nullptr);
  EXPECT_EQ(FindInZoo(""), nullptr);
}

TEST(Zoo, FamiliesAreThoseOfTheCatalogue) {
  const auto family = [](std::string_view name) { return FamilyOf(ParseRecipe(name)); };
  EXPECT_EQ(family("mamba"), Family::kHebbian);
  EXPECT_EQ(family("batch_gd{steps: 1}"), Family::kLeastSquares);
  EXPECT_EQ(family("batch_gd{steps: 1, eta_kind: constant}"), Family::kHebbian);
  EXPECT_EQ(family("lru"), Family::kGatedVector);
  EXPECT_EQ(family("rwkv7"), Family::kSgd);
  EXPECT_EQ(family("quasi_newton{steps: 1}"), Family::kLeastSquares);
  EXPECT_EQ(family("kalmanet"), Family::kLeastSquares);
  EXPECT_EQ(family("softmax"), Family::kKernelSmoother);
  EXPECT_EQ(family("kernel_smoother"), Family::kKernelSmoother);
  EXPECT_EQ(family("kernel_ridge"), Family::kKernelRegression);
  EXPECT_EQ(family("kernel_gd"), Family::kKernelDescent);
  EXPECT_EQ(family("kernel_gd{steps: 1, eta_kind: constant}"), Family::kKernelSmoother);
  EXPECT_EQ(family("kernel_gd{optimizer: conjugate_gradient}"), Family::kKernelDescent);
  EXPECT_EQ(family("local_cubic"), Family::kLocalPolynomial);
  EXPECT_EQ(family("titans"), Family::kNetwork);
}

TEST(FeatureMaps, AreThoseOfTheContractUnderTheirNames) {
  const std::set<std::string> contract = Words(
      "elu1 relu cosformer dpfp t2r hedgehog_exp hedgehog_softmax taylor2 rebased rfa favor "
      "dijiang power2");
  std::set<std::string> names;
  for (const FeatureEntry& entry : FeatureMaps()) {
    names.insert(std::string(entry.name));
    Recipe recipe;
    SetOption(recipe, "features", entry.name);
    EXPECT_EQ(recipe.function.features, entry.map);
    EXPECT_FALSE(entry.source.empty() || entry.formula.empty());
  }
  EXPECT_EQ(names, contract);
}

TEST(FeatureMaps, HaveTheirDimensions) {
  const auto dim = [](FeatureMap map, std::int64_t rows) {
    return FeatureDim({.features = map, .nu = 3, .feature_dim = 40}, 5, rows);
  };
  EXPECT_EQ(dim(FeatureMap::kNone, 0), 5);
  EXPECT_EQ(dim(FeatureMap::kElu1, 0), 5);
  EXPECT_EQ(dim(FeatureMap::kRelu, 0), 5);
  EXPECT_EQ(dim(FeatureMap::kCosformer, 0), 10);
  EXPECT_EQ(dim(FeatureMap::kDpfp, 0), 30);
  EXPECT_EQ(dim(FeatureMap::kT2r, 7), 7);
  EXPECT_EQ(dim(FeatureMap::kHedgehogExp, 7), 14);
  EXPECT_EQ(dim(FeatureMap::kHedgehogSoftmax, 7), 14);
  EXPECT_EQ(dim(FeatureMap::kTaylor2, 0), 1 + 5 + 15);
  EXPECT_EQ(dim(FeatureMap::kRebased, 0), 15);
  EXPECT_EQ(dim(FeatureMap::kPower2, 0), 15);
  EXPECT_EQ(dim(FeatureMap::kRfa, 0), 80);
  EXPECT_EQ(dim(FeatureMap::kRfa, 7), 14);
  EXPECT_EQ(dim(FeatureMap::kFavor, 0), 40);
  EXPECT_EQ(dim(FeatureMap::kFavor, 7), 7);
  EXPECT_EQ(dim(FeatureMap::kDijiang, 0), 40);
}

}  // namespace
}  // namespace ttr
