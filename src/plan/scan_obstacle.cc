#include "src/plan/scan_obstacle.h"

#include "src/recipe/family.h"

namespace ttr {

bool DecaysByEntry(const Recipe& recipe) {
  const Family family = FamilyOf(recipe);
  return family == Family::kGatedVector ||
         (family == Family::kHebbian && recipe.weights.decay == Decay::kMatrix);
}

const char* ScanObstacle(const Recipe& recipe) {
  if (!recipe.reading.causal) return "reading the whole sequence at once";
  if (recipe.function.features != FeatureMap::kNone) return "a feature map";
  if (recipe.weights.importance == Importance::kLog) return "unbounded importance weights";
  if (recipe.reading.bonus) return "a bonus of the current token";
  return nullptr;
}

}  // namespace ttr
