// Cholesky factors and triangular solves of many small systems side by side: every lane of a vector
// has a system of its own, so that no operation but whole vectors' occurs. Compiled once for every
// target.

#if defined(TTR_SIMD_INTERLEAVED_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_SIMD_INTERLEAVED_INL_H_
#undef TTR_SIMD_INTERLEAVED_INL_H_
#else
#define TTR_SIMD_INTERLEAVED_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"
#include "src/simd/interleaved.h"
#include "src/simd/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::simd {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

template <class T>
using SystemTag = hn::CappedTag<T, static_cast<std::size_t>(kMostSystems<T>)>;

/// How many systems lie side by side.
template <class T>
HWY_INLINE std::int64_t SystemsAtOnce() {
  return static_cast<std::int64_t>(hn::Lanes(SystemTag<T>()));
}

/// Four rows and four columns of every system: element [row][column].
template <class D>
using Square = Tile<D, kPanelRows, kPanelRows>;

/// Columns of a square that stay in registers while products are subtracted from it.
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_NEON
inline constexpr int kSquareColumns = 4;
#else
inline constexpr int kSquareColumns = 2;
#endif

/// Steps of a product that pass before it turns to the next rows: two panels of them, and those
/// that they meet, fit the first cache.
inline constexpr std::int64_t kPanelDepth = 32;

/// Columns (in panels) that are factored together: what they subtract is fetched once for all.
inline constexpr std::int64_t kPanelsWide = 2;

/// Matrices in panels.
template <class T>
struct Panels {
  T* data = nullptr;
  std::int64_t count = 0;

  T* Panel(std::int64_t i) const { return data + VectorsBefore(i) * SystemsAtOnce<T>(); }
  /// Rows of panel i, columns of panel j <= i.
  T* At(std::int64_t i, std::int64_t j) const {
    return Panel(i) + j * kPanelRows * kPanelRows * SystemsAtOnce<T>();
  }
};

template <class D, class T = hn::TFromD<D>>
HWY_INLINE void LoadSquare(D d, const T* from, Square<D>& square) {
  const std::size_t lanes = hn::Lanes(d);
  TTR_UNROLL
  for (std::size_t c = 0; c < kPanelRows; ++c) {
    TTR_UNROLL
    for (std::size_t r = 0; r < kPanelRows; ++r) {
      square[r][c] = hn::Load(d, from + (c * kPanelRows + r) * lanes);
    }
  }
}

template <class D, class T = hn::TFromD<D>>
HWY_INLINE void StoreSquare(D d, const Square<D>& square, T* to) {
  const std::size_t lanes = hn::Lanes(d);
  TTR_UNROLL
  for (std::size_t c = 0; c < kPanelRows; ++c) {
    TTR_UNROLL
    for (std::size_t r = 0; r < kPanelRows; ++r) {
      hn::Store(square[r][c], d, to + (c * kPanelRows + r) * lanes);
    }
  }
}

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

/// The triangle on the diagonal of a factor: lower[c][j], j < c, and the diagonal's reciprocals.
template <class D>
struct Triangle {
  Square<D> lower;
  hn::Vec<D> inverse[kPanelRows];

  template <class T>
  HWY_INLINE Triangle(D d, const T* square, const T* inverses) {
    const std::size_t lanes = hn::Lanes(d);
    TTR_UNROLL
    for (std::size_t j = 0; j < kPanelRows; ++j) {
      inverse[j] = hn::Load(d, inverses + j * lanes);
      TTR_UNROLL
      for (std::size_t c = 0; c < kPanelRows; ++c) {
        if (c > j) lower[c][j] = hn::Load(d, square + (j * kPanelRows + c) * lanes);
      }
    }
  }
};

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

/// What a pivot must leave of its diagonal, as a share; and the least diagonal.
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

/// Right-hand sides of all systems: element i of the r-th at data[(r stride + i) systems].
template <class T>
struct RightSides {
  T* data = nullptr;
  std::int64_t stride = 0;
  std::int64_t count = 0;

  T* Side(std::int64_t r) const { return data + r * stride * SystemsAtOnce<T>(); }
};

/// Calls sides(first, how many as a constant): two right-hand sides at a time.
template <class Sides>
HWY_INLINE void ForSides(std::int64_t count, const Sides& sides) {
  std::int64_t r = 0;
  for (; r + 2 <= count; r += 2) sides(r, std::integral_constant<int, 2>());
  if (r < count) sides(r, std::integral_constant<int, 1>());
}

/// Elements of panel j of NS right-hand sides, those before which are solved: x <- L^-1 x.
template <int NS, class D, class T = hn::TFromD<D>>
HWY_INLINE void SolveDownPanel(D d, const Panels<T>& l, const T* inverses, std::int64_t j,
                               const RightSides<T>& x, std::int64_t first) {
  const std::size_t lanes = hn::Lanes(d);
  // Even and odd steps are summed apart, or few right-hand sides would wait for each other.
  hn::Vec<D> sums[2][NS][kPanelRows];
  T* at[NS];
  TTR_UNROLL
  for (int s = 0; s < NS; ++s) {
    at[s] = x.Side(first + s) + static_cast<std::size_t>(j * kPanelRows) * lanes;
    TTR_UNROLL
    for (std::size_t r = 0; r < kPanelRows; ++r) {
      sums[0][s][r] = hn::Load(d, at[s] + r * lanes);
      sums[1][s][r] = hn::Zero(d);
    }
  }
  const T* HWY_RESTRICT panel = l.Panel(j);
  for (std::int64_t k = 0; k < j * kPanelRows; k += 2) {
    TTR_UNROLL
    for (std::size_t odd = 0; odd < 2; ++odd) {
      hn::Vec<D> solved[NS];
      TTR_UNROLL
      for (int s = 0; s < NS; ++s) {
        solved[s] = hn::Load(d, x.Side(first + s) + (static_cast<std::size_t>(k) + odd) * lanes);
      }
      TTR_UNROLL
      for (std::size_t r = 0; r < kPanelRows; ++r) {
        const hn::Vec<D> left = hn::Load(d, panel + (odd * kPanelRows + r) * lanes);
        TTR_UNROLL
        for (int s = 0; s < NS; ++s) {
          sums[odd][s][r] = hn::NegMulAdd(left, solved[s], sums[odd][s][r]);
        }
      }
    }
    panel += 2 * kPanelRows * lanes;
  }
  const Triangle<D> triangle(d, l.At(j, j),
                             inverses + static_cast<std::size_t>(j * kPanelRows) * lanes);
  TTR_UNROLL
  for (int s = 0; s < NS; ++s) {
    hn::Vec<D> y[kPanelRows];
    TTR_UNROLL
    for (int r = 0; r < kPanelRows; ++r) y[r] = hn::Add(sums[0][s][r], sums[1][s][r]);
    TTR_UNROLL
    for (int c = 0; c < kPanelRows; ++c) {
      y[c] = hn::Mul(y[c], triangle.inverse[c]);
      TTR_UNROLL
      for (int r = 1; r < kPanelRows; ++r) {
        if (r > c) y[r] = hn::NegMulAdd(triangle.lower[r][c], y[c], y[r]);
      }
      hn::Store(y[c], d, at[s] + static_cast<std::size_t>(c) * lanes);
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

/// x <- L^-T x
template <class T>
HWY_NOINLINE void SubstituteUpInterleaved(const Panels<T>& l, const T* inverses,
                                          const RightSides<T>& x) {
  const SystemTag<T> d;
  using D = decltype(d);
  const std::size_t lanes = hn::Lanes(d);
  ForSides(x.count, [&](std::int64_t first, auto sides) HWY_ATTR {
    constexpr int kSides = sides();
    for (std::int64_t i = l.count - 1; i >= 0; --i) {
      const std::size_t before = static_cast<std::size_t>(i * kPanelRows);
      const Triangle<D> triangle(d, l.At(i, i), inverses + before * lanes);
      hn::Vec<D> solved[kSides][kPanelRows];
      TTR_UNROLL
      for (int s = 0; s < kSides; ++s) {
        T* const at = x.Side(first + s) + before * lanes;
        TTR_UNROLL
        for (std::size_t r = 0; r < kPanelRows; ++r) solved[s][r] = hn::Load(d, at + r * lanes);
        TTR_UNROLL
        for (int c = kPanelRows - 1; c >= 0; --c) {
          solved[s][c] = hn::Mul(solved[s][c], triangle.inverse[c]);
          TTR_UNROLL
          for (int r = 0; r < kPanelRows - 1; ++r) {
            if (r < c) {
              solved[s][r] = hn::NegMulAdd(triangle.lower[c][r], solved[s][c], solved[s][r]);
            }
          }
          hn::Store(solved[s][c], d, at + static_cast<std::size_t>(c) * lanes);
        }
      }
      const T* HWY_RESTRICT panel = l.Panel(i);
      for (std::size_t k = 0; k < before; ++k) {
        hn::Vec<D> left[kPanelRows];
        TTR_UNROLL
        for (std::size_t r = 0; r < kPanelRows; ++r) left[r] = hn::Load(d, panel + r * lanes);
        TTR_UNROLL
        for (int s = 0; s < kSides; ++s) {
          T* const at = x.Side(first + s) + k * lanes;
          hn::Vec<D> sum = hn::Load(d, at);
          TTR_UNROLL
          for (int r = 0; r < kPanelRows; ++r) sum = hn::NegMulAdd(left[r], solved[s][r], sum);
          hn::Store(sum, d, at);
        }
        panel += kPanelRows * lanes;
      }
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::simd
HWY_AFTER_NAMESPACE();

#endif  // TTR_SIMD_INTERLEAVED_INL_H_
