/// Parts of a call along its tokens.
#pragma once

#include <cstdint>

#include "ttr/call.h"
#include "ttr/inputs.h"

namespace ttr {

/// Tokens begin .. begin + count of what has a row for each.
Inputs TokensOf(const Requirements& requirements, const Inputs& inputs, std::int64_t begin,
                std::int64_t count);
Outputs TokensOf(const Outputs& outputs, std::int64_t begin, std::int64_t count);

}  // namespace ttr
