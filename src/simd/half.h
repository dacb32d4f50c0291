/// Rows of float16, to float32 and back.
#pragma once

#include <cstdint>

#include "ttr/dtype.h"

namespace ttr::simd {

void Widen(const Float16* from, std::int64_t count, float* to);
/// To nearest, ties to even.
void Narrow(const float* from, std::int64_t count, Float16* to);

}  // namespace ttr::simd
