#include "src/adapters/feature_parameters.h"

namespace ttr {

TensorView Parameter(const TensorView& given, DType dtype, Tensor& copy) {
  if (!given.defined() || (given.dtype() == dtype && given.contiguous())) return given;
  copy = Tensor::Copy(given, dtype);
  return copy.view();
}

}  // namespace ttr
