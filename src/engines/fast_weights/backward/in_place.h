/// Rows of inputs and gradients that the gradient's kernels read or write in place: nothing is
/// gathered of them or scattered to them.
#pragma once

#include "src/engines/fast_weights/backward/rows.h"

namespace ttr::fast_weights {

/// rows.in_place and rows.streams of a memory.
template <class T>
void FindInPlace(const Options& options, const Memory& memory, const GradientMemory& out,
                 BackwardRows<T>& rows);

/// Points a call on the block of `rows` to the caller's rows, where they are used in place.
template <class T>
void PointInPlace(const Options& options, const Memory& memory, const GradientMemory& out,
                  const BackwardRows<T>& rows, GradientCall<T>& call);

}  // namespace ttr::fast_weights
