/// Products of sizes that do not wrap.
#pragma once

#include <cstdint>
#include <initializer_list>

namespace ttr {

/// No memory has so many bytes; what reaches it stays there.
inline constexpr std::int64_t kMostBytes = std::int64_t{1} << 62;

/// The product of sizes that are not negative, at most kMostBytes.
constexpr std::int64_t Product(std::initializer_list<std::int64_t> sizes) {
  std::int64_t product = 1;
  bool wraps = false;
  for (const std::int64_t size : sizes) {
    if (size == 0) return 0;
    wraps = __builtin_mul_overflow(product, size, &product) || product > kMostBytes || wraps;
  }
  return wraps ? kMostBytes : product;
}

}  // namespace ttr
