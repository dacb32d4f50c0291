/// Where a number of some kind stands.
#pragma once

#include <cstdint>

#include "ttr/dtype.h"

namespace ttr::simd {

/// Zeros and NaN are neither positive nor negative.
enum class Kind { kPositive, kNegative, kZero, kMinusInfinity, kNonfinite };

/// The first i < count with x[i] of that kind, or count.
std::int64_t FirstOf(Kind kind, const float* x, std::int64_t count);
std::int64_t FirstOf(Kind kind, const double* x, std::int64_t count);
std::int64_t FirstOf(Kind kind, const BFloat16* x, std::int64_t count);
std::int64_t FirstOf(Kind kind, const Float16* x, std::int64_t count);

}  // namespace ttr::simd
