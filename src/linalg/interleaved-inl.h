// Cholesky factors of many small systems side by side. Compiled once for every target.

#if defined(TTR_LINALG_INTERLEAVED_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_LINALG_INTERLEAVED_INL_H_
#undef TTR_LINALG_INTERLEAVED_INL_H_
#else
#define TTR_LINALG_INTERLEAVED_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"
#include "src/linalg/interleaved_sides-inl.h"
#include "src/linalg/panels-inl.h"
#include "src/simd/unroll.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::linalg {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// Columns of a square that stay in registers while products are subtracted from it.
#if HWY_TARGET <= HWY_AVX3 || HWY_TARGET == HWY_NEON
inline constexpr int kSquareColumns = 4;
#else
inline constexpr int kSquareColumns = 2;
#endif

/// Steps of a product before it goes on to the next rows: two panels of them, and those
/// that they meet, fit the first cache.
inline constexpr std::int64_t kPanelDepth = 32;

/// Columns (in panels) that are factored together: what they subtract is fetched once for all.
inline constexpr std::int64_t kPanelsWide = 2;

/// square -= sum over `steps` columns of the panels `rows` and `columns`, one times the other.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE void SubtractProduct(D d, const T* rows, const T* columns, std::int64_t steps,
                                Square<D>& square) {
  const std::size_t lanes = hn::Lanes(d);
  TTR_UNROLL
  for (int first = 0; first < kPanelRows; first += kSquareColumns) {
    const T* HWY_RESTRICT a = rows;
    const T* HWY_RESTRICT b = columns + static_cast<std::size_t>(first) * lanes;
    for (std::int64_t k = 0; k < steps; k += kPanelRows) {
      TTR_UNROLL
      for (std::size_t step = 0; step < kPanelRows; ++step) {
        hn::Vec<D> right[kSquareColumns];
        TTR_UNROLL
        for (std::size_t c = 0; c < kSquareColumns; ++c) {
          right[c] = hn::Load(d, b + (step * kPanelRows + c) * lanes);
        }
        TTR_UNROLL
        for (std::size_t r = 0; r < kPanelRows; ++r) {
          const hn::Vec<D> left = hn::Load(d, a + (step * kPanelRows + r) * lanes);
          TTR_UNROLL
          for (int c = 0; c < kSquareColumns; ++c) {
            square[r][first + c] = hn::NegMulAdd(left, right[c], square[r][first + c]);
          }
        }
      }
      a += kPanelRows * kPanelRows * lanes;
      b += kPanelRows * kPanelRows * lanes;
    }
  }
}

/// square <- square L^-T
template <class D>
HWY_INLINE void SolveSquare(const Triangle<D>& l, Square<D>& square) {
  TTR_UNROLL
  for (int j = 0; j < kPanelRows; ++j) {
    TTR_UNROLL
    for (int r = 0; r < kPanelRows; ++r) square[r][j] = hn::Mul(square[r][j], l.inverse[j]);
    TTR_UNROLL
    for (int c = 1; c < kPanelRows; ++c) {
      if (c <= j) continue;
      TTR_UNROLL
      for (int r = 0; r < kPanelRows; ++r) {
        square[r][c] = hn::NegMulAdd(square[r][j], l.lower[c][j], square[r][c]);
      }
    }
  }
}

/// The share of its diagonal that a pivot must leave, and the least diagonal.
template <class T>
struct PivotLimits {
  T share, least;
};

/// The square on a diagonal becomes L. `inverses` holds what the diagonal was, and gets the
/// reciprocals of L's. Lanes of a pivot beyond the limits are taken from `regular`.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE void FactorSquare(D d, const PivotLimits<T>& limits, T* inverses, Square<D>& square,
                             hn::Mask<D>& regular) {
  const std::size_t lanes = hn::Lanes(d);
  TTR_UNROLL
  for (int j = 0; j < kPanelRows; ++j) {
    T* const at = inverses + static_cast<std::size_t>(j) * lanes;
    const hn::Vec<D> diagonal = hn::Load(d, at);
    const hn::Vec<D> left = square[j][j];
    regular = hn::And(regular, hn::And(hn::Gt(left, hn::Mul(hn::Set(d, limits.share), diagonal)),
                                       hn::Gt(diagonal, hn::Set(d, limits.least))));
    const hn::Vec<D> inverse = hn::Div(hn::Set(d, T(1)), hn::Sqrt(left));
    hn::Store(inverse, d, at);
    TTR_UNROLL
    for (int r = 0; r < kPanelRows; ++r) {
      if (r >= j) square[r][j] = hn::Mul(square[r][j], inverse);
    }
    TTR_UNROLL
    for (int c = 1; c < kPanelRows; ++c) {
      if (c <= j) continue;
      TTR_UNROLL
      for (int r = 0; r < kPanelRows; ++r) {
        if (r >= c) square[r][c] = hn::NegMulAdd(square[r][j], square[c][j], square[r][c]);
      }
    }
  }
}

/// Cholesky: the matrices whose squares given(d, i, j, square) gives become L L^T, and the
/// right-hand sides L^-1 of what they were. `inverses` gets the reciprocals of L's diagonal.
/// Systems with a pivot beyond the limits are taken from `regular` (a vector of ones): what they
/// give is no number to use, and the other lanes do not see it.
template <class T, class Source>
HWY_NOINLINE void FactorInterleaved(const Source& given, const PivotLimits<T>& limits,
                                    const Panels<T>& l, T* inverses, const RightSides<T>& x,
                                    T* regular_lanes) {
  const SystemTag<T> d;
  using D = decltype(d);
  const std::size_t lanes = hn::Lanes(d);
  const Source source = given;  // a local one, which no store can change
  hn::Mask<D> regular = hn::Gt(hn::Load(d, regular_lanes), hn::Zero(d));
  for (std::int64_t j0 = 0; j0 < l.count; j0 += kPanelsWide) {
    const std::int64_t solved = j0 * kPanelRows;
    std::int64_t begin = 0;
    do {
      const std::int64_t end = std::min(begin + kPanelDepth, solved);
      const bool last = end == solved;
      for (std::int64_t i = j0; i < l.count; ++i) {
        for (std::int64_t j = j0; j < std::min(j0 + kPanelsWide, i + 1); ++j) {
          T* const diagonal = inverses + static_cast<std::size_t>(j * kPanelRows) * lanes;
          const std::size_t skip = static_cast<std::size_t>(begin * kPanelRows) * lanes;
          Square<D> square;
          if (begin > 0) {
            LoadSquare(d, l.At(i, j), square);
          } else {
            source(d, i, j, square);
            if (i == j) {
              TTR_UNROLL
              for (std::size_t r = 0; r < kPanelRows; ++r) {
                hn::Store(square[r][r], d, diagonal + r * lanes);
              }
            }
          }
          const std::int64_t steps = (last ? j * kPanelRows : end) - begin;
          SubtractProduct(d, l.Panel(i) + skip, l.Panel(j) + skip, steps, square);
          if (last && i == j) FactorSquare(d, limits, diagonal, square, regular);
          if (last && i > j) SolveSquare(Triangle<D>(d, l.At(j, j), diagonal), square);
          StoreSquare(d, square, l.At(i, j));
        }
      }
      begin = end;
    } while (begin < solved);
    for (std::int64_t j = j0; j < std::min(j0 + kPanelsWide, l.count); ++j) {
      ForSides(x.count, [&](std::int64_t first, auto sides)
                            HWY_ATTR { SolveDownPanel<sides()>(d, l, inverses, j, x, first); });
    }
  }
  hn::Store(hn::IfThenElseZero(regular, hn::Set(d, T(1))), d, regular_lanes);
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::linalg
HWY_AFTER_NAMESPACE();

#endif  // TTR_LINALG_INTERLEAVED_INL_H_
