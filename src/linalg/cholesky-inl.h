// Cholesky factors A = U^T U of blocks, and the triangular solves. Compiled once for every target.
//
// n^3 / 3 flops a factor, n^2 a solve and column. A factor stops where its caller says that a pivot
// is none (pivots-inl.h judges them).

#if defined(TTR_LINALG_CHOLESKY_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_LINALG_CHOLESKY_INL_H_
#undef TTR_LINALG_CHOLESKY_INL_H_
#else
#define TTR_LINALG_CHOLESKY_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "hwy/highway.h"
#include "src/linalg/block.h"
#include "src/linalg/blocks-inl.h"
#include "src/linalg/tile-inl.h"
#include "src/simd/prefetcher.h"
#include "src/simd/unroll.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::linalg {
namespace HWY_NAMESPACE {

using linalg::UpperFactor;

/// The triangle on the diagonal of a block of rows and the reciprocals of its diagonal, as the
/// solves in registers take it: upper[j][r] = U(i + j, i + r).
template <class T>
struct Corner {
  T upper[kTileRows][kTileRows];
  T inverse[kTileRows];
};

template <class T>
HWY_INLINE Corner<T>* CornersOf(const UpperFactor<T>& f) {
  static_assert(sizeof(Corner<T>) <= kCornerNumbers * kTileRows * sizeof(T));
  return reinterpret_cast<Corner<T>*>(f.corners);
}

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

/// Where a factorization stops: at pivot `index`, and what was left of it.
template <class T>
struct Pivot {
  std::int64_t index;
  T left;
};

/// Cholesky: the upper triangle of `f.u` (n rows, A at first) becomes U with A = U^T U; what is
/// below it is overwritten. n^3 / 3 flops. goes_on(i, diagonal, left) is
/// asked for every pivot, what A has there and what is left of it; where it says no, the factor
/// ends: rows before `index` are right, those of its block of rows and after it are not.
template <class T, class GoesOn>
HWY_NOINLINE Pivot<T> Factor(const UpperFactor<T>& f, std::int64_t n, const GoesOn& goes_on) {
  const Block<T> a = f.u;
  Corner<T>* const corners = CornersOf(f);
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
    // The reciprocals belong to the corner, not to what the solve left of it, so the corner is
    // stored.
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
/// Rows up to row i of column i columns_a_row, in a square of `n`: those of an upper triangle, or
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
/// ends before column j the first rows(j). `prefetcher`
/// fetches meanwhile, if given.
template <class T, class RowsOf>
HWY_NOINLINE void SubstituteDown(const UpperFactor<T>& f, const RowsOf& rows, const Block<T>& from,
                                 const Block<T>& x, std::int64_t columns,
                                 simd::Prefetcher* prefetcher = nullptr) {
  const Block<T> u = f.u;
  const Corner<T>* const corners = CornersOf(f);
  const hn::ScalableTag<T> d;
  using D = decltype(d);
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  ForTiles(d, 0, columns, [&](std::int64_t j, auto vectors) HWY_ATTR {
    const std::int64_t n = rows(j + vectors() * lanes);
    for (std::int64_t i = 0; i < n; i += kTileRows) {
      if (prefetcher != nullptr) prefetcher->Fetch();
      Tile<D, kTileRows, vectors()> tile;
      LoadTile<D, kTileRows, vectors()>(d, from.Row(i) + j, from.stride, tile);
      Accumulate<true, D, kTileRows, vectors()>(d, u.data + i, 1, u.stride, x.data + j, x.stride, i,
                                                tile);
      SolveDown<D, vectors()>(d, corners[i / kTileRows], tile);
      StoreTile<D, kTileRows, vectors()>(d, tile, x.Row(i) + j, x.stride);
    }
  });
}
/// x <- U^-T x, n rows.
template <class T>
HWY_INLINE void SubstituteDown(const UpperFactor<T>& f, std::int64_t n, const Block<T>& x,
                               std::int64_t columns, simd::Prefetcher* prefetcher = nullptr) {
  SubstituteDown(f, AllRows{n}, x, x, columns, prefetcher);
}

/// x <- U^-1 x, for `columns` of x; the rows of a strip that ends before column j are zero from
/// rows(j) on.
template <class T, class RowsOf>
HWY_NOINLINE void SubstituteUp(const UpperFactor<T>& f, const RowsOf& rows, const Block<T>& x,
                               std::int64_t columns) {
  const Block<T> u = f.u;
  const Corner<T>* const corners = CornersOf(f);
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
HWY_INLINE void SubstituteUp(const UpperFactor<T>& f, std::int64_t n, const Block<T>& x,
                             std::int64_t columns) {
  SubstituteUp(f, AllRows{n}, x, columns);
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::linalg
HWY_AFTER_NAMESPACE();

#endif  // TTR_LINALG_CHOLESKY_INL_H_
