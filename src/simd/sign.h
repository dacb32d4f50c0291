/// Where a number of a forbidden sign stands.
#pragma once

#include <cstdint>

#include "ttr/dtype.h"

namespace ttr::simd {

enum class Sign { kPositive, kNegative };

/// The first i < count with x[i] of that sign, or count. Zeros and NaN are of neither.
std::int64_t FirstOf(Sign sign, const float* x, std::int64_t count);
std::int64_t FirstOf(Sign sign, const double* x, std::int64_t count);
std::int64_t FirstOf(Sign sign, const BFloat16* x, std::int64_t count);

}  // namespace ttr::simd
