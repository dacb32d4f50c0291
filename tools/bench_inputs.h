// What the works of `ttr bench` read and write: made once, shared by all that have the same shapes,
// so that a run of thirty layers needs little more memory than one.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "ttr/layer.h"

namespace ttr::tools {

class BenchMemory {
 public:
  // Random inputs that `recipe` takes at these sizes. q, k and v are of `dtype`; everything else is
  // float32, as models keep their gates. Long sequences repeat some tokens: no kernel's time
  // depends on that, but least squares on whether keys are of full rank, and they are.
  Inputs MakeInputs(const Recipe& recipe, const Dims& dims, DType dtype);

  // A place for the gradient of every input.
  Inputs Gradients(const Inputs& inputs);

  // `inputs` with a first channel of queries and keys that grows by `step` a token.
  Inputs Drifting(Inputs inputs, double step);

  // The layer's start, in place for calls to go on from; values that others left there do no harm.
  State Memory(const Layer& layer, const Inputs& inputs);

  // So many bytes under a name: scratch, what a forward pass saves, a decoder's memory.
  std::span<std::byte> Bytes(std::string_view name, std::size_t bytes);

  // The tensor of a name, dtype and shape.
  TensorView Take(std::string_view name, DType dtype, const Shape& shape);

 private:
  std::map<std::string, Tensor> tensors_;
};

// Bytes of all inputs.
double BytesOf(const Inputs& inputs);

}  // namespace ttr::tools
