// Recipes that tests walk through.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace ttr::test {

// Every layer of the zoo, every feature map, and options that no entry of the zoo has set.
std::vector<std::string> LayerRecipes();

// Those that an engine runs.
std::vector<std::string> EngineRecipes();

// The letters and figures of a recipe.
std::string CaseName(const ::testing::TestParamInfo<std::string>& info);

}  // namespace ttr::test
