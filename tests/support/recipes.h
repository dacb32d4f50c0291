// Recipes that tests walk through.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace ttr::test {

// Every layer of the zoo, every feature map, and options that no entry of the zoo has set.
std::vector<std::string> LayerRecipes();

// Those that an engine runs by products and sums, whose answers are as exact as their size says.
std::vector<std::string> EngineRecipes();

// Those that solve systems of equations exactly, whose answers are as exact as the systems'
// condition says.
std::vector<std::string> LeastSquaresRecipes();

// Those that the same engine approaches by iteration.
std::vector<std::string> IterativeRecipes();

// The letters and figures of a recipe.
std::string CaseName(const ::testing::TestParamInfo<std::string>& info);

}  // namespace ttr::test
