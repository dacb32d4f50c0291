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
#include "src/simd/unroll.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::linalg {
namespace HWY_NAMESPACE {

/// Rows of a tile: with 16 registers 6 x 2 sums, two vectors of the right factor and one of the
/// left, so that there are more products than loads.
inline constexpr int kStripRows = kTileRows == 4 ? 6 : kTileRows;

/// The compiler would rather load a vector anew for every product than keep it.
template <class V>
HWY_INLINE void KeepInRegister([[maybe_unused]] V& v) {
#if HWY_ARCH_X86 && HWY_COMPILER_GCC_ACTUAL && HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
  asm("" : "+v"(v.raw));
#endif
}

template <Into INTO, int R, int NV, class T>
HWY_INLINE void StripTile(const T* HWY_RESTRICT a, std::int64_t a_row, std::int64_t a_step,
                          const T* HWY_RESTRICT b, std::int64_t b_step, std::int64_t steps,
                          T* HWY_RESTRICT to, std::int64_t to_row) {
  const hn::ScalableTag<T> d;
  using D = decltype(d);
  const std::size_t lanes = hn::Lanes(d);
  Tile<D, R, NV> tile;
  if constexpr (INTO == Into::kSet) {
    SetZero<D, R, NV>(d, tile);
  } else {
    LoadTile<D, R, NV>(d, to, to_row, tile);
  }
  for (std::int64_t s = 0; s < steps; ++s) {
    hn::Vec<D> right[NV];
    TTR_UNROLL
    for (int v = 0; v < NV; ++v) {
      right[v] = hn::LoadU(d, b + v * lanes);
      KeepInRegister(right[v]);
    }
    TTR_UNROLL
    for (int r = 0; r < R; ++r) {
      const hn::Vec<D> left = hn::Set(d, a[r * a_row]);
      TTR_UNROLL
      for (int v = 0; v < NV; ++v) {
        if constexpr (INTO == Into::kSubtract) {
          tile[r][v] = hn::NegMulAdd(left, right[v], tile[r][v]);
        } else {
          tile[r][v] = hn::MulAdd(left, right[v], tile[r][v]);
        }
      }
    }
    a += a_step;
    b += b_step;
  }
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
