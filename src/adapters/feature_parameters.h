/// Parameters of feature maps as engines take them.
#pragma once

#include "src/core/call_scratch.h"
#include "ttr/tensor.h"

namespace ttr {

/// A parameter, contiguous and of this dtype: as given, or a copy. Absent where not given.
inline TensorView Parameter(const TensorView& given, DType dtype, CallScratch& scratch) {
  const bool fits = !given.defined() || (given.dtype() == dtype && given.contiguous());
  return fits ? given : scratch.Copy(given, dtype);
}

}  // namespace ttr
