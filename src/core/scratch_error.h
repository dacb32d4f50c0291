/// The Error of scratch that is too small.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "ttr/error.h"

namespace ttr {

/// Says how many bytes are lacking, which is right for a part of a scratch as well.
[[noreturn]] inline void ThrowTooSmallScratch(std::string_view op, std::size_t lacking) {
  throw Error(op, "scratch", "as large as ScratchBytes() says",
              std::to_string(lacking) + " bytes too small");
}

}  // namespace ttr
