#include "gradients.h"

#include "ttr/error.h"

namespace ttr::pytorch {

TensorView Gradients::Next(std::string_view name, const TensorView& of) {
  const bool is_wanted = (wanted_ & 1) != 0;
  wanted_ >>= 1;
  if (!is_wanted) return {};
  if (!of.defined()) throw Error(op_, name, "given where its gradient is wanted", "absent");
  tensors_.push_back(Empty(of.dtype(), of.shape()));
  numbers_ += of.shape().elements();
  return ViewOf(op_, name, tensors_.back());
}

}  // namespace ttr::pytorch
