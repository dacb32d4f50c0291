/// Sizes whose products no 64-bit number holds.
#pragma once

#include <string_view>

#include "ttr/inputs.h"

namespace ttr {

/// CheckDims(), and an Error where a state, an input, scratch or saved memory might have 2^62 bytes
/// or more. Behind it no product of sizes wraps, whichever engine forms it.
void CheckSizes(std::string_view op, const Recipe& recipe, const Dims& dims);

}  // namespace ttr
