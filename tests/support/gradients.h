// Gradients of layers for tests: of everything that a call takes, and how they compare.
#pragma once

#include <cstdint>
#include <vector>

#include "ttr/layer.h"

namespace ttr::test {

// Standard normal numbers.
Tensor Normal(DType dtype, const Shape& shape, std::uint64_t seed);

// A state of the layer, drawn at random: squares where it holds curvatures, whole numbers where it
// counts.
State RandomState(const Layer& layer, const Inputs& inputs, std::uint64_t seed);

// The gradients of everything that a call takes. Tensors are full of other numbers before.
struct Gradients {
  std::vector<Tensor> tensors;
  Inputs inputs;
  State initial;
};
Gradients Differentiate(const Layer& layer, const Inputs& inputs, const State& initial,
                        const TensorView& dy, const State& dstate, const CallOptions& options = {},
                        DType dtype = DType::kFloat64);

// Every number within `tolerance` times the larger of 1 and the tensor's greatest number.
void ExpectClose(const Gradients& a, const Gradients& b, double tolerance);

// Every number within `distance`.
void ExpectWithin(const Gradients& a, const Gradients& b, double distance);

}  // namespace ttr::test
