/// float16 is a type of rows as they come and go: engines have kernels for the other floating
/// types. A call that has any runs on copies in float32.
#pragma once

#include <utility>
#include <vector>

#include "ttr/call.h"
#include "ttr/inputs.h"

namespace ttr {

/// Tensors in float32 in the place of those in float16.
class WidenedTensors {
 public:
  /// A copy of a tensor that is read.
  TensorView Read(const TensorView& view);
  /// Room in the place of a tensor that is written, for WriteBack() to round into it.
  TensorView Write(const TensorView& view);
  void WriteBack() const;

 private:
  std::vector<Tensor> copies_{};
  std::vector<std::pair<TensorView, TensorView>> written_{};  // the caller's, and the room
};

/// Does a call have tensors in float16?
bool HasFloat16(const Inputs& inputs, const TensorView& rows);

/// All inputs as they are read, or (gradients) written.
Inputs WidenedInputs(const Inputs& inputs, WidenedTensors& tensors, bool written);

}  // namespace ttr
