#pragma once

#include <span>

#include "src/recipe/options.h"
#include "ttr/recipe.h"

namespace ttr {

/// Options that have no effect in this recipe, save those `said`, take their default. (A zoo name
/// with changes: nadaraya_watson{kernel: inverse_distance} forgets the bandwidth of the entry.)
void DropWithoutEffect(Recipe& recipe, std::span<const Option* const> said);

/// The nearest recipe that has a meaning; the recipe itself where it has one.
Recipe NearestValid(Recipe recipe);

}  // namespace ttr
