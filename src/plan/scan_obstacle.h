/// What the scan engine takes.
#pragma once

#include "ttr/recipe.h"

namespace ttr {

/// Memories whose decay acts on every entry by itself, so that tokens do not combine in matrix
/// products: vectors, and matrices that decay per entry.
bool DecaysByEntry(const Recipe& recipe);

/// Why the scan engine cannot run a recipe of that kind; null where it can.
const char* ScanObstacle(const Recipe& recipe);

}  // namespace ttr
