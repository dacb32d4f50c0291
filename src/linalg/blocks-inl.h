// Products of blocks of rows, whole or with triangles of zeros. Compiled once for every target.
//
// A block is row-major and aligned; rows are counted in multiples of kTileRows and columns in whole
// vectors, so that there are no edges: who has fewer fills up with zeros. 2 flops a step of a
// result's number; the left factor is read in place, whatever its order.

#if defined(TTR_LINALG_BLOCKS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_LINALG_BLOCKS_INL_H_
#undef TTR_LINALG_BLOCKS_INL_H_
#else
#define TTR_LINALG_BLOCKS_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "hwy/highway.h"
#include "src/linalg/block.h"
#include "src/linalg/tile-inl.h"
#include "src/simd/prefetcher.h"
#include "src/simd/strided-inl.h"
#include "src/simd/unroll.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::linalg {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace sn = ttr::simd::HWY_NAMESPACE;

using linalg::Block;
using linalg::Left;

template <class D, int R, int NV, class T = hn::TFromD<D>>
HWY_INLINE void LoadTile(D d, const T* from, std::int64_t stride, Tile<D, R, NV>& tile) {
  const std::size_t lanes = hn::Lanes(d);
  TTR_UNROLL
  for (int r = 0; r < R; ++r) {
    TTR_UNROLL
    for (int v = 0; v < NV; ++v) tile[r][v] = hn::LoadU(d, from + r * stride + v * lanes);
  }
}

template <class D, int R, int NV, class T = hn::TFromD<D>>
HWY_INLINE void StoreTile(D d, const Tile<D, R, NV>& tile, T* to, std::int64_t stride) {
  const std::size_t lanes = hn::Lanes(d);
  TTR_UNROLL
  for (int r = 0; r < R; ++r) {
    TTR_UNROLL
    for (int v = 0; v < NV; ++v) hn::StoreU(tile[r][v], d, to + r * stride + v * lanes);
  }
}

/// Calls tiles(column, vectors as a constant) for columns [begin, end), two vectors at a time.
template <class D, class Tiles>
HWY_INLINE void ForTiles(D d, std::int64_t begin, std::int64_t end, const Tiles& tiles) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t j = begin;
  for (; j + 2 * lanes <= end; j += 2 * lanes) tiles(j, std::integral_constant<int, 2>());
  for (; j < end; j += lanes) tiles(j, std::integral_constant<int, 1>());
}

/// What a product does with the numbers that are there.
enum class Into { kSet, kAdd, kSubtract };

/// The whole: all columns, all steps.
struct Whole {
  std::int64_t columns, steps;
  std::int64_t FirstColumn(std::int64_t) const { return 0; }
  std::int64_t FirstStep(std::int64_t) const { return 0; }
  std::int64_t Steps(std::int64_t, std::int64_t) const { return steps; }
};
/// The result from row i's column i times `columns_a_row` on (rounded down to a vector).
struct UpperResult {
  std::int64_t columns, steps;
  std::int64_t columns_a_row = 1;
  std::int64_t FirstColumn(std::int64_t i) const { return std::min(i * columns_a_row, columns); }
  std::int64_t FirstStep(std::int64_t) const { return 0; }
  std::int64_t Steps(std::int64_t, std::int64_t) const { return steps; }
};
/// A left factor that is zero after step i / rows_a_step of row i.
struct LowerLeft {
  std::int64_t columns, steps;
  std::int64_t rows_a_step = 1;
  std::int64_t FirstColumn(std::int64_t) const { return 0; }
  std::int64_t FirstStep(std::int64_t) const { return 0; }
  std::int64_t Steps(std::int64_t i, std::int64_t) const {
    return std::min(steps, (i + kTileRows - 1) / rows_a_step + 1);
  }
};

/// A left factor that is zero before step i steps_a_row of row i.
struct UpperLeft {
  std::int64_t columns, steps;
  std::int64_t steps_a_row = 1;
  std::int64_t FirstColumn(std::int64_t) const { return 0; }
  std::int64_t FirstStep(std::int64_t i) const { return std::min(i * steps_a_row, steps); }
  std::int64_t Steps(std::int64_t i, std::int64_t) const { return steps - FirstStep(i); }
};

/// A right factor that is zero after step j / columns_a_step of column j.
struct UpperRight {
  std::int64_t columns, steps;
  std::int64_t columns_a_step = 1;
  std::int64_t FirstColumn(std::int64_t) const { return 0; }
  std::int64_t FirstStep(std::int64_t) const { return 0; }
  std::int64_t Steps(std::int64_t, std::int64_t end_column) const {
    return std::min(steps, (end_column - 1) / columns_a_step + 1);
  }
};

/// to(i, j) = [from(i, j) +/-] sum_p left(i, p) right(p, j), for `rows` rows; `part` says which
/// columns, and steps of tiles that begin with row i and end before column j. `prefetcher`
/// fetches meanwhile, if given.
template <Into INTO, class T, class Part>
HWY_NOINLINE void Multiply(const Left<T>& left, const Block<T>& right, std::int64_t rows,
                           const Part& part, const Block<T>& from, const Block<T>& to,
                           simd::Prefetcher* prefetcher = nullptr) {
  const hn::ScalableTag<T> d;
  using D = decltype(d);
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t i = 0; i < rows; i += kTileRows) {
    const std::int64_t first = part.FirstColumn(i) / lanes * lanes;
    const T* const a = left.data + i * left.row + part.FirstStep(i) * left.step;
    const T* const b = right.Row(part.FirstStep(i));
    ForTiles(d, first, part.columns, [&](std::int64_t j, auto vectors) HWY_ATTR {
      if (prefetcher != nullptr) prefetcher->Fetch();
      const std::int64_t steps = part.Steps(i, j + vectors() * lanes);
      Tile<D, kTileRows, vectors()> tile;
      if constexpr (INTO == Into::kSet) {
        SetZero<D, kTileRows, vectors()>(d, tile);
      } else {
        LoadTile<D, kTileRows, vectors()>(d, from.Row(i) + j, from.stride, tile);
      }
      if constexpr (INTO == Into::kSubtract) {
        Accumulate<true, D, kTileRows, vectors()>(d, a, left.row, left.step, b + j, right.stride,
                                                  steps, tile);
      } else {
        Accumulate<false, D, kTileRows, vectors()>(d, a, left.row, left.step, b + j, right.stride,
                                                   steps, tile);
      }
      StoreTile<D, kTileRows, vectors()>(d, tile, to.Row(i) + j, to.stride);
    });
  }
}

/// to = / += / -= the product.
template <Into INTO, class T, class Part>
HWY_INLINE void Multiply(const Left<T>& left, const Block<T>& right, std::int64_t rows,
                         const Part& part, const Block<T>& to,
                         simd::Prefetcher* prefetcher = nullptr) {
  Multiply<INTO>(left, right, rows, part, to, to, prefetcher);
}

/// to = the transpose of `rows` rows of `columns` numbers, both multiples of kUnit.
template <class T>
HWY_INLINE void Transpose(const Block<T>& from, std::int64_t rows, std::int64_t columns,
                          const Block<T>& to) {
  sn::TransposeStrided(from.data, from.stride, rows, columns, to.data, to.stride);
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::linalg
HWY_AFTER_NAMESPACE();

#endif  // TTR_LINALG_BLOCKS_INL_H_
