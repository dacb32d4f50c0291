/// Activations of small networks.
#pragma once

#include <cstdint>

namespace ttr::simd {

enum class Activation : std::uint8_t {
  kSilu,  ///< z / (1 + exp(-z))
  kGelu,  ///< z/2 (1 + tanh(sqrt(2/pi) (z + 0.044715 z^3)))
  kRelu,  ///< 0 where z <= 0, else z
  kTanh,
};

}  // namespace ttr::simd
