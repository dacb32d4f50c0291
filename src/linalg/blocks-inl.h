// Products, Cholesky factors and triangular solves on blocks of rows. Compiled once for every
// target.
//
// A block is row-major and aligned; rows are counted in multiples of kTileRows and columns in whole
// vectors, so that there are no edges: who has fewer fills up with zeros (and ones on a diagonal).

#if defined(TTR_LINALG_BLOCKS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_LINALG_BLOCKS_INL_H_
#undef TTR_LINALG_BLOCKS_INL_H_
#else
#define TTR_LINALG_BLOCKS_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"
#include "src/linalg/tile-inl.h"
#include "src/simd/prefetcher.h"
#include "src/simd/strided-inl.h"
#include "src/simd/unroll.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::linalg {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace sn = ttr::simd::HWY_NAMESPACE;

/// A block in memory: element (i, j) at data[i stride + j].
template <class T>
struct Block {
  T* data = nullptr;
  std::int64_t stride = 0;

  T* Row(std::int64_t i) const { return data + i * stride; }
  /// Columns from j on.
  Block Columns(std::int64_t j) const { return {data + j, stride}; }
  Block Rows(std::int64_t i) const { return {Row(i), stride}; }
};

/// A left factor of any order: element (i, p) at data[i row + p step].
template <class T>
struct Left {
  const T* data = nullptr;
  std::int64_t row = 0;
  std::int64_t step = 0;

  static Left Of(const Block<T>& b) { return {b.data, b.stride, 1}; }
  static Left Transposed(const Block<T>& b) { return {b.data, 1, b.stride}; }
};

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

/// What a product does with what is there.
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
/// A left factor that is zero behind step i / rows_a_step of row i.
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

/// A right factor that is zero behind step j / columns_a_step of column j.
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
/// columns, and steps of tiles that begin with row i and end before column j. `ahead` is fetched
/// from meanwhile, if given.
template <Into INTO, class T, class Part>
HWY_NOINLINE void Multiply(const Left<T>& left, const Block<T>& right, std::int64_t rows,
                           const Part& part, const Block<T>& from, const Block<T>& to,
                           simd::Prefetcher* ahead = nullptr) {
  const hn::ScalableTag<T> d;
  using D = decltype(d);
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t i = 0; i < rows; i += kTileRows) {
    const std::int64_t first = part.FirstColumn(i) / lanes * lanes;
    const T* const a = left.data + i * left.row + part.FirstStep(i) * left.step;
    const T* const b = right.Row(part.FirstStep(i));
    ForTiles(d, first, part.columns, [&](std::int64_t j, auto vectors) HWY_ATTR {
      if (ahead != nullptr) ahead->Fetch();
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

/// to = / += / -= the same.
template <Into INTO, class T, class Part>
HWY_INLINE void Multiply(const Left<T>& left, const Block<T>& right, std::int64_t rows,
                         const Part& part, const Block<T>& to, simd::Prefetcher* ahead = nullptr) {
  Multiply<INTO>(left, right, rows, part, to, to, ahead);
}

/// The triangle on the diagonal of a block of rows and the reciprocals of its diagonal, as the
/// solves in registers take it: upper[j][r] = U(i + j, i + r).
template <class T>
struct Corner {
  T upper[kTileRows][kTileRows];
  T inverse[kTileRows];
};

/// tile <- U^-T tile, rows in order, column by column.
template <class D, int NV, class T = hn::TFromD<D>>
HWY_INLINE void SolveDown(D d, const Corner<T>& corner, Tile<D, kTileRows, NV>& tile) {
  TTR_UNROLL
  for (int j = 0; j < kTileRows; ++j) {
    const hn::Vec<D> inverse = hn::Set(d, corner.inverse[j]);
    TTR_UNROLL
    for (int v = 0; v < NV; ++v) tile[j][v] = hn::Mul(inverse, tile[j][v]);
    TTR_UNROLL
    for (int r = 1; r < kTileRows; ++r) {
      if (r <= j) continue;
      const hn::Vec<D> left = hn::Set(d, corner.upper[j][r]);
      TTR_UNROLL
      for (int v = 0; v < NV; ++v) tile[r][v] = hn::NegMulAdd(left, tile[j][v], tile[r][v]);
    }
  }
}

/// tile <- U^-1 tile, rows from the last to the first.
template <class D, int NV, class T = hn::TFromD<D>>
HWY_INLINE void SolveUp(D d, const Corner<T>& corner, Tile<D, kTileRows, NV>& tile) {
  TTR_UNROLL
  for (int j = kTileRows - 1; j >= 0; --j) {
    const hn::Vec<D> inverse = hn::Set(d, corner.inverse[j]);
    TTR_UNROLL
    for (int v = 0; v < NV; ++v) tile[j][v] = hn::Mul(inverse, tile[j][v]);
    TTR_UNROLL
    for (int r = 0; r < kTileRows - 1; ++r) {
      if (r >= j) continue;
      const hn::Vec<D> left = hn::Set(d, corner.upper[r][j]);
      TTR_UNROLL
      for (int v = 0; v < NV; ++v) tile[r][v] = hn::NegMulAdd(left, tile[j][v], tile[r][v]);
    }
  }
}

/// What stops a factorization: pivot i, and what was left of it.
template <class T>
struct Pivot {
  std::int64_t index;
  T left;
};

/// Cholesky: the upper triangle of `a` (n rows) becomes U with A = U^T U; what is below it is
/// overwritten. `corners` has room for one of every block of rows. goes_on(i, diagonal, left) is
/// asked for every pivot, what A has there and what is left of it; where it says no, the factor
/// ends: rows before `index` are right, those of its block of rows and behind it are not.
template <class T, class GoesOn>
HWY_NOINLINE Pivot<T> Factor(const Block<T>& a, std::int64_t n, Corner<T>* corners,
                             const GoesOn& goes_on) {
  const hn::ScalableTag<T> d;
  using D = decltype(d);
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  constexpr int kMost = static_cast<int>(hn::MaxLanes(hn::ScalableTag<T>()));
  constexpr int kVectors = (kTileRows + kMost - 1) / kMost;  // that hold a corner
  for (std::int64_t i = 0; i < n; i += kTileRows) {
    HWY_ALIGN T row[kVectors * kMost];
    Corner<T>& corner = corners[i / kTileRows];
    {
      Tile<D, kTileRows, kVectors> tile;
      const T* const top = a.data + i;
      LoadTile<D, kTileRows, kVectors>(d, a.Row(i) + i, a.stride, tile);
      T diagonal[kTileRows];
      for (int r = 0; r < kTileRows; ++r) diagonal[r] = a.Row(i + r)[i + r];
      Accumulate<true, D, kTileRows, kVectors>(d, top, 1, a.stride, top, a.stride, i, tile);
      TTR_UNROLL
      for (int j = 0; j < kTileRows; ++j) {
        TTR_UNROLL
        for (int v = 0; v < kVectors; ++v) hn::Store(tile[j][v], d, row + v * lanes);
        const T left = row[j];
        if (!goes_on(i + j, diagonal[j], left)) return {i + j, left};
        const T root = std::sqrt(left);
        corner.inverse[j] = T(1) / root;
        const hn::Vec<D> pivot = hn::Set(d, root);
        TTR_UNROLL
        for (int v = 0; v < kVectors; ++v) {
          tile[j][v] = hn::Div(tile[j][v], pivot);
          hn::Store(tile[j][v], d, row + v * lanes);
        }
        TTR_UNROLL
        for (int s = 1; s < kTileRows; ++s) {
          if (s <= j) continue;
          const hn::Vec<D> factor = hn::Set(d, row[s]);
          TTR_UNROLL
          for (int v = 0; v < kVectors; ++v) {
            tile[s][v] = hn::NegMulAdd(factor, tile[j][v], tile[s][v]);
          }
        }
        std::copy(row + j, row + kTileRows, corner.upper[j] + j);
      }
    }
    ForTiles(d, i / lanes * lanes, n, [&](std::int64_t j, auto vectors) HWY_ATTR {
      Tile<D, kTileRows, vectors()> tile;
      LoadTile<D, kTileRows, vectors()>(d, a.Row(i) + j, a.stride, tile);
      Accumulate<true, D, kTileRows, vectors()>(d, a.data + i, 1, a.stride, a.data + j, a.stride, i,
                                                tile);
      SolveDown<D, vectors()>(d, corner, tile);
      StoreTile<D, kTileRows, vectors()>(d, tile, a.Row(i) + j, a.stride);
    });
    // The corner is what the reciprocals belong to, not what the solve left of it.
    for (int j = 0; j < kTileRows; ++j) {
      for (int r = j; r < kTileRows; ++r) a.Row(i + j)[i + r] = corner.upper[j][r];
    }
  }
  return {n, T(0)};
}

/// All `n` rows of every strip of columns.
struct AllRows {
  std::int64_t n;
  std::int64_t operator()(std::int64_t) const { return n; }
};
/// Those up to row i of column i columns_a_row, in a square of `n`: of an upper triangle, or of
/// what is needed of one.
struct UpperRows {
  std::int64_t n;
  std::int64_t columns_a_row = 1;
  std::int64_t operator()(std::int64_t end_column) const {
    const std::int64_t rows = (end_column - 1) / columns_a_row + 1;
    return std::min(n, (rows + kTileRows - 1) / kTileRows * kTileRows);
  }
};

/// x = U^-T from, for `columns` of x, strip by strip so that a strip stays close; of a strip that
/// ends before column j the first rows(j). `ahead` as above.
template <class T, class RowsOf>
HWY_NOINLINE void SubstituteDown(const Block<T>& u, const RowsOf& rows, const Corner<T>* corners,
                                 const Block<T>& from, const Block<T>& x, std::int64_t columns,
                                 simd::Prefetcher* ahead = nullptr) {
  const hn::ScalableTag<T> d;
  using D = decltype(d);
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  ForTiles(d, 0, columns, [&](std::int64_t j, auto vectors) HWY_ATTR {
    const std::int64_t n = rows(j + vectors() * lanes);
    for (std::int64_t i = 0; i < n; i += kTileRows) {
      if (ahead != nullptr) ahead->Fetch();
      Tile<D, kTileRows, vectors()> tile;
      LoadTile<D, kTileRows, vectors()>(d, from.Row(i) + j, from.stride, tile);
      Accumulate<true, D, kTileRows, vectors()>(d, u.data + i, 1, u.stride, x.data + j, x.stride, i,
                                                tile);
      SolveDown<D, vectors()>(d, corners[i / kTileRows], tile);
      StoreTile<D, kTileRows, vectors()>(d, tile, x.Row(i) + j, x.stride);
    }
  });
}
/// x = U^-T from, and x <- U^-T x, n rows.
template <class T>
HWY_INLINE void SubstituteDown(const Block<T>& u, std::int64_t n, const Corner<T>* corners,
                               const Block<T>& from, const Block<T>& x, std::int64_t columns,
                               simd::Prefetcher* ahead = nullptr) {
  SubstituteDown(u, AllRows{n}, corners, from, x, columns, ahead);
}
template <class T>
HWY_INLINE void SubstituteDown(const Block<T>& u, std::int64_t n, const Corner<T>* corners,
                               const Block<T>& x, std::int64_t columns,
                               simd::Prefetcher* ahead = nullptr) {
  SubstituteDown(u, AllRows{n}, corners, x, x, columns, ahead);
}

/// x <- U^-1 x, for `columns` of x; the rows of a strip that ends before column j are zero from
/// rows(j) on.
template <class T, class RowsOf>
HWY_NOINLINE void SubstituteUp(const Block<T>& u, const RowsOf& rows, const Corner<T>* corners,
                               const Block<T>& x, std::int64_t columns) {
  const hn::ScalableTag<T> d;
  using D = decltype(d);
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  ForTiles(d, 0, columns, [&](std::int64_t j, auto vectors) HWY_ATTR {
    const std::int64_t n = rows(j + vectors() * lanes);
    for (std::int64_t i = n - kTileRows; i >= 0; i -= kTileRows) {
      const std::int64_t next = i + kTileRows;
      Tile<D, kTileRows, vectors()> tile;
      LoadTile<D, kTileRows, vectors()>(d, x.Row(i) + j, x.stride, tile);
      Accumulate<true, D, kTileRows, vectors()>(d, u.Row(i) + next, u.stride, 1, x.Row(next) + j,
                                                x.stride, n - next, tile);
      SolveUp<D, vectors()>(d, corners[i / kTileRows], tile);
      StoreTile<D, kTileRows, vectors()>(d, tile, x.Row(i) + j, x.stride);
    }
  });
}

/// x <- U^-1 x, n rows.
template <class T>
HWY_INLINE void SubstituteUp(const Block<T>& u, std::int64_t n, const Corner<T>* corners,
                             const Block<T>& x, std::int64_t columns) {
  SubstituteUp(u, AllRows{n}, corners, x, columns);
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::linalg
HWY_AFTER_NAMESPACE();

#endif  // TTR_LINALG_BLOCKS_INL_H_
