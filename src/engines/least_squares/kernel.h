/// The kernels that the glue calls.
#pragma once

#include <cstddef>

#include "src/engines/least_squares/memory.h"

namespace ttr::least_squares {

/// Takes one memory through its sequence. `scratch` is aligned and holds what least_squares.cc
/// counts for a worker.
void RunMemoryFloat(const Options& options, const Memory& memory, const Sizes& sizes,
                    std::byte* scratch);
void RunMemoryDouble(const Options& options, const Memory& memory, const Sizes& sizes,
                     std::byte* scratch);

}  // namespace ttr::least_squares
