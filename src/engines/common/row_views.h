/// Tensors as the rows that kernels see.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "src/engines/common/scratch_layout.h"
#include "src/engines/common/sequences.h"
#include "src/simd/rows.h"
#include "ttr/tensor.h"

namespace ttr::common {

using simd::Rows;

/// Element `offset` of a view, by strides; null where the view is absent.
inline std::byte* ElementOf(const TensorView& view, std::int64_t offset) {
  if (!view.defined()) return nullptr;
  return view.as<std::byte>() + offset * static_cast<std::int64_t>(SizeOf(view.dtype()));
}

/// `rows`, from element `offset` on.
inline Rows Moved(Rows rows, std::int64_t offset) {
  rows.data =
      static_cast<std::byte*>(rows.data) + offset * static_cast<std::int64_t>(SizeOf(rows.dtype));
  return rows;
}

/// Rows of the heads of several queries that read one memory: those of the first, and numbers to
/// the next.
struct HeadRows {
  Rows first;
  std::int64_t stride = 0;

  Rows Of(std::int64_t query) const { return Moved(first, query * stride); }
  explicit operator bool() const { return static_cast<bool>(first); }
};

/// Rows of head `head` of [B, T, H, ...] from token `first` of batch row `batch` on, each from
/// element `column` on. An absent view gives absent rows.
inline Rows RowsOf(const TensorView& view, std::int64_t batch, std::int64_t first,
                   std::int64_t head, std::int64_t column = 0) {
  if (!view.defined()) return {};
  const std::int64_t offset =
      batch * view.stride(0) + first * view.stride(1) + head * view.stride(2) + column;
  return {ElementOf(view, offset), view.dtype(), view.stride(1)};
}
inline Rows RowsOf(const TensorView& view, const Sequence& sequence, std::int64_t head,
                   std::int64_t column = 0) {
  return RowsOf(view, sequence.batch, sequence.first, head, column);
}

/// The rows of this head and of the heads after it.
inline HeadRows HeadRowsOf(const TensorView& view, const Sequence& sequence, std::int64_t head,
                           std::int64_t column = 0) {
  if (!view.defined()) return {};
  return {RowsOf(view, sequence, head, column), view.stride(2)};
}

/// The rows of memory `head` of sequence `n` in a state [N, H, rows, ...], or its only row in one
/// of rank 3.
inline Rows StateOf(const TensorView& view, std::int64_t n, std::int64_t head,
                    std::int64_t column = 0) {
  if (!view.defined()) return {};
  const std::int64_t offset = n * view.stride(0) + head * view.stride(1) + column;
  return {ElementOf(view, offset), view.dtype(), view.rank() > 3 ? view.stride(2) : 0};
}

/// The rows of a constant [H, ...] that belong to memory `head`.
inline Rows ConstantOf(const TensorView& view, std::int64_t head, std::int64_t row = 0) {
  if (!view.defined()) return {};
  const std::int64_t stride = view.rank() > 2 ? view.stride(1) : 0;
  return {ElementOf(view, head * view.stride(0) + row * stride), view.dtype(), stride};
}

/// Do rows [B, T, H, ...] of many heads share a page of memory while those of one head fill many?
/// A worker that then runs one head after the other waits for pages. It wastes lines that hardware
/// fetches on its own, which other heads will need.
inline bool HeadsSharePages(const TensorView& rows, std::int64_t tokens) {
  constexpr std::int64_t kPage = 4096, kManyPages = 128;
  const auto size = static_cast<std::int64_t>(SizeOf(rows.dtype()));
  return rows.stride(2) * size < kPage && tokens * rows.stride(1) * size > kManyPages * kPage;
}

/// How many of so many memories a worker runs in time slices, `most` at the most. Workers come free
/// at different times, and each should find a second task.
inline std::int64_t MemoriesTogether(std::int64_t memories, int workers, std::int64_t most) {
  const std::int64_t tasks = workers == 1 ? 1 : 2 * workers;
  return std::clamp<std::int64_t>(CeilDiv(memories, tasks), 1, most);
}

}  // namespace ttr::common
