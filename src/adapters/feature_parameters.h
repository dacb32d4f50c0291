/// Parameters of feature maps as engines take them.
#pragma once

#include "ttr/inputs.h"
#include "ttr/tensor.h"

namespace ttr {

/// A parameter, contiguous and of this dtype: as given, or in `copy`. Absent where not given.
TensorView Parameter(const TensorView& given, DType dtype, Tensor& copy);

}  // namespace ttr
