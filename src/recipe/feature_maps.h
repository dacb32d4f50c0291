#pragma once

#include <cstdint>

#include "ttr/recipe.h"

namespace ttr {

/// The length of phi(x) for x of length `key_dim`; `rows` counts those of `features.w`, 0 where it
/// is not given.
std::int64_t FeatureDim(const Function& function, std::int64_t key_dim, std::int64_t rows);

}  // namespace ttr
