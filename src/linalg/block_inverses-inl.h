// Inverses of small symmetric matrices, some of them side by side. Compiled once for every target.

#if defined(TTR_LINALG_BLOCK_INVERSES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_LINALG_BLOCK_INVERSES_INL_H_
#undef TTR_LINALG_BLOCK_INVERSES_INL_H_
#else
#define TTR_LINALG_BLOCK_INVERSES_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "hwy/highway.h"
#include "src/linalg/block_inverses.h"
#include "src/linalg/minimum_norm.h"
#include "src/linalg/rounding.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::linalg {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// Lanes are matrices.
using BlockLanes = double[kBlocksTogether];

/// Calls each(tag, lane) for all of them, a vector at a time.
template <class Each>
HWY_INLINE void ForLanes(const Each& each) {
  const hn::CappedTag<double, kBlocksTogether> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t l = 0; l < kBlocksTogether; l += lanes) each(d, l);
}

/// Element (i, j) of kBlocksTogether matrices of n rows, one after another in memory.
class LaneMatrix {
 public:
  LaneMatrix(double* numbers, std::int64_t n) : numbers_(numbers), n_(n) {}
  double* At(std::int64_t i, std::int64_t j) const {
    return numbers_ + (i * n_ + j) * kBlocksTogether;
  }

 private:
  double* numbers_;
  std::int64_t n_;
};

/// to = 1 / sqrt(x), of what is positive and no denormal number.
HWY_INLINE void InverseRoots(const double* x, double* to) {
  ForLanes([&](auto d, std::int64_t l) HWY_ATTR {
    const auto positive = hn::Max(hn::LoadU(d, x + l), hn::Set(d, 1e-300));
    hn::StoreU(hn::Div(hn::Set(d, 1.0), hn::Sqrt(positive)), d, to + l);
  });
}

/// Matrices of ones on their diagonals (lower triangles) become their inverses (upper triangles).
/// `least` is the smallest pivot of each; where that is not positive, so is no result.
HWY_INLINE void InvertLanes(const LaneMatrix& a, std::int64_t n, BlockLanes& least) {
  std::fill(least, least + kBlocksTogether, 1.0);
  // L, its diagonal inverted, row by row from those above.
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::int64_t j = 0; j <= i; ++j) {
      ForLanes([&](auto d, std::int64_t l) HWY_ATTR {
        auto left = hn::LoadU(d, a.At(i, j) + l);
        for (std::int64_t c = 0; c < j; ++c) {
          left = hn::NegMulAdd(hn::LoadU(d, a.At(i, c) + l), hn::LoadU(d, a.At(j, c) + l), left);
        }
        if (j < i) left = hn::Mul(left, hn::LoadU(d, a.At(j, j) + l));
        hn::StoreU(left, d, a.At(i, j) + l);
      });
    }
    double* const pivot = a.At(i, i);
    for (int l = 0; l < kBlocksTogether; ++l) {
      least[l] = pivot[l] < least[l] || pivot[l] != pivot[l] ? pivot[l] : least[l];
    }
    InverseRoots(pivot, pivot);
  }
  // M = L^-1, column by column: M_ij = -(sum_{j <= c < i} L_ic M_cj) / L_ii. L_ij is read for the
  // last time in its own sum.
  for (std::int64_t j = 0; j < n; ++j) {
    for (std::int64_t i = j + 1; i < n; ++i) {
      ForLanes([&](auto d, std::int64_t l) HWY_ATTR {
        auto sum = hn::Zero(d);
        for (std::int64_t c = j; c < i; ++c) {
          sum = hn::NegMulAdd(hn::LoadU(d, a.At(i, c) + l), hn::LoadU(d, a.At(c, j) + l), sum);
        }
        hn::StoreU(hn::Mul(sum, hn::LoadU(d, a.At(i, i) + l)), d, a.At(i, j) + l);
      });
    }
  }
  // M^T M: element (j, i), j <= i, reads rows i and below, whose lower triangle is still M's.
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::int64_t j = 0; j <= i; ++j) {
      ForLanes([&](auto d, std::int64_t l) HWY_ATTR {
        auto sum = hn::Zero(d);
        for (std::int64_t c = i; c < n; ++c) {
          sum = hn::MulAdd(hn::LoadU(d, a.At(c, i) + l), hn::LoadU(d, a.At(c, j) + l), sum);
        }
        hn::StoreU(sum, d, a.At(j, i) + l);
      });
    }
  }
}

/// The inverses of the diagonal blocks of a symmetric matrix, of the singular ones the
/// pseudo-inverses, as the definition has them. `element(begin, i, c)`, c <= i, is that of
/// channels begin + i and begin + c of the block that starts at `begin`. Row i of `to`, `block`
/// numbers, is what channel i of a vector adds to each channel of its block.
template <class T>
class BlockInverses {
 public:
  /// `work`: BlockInverseNumbers(block).
  BlockInverses(std::int64_t size, std::int64_t block, double* work)
      : size_(size),
        block_(block),
        matrix_(work, block),
        scale_(work + block * block * kBlocksTogether) {}

  template <class Element>
  void Invert(const Element& element, T* to) const {
    for (std::int64_t first = 0; first < size_; first += kBlocksTogether * block_) {
      Gather(element, first);
      BlockLanes least;
      InvertLanes(matrix_, block_, least);
      for (std::int64_t l = 0; l < kBlocksTogether; ++l) {
        const std::int64_t begin = first + l * block_;
        const std::int64_t n = std::min(block_, size_ - begin);
        if (n <= 0) break;
        T* const rows = to + begin * block_;
        // A block near the margin is judged with pivots in order. So is one with a pivot so small
        // that rounding may have left another as large after it (pivots-inl.h).
        if (least[l] > std::max(16 * Rounding<T>(n), std::sqrt(Rounding<T>(1)))) {
          Scatter(l, n, rows);
        } else {
          InvertByMinimumNorm(element, begin, n, rows);
        }
      }
    }
  }

 private:
  double* Scale(std::int64_t i) const { return scale_ + i * kBlocksTogether; }

  /// Blocks are scaled to ones on their diagonals: a channel of small keys is not mistaken for a
  /// missing one.
  template <class Element>
  void Gather(const Element& element, std::int64_t first) const {
    for (std::int64_t i = 0; i < block_; ++i) {
      for (std::int64_t l = 0; l < kBlocksTogether; ++l) {
        const std::int64_t begin = first + l * block_;
        const bool there = begin + i < size_;
        for (std::int64_t c = 0; c < i; ++c) {
          matrix_.At(i, c)[l] = there ? element(begin, i, c) : 0;
        }
        matrix_.At(i, i)[l] = there ? element(begin, i, i) : 1;
      }
      double* const scale = Scale(i);
      double* const diagonal = matrix_.At(i, i);
      InverseRoots(diagonal, scale);
      for (std::int64_t l = 0; l < kBlocksTogether; ++l) {
        const bool there = diagonal[l] > kFaded<T>;
        scale[l] = there ? scale[l] : 0;
        diagonal[l] = there ? 1 : 0;
      }
      for (std::int64_t c = 0; c < i; ++c) {
        for (std::int64_t l = 0; l < kBlocksTogether; ++l) {
          matrix_.At(i, c)[l] *= Scale(i)[l] * Scale(c)[l];
        }
      }
    }
  }

  void Scatter(std::int64_t lane, std::int64_t n, T* rows) const {
    for (std::int64_t i = 0; i < n; ++i) {
      for (std::int64_t c = 0; c < n; ++c) {
        const double x = matrix_.At(std::min(i, c), std::max(i, c))[lane];
        rows[i * block_ + c] = static_cast<T>(x * Scale(i)[lane] * Scale(c)[lane]);
      }
    }
  }

  template <class Element>
  void InvertByMinimumNorm(const Element& element, std::int64_t begin, std::int64_t n,
                           T* rows) const {
    const auto count = static_cast<std::size_t>(n);
    std::vector<double> a(count * count), unit(count), column(count);
    for (std::int64_t i = 0; i < n; ++i) {
      for (std::int64_t c = 0; c <= i; ++c) {
        a[i * n + c] = a[c * n + i] = element(begin, i, c);
      }
    }
    MinimumNorm solver;
    solver.Factor(n, a.data(), Rounding<T>(n), kFaded<T>);
    for (std::int64_t i = 0; i < n; ++i) {
      unit[i] = 1;
      solver.Solve(unit.data(), column.data());
      unit[i] = 0;
      for (std::int64_t c = 0; c < n; ++c) rows[i * block_ + c] = static_cast<T>(column[c]);
    }
  }

  std::int64_t size_, block_;
  LaneMatrix matrix_;
  double* scale_;
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::linalg
HWY_AFTER_NAMESPACE();

#endif  // TTR_LINALG_BLOCK_INVERSES_INL_H_
