// What the tests of engines share: a forced target, tensors in two memory orders, roundings.
#pragma once

#include <cstddef>
#include <functional>
#include <string_view>
#include <vector>

#include "ttr/target.h"
#include "ttr/tensor.h"

namespace ttr::test {

// Forces a target for the length of a test.
class OnTarget {
 public:
  explicit OnTarget(std::string_view name) { ForceTarget(name); }
  ~OnTarget() { ForceTarget(""); }
  OnTarget(const OnTarget&) = delete;
  OnTarget& operator=(const OnTarget&) = delete;
};

// A tensor with its view in the engine's order of axes.
struct Data {
  Tensor memory;
  TensorView view;
};

// [B, T, H, D] or [B, T, H]; in memory heads before tokens if asked for.
Data MakeData(DType dtype, const Shape& shape, bool head_major);

// Every number of it, in the order of memory.
void Fill(Data& data, const std::function<double()>& number);

std::vector<std::byte> Bytes(const Tensor& tensor);

// The distance of 1 to the next number; of bfloat16 that of its 8 bits.
double Epsilon(DType dtype);

}  // namespace ttr::test
