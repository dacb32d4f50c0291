/// Tensors for the gradients that a caller wants.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "tensors.h"

namespace ttr::pytorch {

/// Each Next() takes a bit of `wanted`, from the lowest.
class Gradients {
 public:
  Gradients(std::string_view op, std::int64_t wanted)
      : op_(op), wanted_(static_cast<std::uint64_t>(wanted)) {}

  /// The view of a gradient shaped as `of`, where the next bit is set. Error: it is set, but there
  /// is no `of`.
  TensorView Next(std::string_view name, const TensorView& of);

  std::int64_t numbers() const { return numbers_; }
  const std::vector<Tensor>& tensors() const { return tensors_; }

 private:
  std::string_view op_;
  std::uint64_t wanted_;
  std::int64_t numbers_ = 0;
  std::vector<Tensor> tensors_;
};

}  // namespace ttr::pytorch
