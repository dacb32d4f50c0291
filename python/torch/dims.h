/// The sizes of a call as a list of numbers: what Python keeps of them.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "ttr/inputs.h"

namespace ttr::pytorch {

/// [B, T, Hq, Hk, Hv, H, Dk, Dv, F, hidden width, N]
std::vector<std::int64_t> ListOf(const Dims& dims);
Dims DimsFrom(std::string_view op, const std::vector<std::int64_t>& sizes);

}  // namespace ttr::pytorch
