#include "src/adapters/spread_rows.h"

#include <array>
#include <span>

namespace ttr {
namespace {

/// With `count` steps of `stride` along the axis of time.
TensorView WithTime(const TensorView& view, std::int64_t count, std::int64_t stride) {
  std::array<std::int64_t, kMaxRank> sizes{}, strides{};
  for (int i = 0; i < view.rank(); ++i) {
    sizes[static_cast<std::size_t>(i)] = view.size(i);
    strides[static_cast<std::size_t>(i)] = view.stride(i);
  }
  sizes[1] = count;
  strides[1] = stride;
  const auto rank = static_cast<std::size_t>(view.rank());
  return TensorView(view.data(), view.dtype(),
                    Shape(std::span<const std::int64_t>(sizes).first(rank)),
                    std::span<const std::int64_t>(strides).first(rank));
}

}  // namespace

TensorView RowOfTokens(const TensorView& rows, std::int64_t steps, std::int64_t place) {
  const std::int64_t tokens = rows.size(1) / steps;
  if (tokens == 0) return rows;
  return WithTime(rows.Slice(1, place, 1), tokens, rows.stride(1) * steps);
}

TensorView SpreadOverRows(const TensorView& tokens, std::int64_t steps, std::int64_t place,
                          CallScratch& scratch) {
  if (!tokens.defined() || steps == 1) return tokens;
  std::array<std::int64_t, kMaxRank> sizes{};
  for (int i = 0; i < tokens.rank(); ++i) sizes[static_cast<std::size_t>(i)] = tokens.size(i);
  sizes[1] *= steps;
  const auto rank = static_cast<std::size_t>(tokens.rank());
  const TensorView rows =
      scratch.Zeros(tokens.dtype(), Shape(std::span<const std::int64_t>(sizes).first(rank)));
  CopyInto(tokens, RowOfTokens(rows, steps, place));
  return rows;
}

}  // namespace ttr
