// Activations of src/simd as plain functions, as compiled for the target that is chosen.
#pragma once

#include <cstdint>

#include "src/simd/activation.h"

namespace ttr::test {

// value, slope and curvature of `count` numbers.
template <class T>
void Activate(simd::Activation activation, std::int64_t count, const T* z, T* value, T* slope,
              T* curvature);

}  // namespace ttr::test
