/// One number in every element of a view.
#pragma once

#include "ttr/tensor.h"

namespace ttr {

/// Writes `value`, converted, into every element of `view`, if that is defined.
void Fill(const TensorView& view, double value);

}  // namespace ttr
