/// The zoo: every named layer as a recipe. One line each in src/recipe/zoo.cc.
#pragma once

#include <span>
#include <string_view>

#include "ttr/recipe.h"

namespace ttr {

struct ZooEntry {
  std::string_view name;        ///< lower case with underscores
  std::string_view recipe;      ///< a recipe line
  std::string_view title;       ///< as its paper calls it
  std::string_view source;      ///< paper: an arXiv number, or a classic
  std::string_view recurrence;  ///< the exact meaning, in one or two lines of plain text
};

/// All layers, in the order of the catalogue.
std::span<const ZooEntry> Zoo();

/// The entry of a name, or null.
const ZooEntry* FindInZoo(std::string_view name);

struct FeatureEntry {
  FeatureMap map;
  std::string_view name;
  std::string_view source;
  std::string_view formula;
};

/// All feature maps ("none" is not among them).
std::span<const FeatureEntry> FeatureMaps();

}  // namespace ttr
