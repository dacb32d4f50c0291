/// The compiled kernels behind run-time dispatch.
#pragma once

#include <cstddef>
#include <cstdint>

#include "src/engines/fast_weights/layout.h"

namespace ttr::fast_weights {

/// One memory through one sequence, on the chosen target, in float or double as the state is;
/// `scratch` is 64-byte aligned and holds Scratch<T>::bytes. `next` is only fetched towards the
/// caches: the memory that probably comes after this one, or one without rows.
void RunMemoryFloat(const Options& options, const Memory& memory, const Memory& next,
                    const Sizes& sizes, std::byte* scratch);
void RunMemoryDouble(const Options& options, const Memory& memory, const Memory& next,
                     const Sizes& sizes, std::byte* scratch);

/// Value columns of a strip on the chosen target.
std::int64_t StripColumns(DType dtype);

}  // namespace ttr::fast_weights
