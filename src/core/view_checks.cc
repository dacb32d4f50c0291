#include "src/core/view_checks.h"

#include <array>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <limits>
#include <string>
#include <utility>

#include "ttr/error.h"

namespace ttr {

void CheckRows(std::string_view op, std::string_view name, const TensorView& view) {
  const int last = view.rank() - 1;
  if (last < 0 || view.size(last) <= 1 || view.stride(last) == 1) return;
  throw Error(op, name, "contiguous in its last axis",
              "of stride " + std::to_string(view.stride(last)));
}

void CheckAligned(std::string_view op, std::string_view name, const TensorView& view) {
  if (!view.defined()) return;
  const std::size_t size = SizeOf(view.dtype());
  const auto address = reinterpret_cast<std::uintptr_t>(view.data());
  if (address % size == 0) return;
  throw Error(op, name, "at an address that is a multiple of " + std::to_string(size),
              std::to_string(address % size) + " beyond one");
}

Extent::Extent(std::string_view op, std::string_view name, const TensorView& view) {
  if (!view.defined() || view.shape().elements() == 0) return;
  std::int64_t first = 0, last = 0;  // bytes from where the view begins
  bool fits = true;
  const auto size = static_cast<std::int64_t>(SizeOf(view.dtype()));
  for (int axis = 0; axis < view.rank(); ++axis) {
    std::int64_t reach = 0;
    fits = fits && !__builtin_mul_overflow(view.size(axis) - 1, view.stride(axis), &reach) &&
           !__builtin_mul_overflow(reach, size, &reach) &&
           !(reach < 0 ? __builtin_add_overflow(first, reach, &first)
                       : __builtin_add_overflow(last, reach, &last));
  }
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max() / 4;
  if (!fits || first < -kMost || last > kMost) {
    throw Error(op, name, "of strides that stay inside of memory", "of strides that do not");
  }
  begin = view.as<const std::byte>() + first;
  end = view.as<const std::byte>() + last + size;
}

bool Extent::Meets(const Extent& other) const {
  const std::less<const std::byte*> before;
  return begin != end && other.begin != other.end && before(begin, other.end) &&
         before(other.begin, end);
}

bool IsDistinct(const TensorView& view) {
  if (!view.defined() || view.shape().elements() == 0) return true;
  struct Axis {
    std::int64_t stride, size;
  };
  std::array<Axis, kMaxRank> axes{};
  int count = 0;
  for (int axis = 0; axis < view.rank(); ++axis) {
    if (view.size(axis) == 1) continue;
    axes[static_cast<std::size_t>(count++)] = {std::abs(view.stride(axis)), view.size(axis)};
  }
  for (int i = 1; i < count; ++i) {  // by stride
    for (int j = i; j > 0; --j) {
      Axis& shorter = axes[static_cast<std::size_t>(j - 1)];
      Axis& longer = axes[static_cast<std::size_t>(j)];
      if (longer.stride < shorter.stride) std::swap(shorter, longer);
    }
  }
  // Elements have places of their own where every axis steps over all that the shorter strides
  // reach.
  std::int64_t reach = 0;
  for (int i = 0; i < count; ++i) {
    const Axis& axis = axes[static_cast<std::size_t>(i)];
    if (axis.stride <= reach) return false;
    reach += (axis.size - 1) * axis.stride;
  }
  return true;
}

}  // namespace ttr
