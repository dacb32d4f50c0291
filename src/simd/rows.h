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

}  // namespace ttr::simd
