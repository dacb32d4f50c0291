/// Rows of per-token numbers as engines see them.
#pragma once

#include <cstdint>

#include "ttr/dtype.h"

namespace ttr::simd {

/// One row of numbers a token: element i of token t at data[t * stride + i]. Inputs are not
/// written.
struct Rows {
  void* data = nullptr;
  DType dtype = DType::kFloat32;
  std::int64_t stride = 0;
  explicit operator bool() const { return data != nullptr; }
};

/// Are `count` rows `bytes` at the least, and lines that vectors of T fill?
template <class T>
bool PastCaches(const Rows& rows, std::int64_t count, std::int64_t bytes) {
  constexpr std::int64_t kLine = 64;
  const std::int64_t stride = rows.stride * static_cast<std::int64_t>(sizeof(T));
  return rows && rows.dtype == DTypeOf<T>() && stride % kLine == 0 &&
         reinterpret_cast<std::uintptr_t>(rows.data) % kLine == 0 && count * stride >= bytes;
}

}  // namespace ttr::simd
