// Products of blocks, a strip of two vectors of columns after the other: a strip of the right
// factor stays in the first-level cache for all rows, which blocks-inl.h reads once a tile.
// Compiled once for every target.

#if defined(TTR_LINALG_STRIPS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_LINALG_STRIPS_INL_H_
#undef TTR_LINALG_STRIPS_INL_H_
#else
#define TTR_LINALG_STRIPS_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "hwy/highway.h"
#include "src/linalg/blocks-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::linalg {
namespace HWY_NAMESPACE {

/// Rows of a tile: with 16 registers 6 x 2 sums, two vectors of the right factor and one of the
/// left, so that there are more products than loads.
inline constexpr int kStripRows = kTileRows == 4 ? 6 : kTileRows;

template <Into INTO, int R, int NV, class T>
HWY_INLINE void StripTile(const T* HWY_RESTRICT a, std::int64_t a_row, std::int64_t a_step,
                          const T* HWY_RESTRICT b, std::int64_t b_step, std::int64_t steps,
                          T* HWY_RESTRICT to, std::int64_t to_row) {
  const hn::ScalableTag<T> d;
  using D = decltype(d);
  Tile<D, R, NV> tile;
  if constexpr (INTO == Into::kSet) {
    SetZero<D, R, NV>(d, tile);
  } else {
    LoadTile<D, R, NV>(d, to, to_row, tile);
  }
  Accumulate<INTO == Into::kSubtract, D, R, NV>(d, a, a_row, a_step, b, b_step, steps, tile);
  StoreTile<D, R, NV>(d, tile, to, to_row);
}

/// to = / += / -= left right, of rows a multiple of kTileRows.
template <Into INTO, class T>
HWY_NOINLINE void MultiplyStrips(const Left<T>& left, const Block<T>& right, std::int64_t rows,
                                 std::int64_t columns, std::int64_t steps, const Block<T>& to) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  ForTiles(d, 0, RoundUp(columns, lanes), [&](std::int64_t j, auto vectors) HWY_ATTR {
    const auto tile = [&](std::int64_t i, auto tile_rows) HWY_ATTR {
      StripTile<INTO, tile_rows(), vectors()>(left.data + i * left.row, left.row, left.step,
                                              right.data + j, right.stride, steps, to.Row(i) + j,
                                              to.stride);
    };
    std::int64_t i = 0;
    while (i < rows) {
      const std::int64_t rest = rows - i;
      if (rest == 4 || rest == 8) {
        tile(i, std::integral_constant<int, kTileRows>());
        i += kTileRows;
      } else {
        tile(i, std::integral_constant<int, kStripRows>());
        i += kStripRows;
      }
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::linalg
HWY_AFTER_NAMESPACE();

#endif  // TTR_LINALG_STRIPS_INL_H_
