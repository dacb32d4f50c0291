/// Tensors as the rows that kernels see.
#pragma once

#include <cstddef>
#include <cstdint>

#include "src/simd/rows.h"
#include "ttr/tensor.h"

namespace ttr::simd {

inline void* ElementOf(const TensorView& view, std::int64_t offset) {
  return view.as<std::byte>() + offset * static_cast<std::int64_t>(SizeOf(view.dtype()));
}

/// Rows of head `head` of [B, T, H, ...], from token `first` of batch `batch` on. An absent view
/// gives absent rows.
inline Rows RowsOf(const TensorView& view, std::int64_t batch, std::int64_t first,
                   std::int64_t head) {
  if (!view.defined()) return {};
  const std::int64_t offset =
      batch * view.stride(0) + first * view.stride(1) + head * view.stride(2);
  return {ElementOf(view, offset), view.dtype(), view.stride(1)};
}

/// What memory `head` of sequence `n` keeps in [N, H, D, ...]; null where absent.
inline void* KeptOf(const TensorView& view, std::int64_t n, std::int64_t head) {
  return view.defined() ? ElementOf(view, n * view.stride(0) + head * view.stride(1)) : nullptr;
}

}  // namespace ttr::simd
