/// What outputs are divided by.
#pragma once

#include <cstdint>

namespace ttr::common {

/// What an output y is divided by: nothing, |y|, or its root mean square over Dv. A zero y stays
/// zero.
enum class OutputNorm : std::uint8_t { kNone, kL2, kRms };

}  // namespace ttr::common
