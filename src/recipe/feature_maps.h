#pragma once

#include <cstdint>
#include <vector>

#include "ttr/recipe.h"

namespace ttr {

/// The length of phi(x) for x of length `key_dim`; `rows` counts those of `features.w`, 0 where it
/// is not given.
std::int64_t FeatureDim(const Function& function, std::int64_t key_dim, std::int64_t rows);

/// What a random map uses for `features.w` of one memory where it is not given: `feature_dim` rows
/// of length `key_dim`, drawn from the recipe's seed and the memory's index alone (src/random/
/// directions.h). Empty for maps that are not random.
std::vector<double> DrawFeatureRows(const Function& function, std::int64_t key_dim,
                                    std::uint64_t head);

}  // namespace ttr
