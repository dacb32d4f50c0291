/// Tensors as the rows that kernels see.
#pragma once

#include <algorithm>
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

/// Do rows [B, T, H, ...] of many heads share a page, while those of a head fill many? Then who
/// runs one head after the other waits for pages and lines that others will want, too.
inline bool Interleaved(const TensorView& rows, std::int64_t tokens) {
  constexpr std::int64_t kPage = 4096, kManyPages = 128;
  const auto size = static_cast<std::int64_t>(SizeOf(rows.dtype()));
  return rows.stride(2) * size < kPage && tokens * rows.stride(1) * size > kManyPages * kPage;
}

/// How many of so many memories take turns, `most` at the most.
inline std::int64_t TakeTurns(std::int64_t memories, int workers, std::int64_t most) {
  // Workers come free at different times: each should find a second task.
  const std::int64_t tasks = workers == 1 ? 1 : 2 * workers;
  return std::clamp<std::int64_t>((memories + tasks - 1) / tasks, 1, most);
}

}  // namespace ttr::simd
