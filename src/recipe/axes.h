/// Sizes of axes as a check learns them, and shapes as errors print them.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "ttr/inputs.h"

namespace ttr {

/// "[B,T,Hk,Dk]"
std::string AxesText(std::span<const Axis> axes);

/// "[2,64,4,128]"
std::string ShapeText(const Shape& shape);

class AxisSizes {
 public:
  AxisSizes() { sizes_.fill(kUnknown); }

  bool Known(Axis axis) const { return sizes_[Index(axis)] != kUnknown; }
  std::int64_t Or(Axis axis, std::int64_t absent) const {
    return Known(axis) ? sizes_[Index(axis)] : absent;
  }
  void Set(Axis axis, std::int64_t size) { sizes_[Index(axis)] = size; }

  /// Sets an unknown size; false where another one is known.
  bool Bind(Axis axis, std::int64_t size) {
    if (!Known(axis)) Set(axis, size);
    return sizes_[Index(axis)] == size;
  }

  /// "[2,64,4,128]"; what is not known is as given, or its name where ranks differ.
  std::string Text(std::span<const Axis> axes, const Shape& given) const;

 private:
  static constexpr std::int64_t kUnknown = -1;
  static std::size_t Index(Axis axis) { return static_cast<std::size_t>(axis); }

  std::array<std::int64_t, static_cast<std::size_t>(Axis::kPairs) + 1> sizes_;
};

}  // namespace ttr
