/// Least squares by rotations: what the glue calls.
#pragma once

#include <cstddef>

#include "src/engines/least_squares/memory.h"

namespace ttr::least_squares {

/// Takes one memory through its sequence, where options.rotates. `scratch` is aligned and holds
/// RotationBytes().
void RunRotations(const Options& options, const Memory& memory, const Sizes& sizes,
                  std::byte* scratch);

std::size_t RotationBytes(const Options& options, const Sizes& sizes);

}  // namespace ttr::least_squares
