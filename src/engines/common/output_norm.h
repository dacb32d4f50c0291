/// What outputs are divided by.
#pragma once

#include <cstdint>

namespace ttr::common {

/// Of y over Dv: nothing, |y|, or its root mean square. Zero stays zero.
enum class OutputNorm : std::uint8_t { kNone, kL2, kRms };

}  // namespace ttr::common
