/// What holds of every view that a call is given.
#pragma once

#include <cstddef>
#include <string_view>

#include "ttr/tensor.h"

namespace ttr {

/// Checks that the last axis is contiguous.
void CheckRows(std::string_view op, std::string_view name, const TensorView& view);

/// Checks that the memory begins at a multiple of its numbers' size.
void CheckAligned(std::string_view op, std::string_view name, const TensorView& view);

/// The bytes from the first to behind the last element; null and null of none. Throws where strides
/// leave any memory.
struct Extent {
  Extent() = default;
  Extent(std::string_view op, std::string_view name, const TensorView& view);
  bool Meets(const Extent& other) const;

  const std::byte* begin = nullptr;
  const std::byte* end = nullptr;
};

/// Has every element a place of its own, so that all can be written? (False, too, where axes lie in
/// one another as no library makes them.)
bool IsDistinct(const TensorView& view);

}  // namespace ttr
