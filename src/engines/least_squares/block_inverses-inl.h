// Inverses of small symmetric matrices, some of them side by side. Compiled once for every target.

#if defined(TTR_LEAST_SQUARES_BLOCK_INVERSES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_LEAST_SQUARES_BLOCK_INVERSES_INL_H_
#undef TTR_LEAST_SQUARES_BLOCK_INVERSES_INL_H_
#else
#define TTR_LEAST_SQUARES_BLOCK_INVERSES_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "hwy/highway.h"
#include "src/engines/least_squares/iteration_scratch.h"
#include "src/engines/least_squares/layout.h"
#include "src/engines/least_squares/minimum_norm.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::least_squares {
namespace HWY_NAMESPACE {

/// Lanes are matrices. Loops over them are plain, and the compiler vectorises them.
using Lanes = double[kBlocksTogether];

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

/// Matrices of ones on their diagonals (lower triangles) become their inverses (whole). `least` is
/// the smallest pivot of each; where that is not positive, so is no result.
HWY_INLINE void InvertLanes(const LaneMatrix& a, std::int64_t n, Lanes& least) {
  std::fill(least, least + kBlocksTogether, 1.0);
  // L, its diagonal inverted.
  for (std::int64_t j = 0; j < n; ++j) {
    double* const pivot = a.At(j, j);
    for (int l = 0; l < kBlocksTogether; ++l) {
      least[l] = std::min(least[l], pivot[l] == pivot[l] ? pivot[l] : -1);
      pivot[l] = 1 / std::sqrt(std::max(pivot[l], 1e-300));
    }
    for (std::int64_t i = j + 1; i < n; ++i) {
      double* const below = a.At(i, j);
      for (int l = 0; l < kBlocksTogether; ++l) below[l] *= pivot[l];
    }
    for (std::int64_t i = j + 1; i < n; ++i) {
      const double* const left = a.At(i, j);
      for (std::int64_t c = j + 1; c <= i; ++c) {
        const double* const right = a.At(c, j);
        double* const to = a.At(i, c);
        for (int l = 0; l < kBlocksTogether; ++l) to[l] -= left[l] * right[l];
      }
    }
  }
  // M = L^-1, column by column: M_ij = -(sum_{j <= c < i} L_ic M_cj) / L_ii.
  for (std::int64_t j = 0; j < n; ++j) {
    for (std::int64_t i = j + 1; i < n; ++i) {
      Lanes sum = {};
      for (std::int64_t c = j; c < i; ++c) {
        const double* const left = a.At(i, c);
        const double* const right = a.At(c, j);
        for (int l = 0; l < kBlocksTogether; ++l) sum[l] += left[l] * right[l];
      }
      // L_ij is read for the last time in this sum; the later ones of row i start behind it.
      double* const to = a.At(i, j);
      const double* const inverse = a.At(i, i);
      for (int l = 0; l < kBlocksTogether; ++l) to[l] = -sum[l] * inverse[l];
    }
  }
  // M^T M: element (i, j), i >= j, reads rows i and below, which are still M's.
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::int64_t j = 0; j <= i; ++j) {
      Lanes sum = {};
      for (std::int64_t c = i; c < n; ++c) {
        const double* const left = a.At(c, i);
        const double* const right = a.At(c, j);
        for (int l = 0; l < kBlocksTogether; ++l) sum[l] += left[l] * right[l];
      }
      for (int l = 0; l < kBlocksTogether; ++l) a.At(j, i)[l] = sum[l];
    }
  }
}

/// The inverses of the diagonal blocks of a symmetric matrix, of the singular ones the
/// pseudo-inverses, as the definition has them. `element(i, c)`, c <= i, is that of channels i and
/// c of the same block. Row i of `to`, `block` numbers, is what channel i of a vector adds to each
/// channel of its block. `work` holds block + 1 rows of blocks, lane by lane.
template <class T>
class BlockInverses {
 public:
  BlockInverses(std::int64_t size, std::int64_t block, double* work)
      : size_(size),
        block_(block),
        matrix_(work, block),
        scale_(work + block * block * kBlocksTogether) {}

  template <class Element>
  void Invert(const Element& element, T* to) const {
    for (std::int64_t first = 0; first < size_; first += kBlocksTogether * block_) {
      Gather(element, first);
      Lanes least;
      InvertLanes(matrix_, block_, least);
      for (std::int64_t l = 0; l < kBlocksTogether; ++l) {
        const std::int64_t begin = first + l * block_;
        const std::int64_t n = std::min(block_, size_ - begin);
        if (n <= 0) break;
        T* const rows = to + begin * block_;
        // Who is near the margin is judged with pivots in order.
        if (least[l] > 16 * Rounding<T>(n)) {
          Scatter(l, n, rows);
        } else {
          InvertCarefully(element, begin, n, rows);
        }
      }
    }
  }

 private:
  double* Scale(std::int64_t i) const { return scale_ + i * kBlocksTogether; }

  /// Scaled to ones on the diagonals: a channel of small keys is not mistaken for a missing one.
  template <class Element>
  void Gather(const Element& element, std::int64_t first) const {
    for (std::int64_t i = 0; i < block_; ++i) {
      for (std::int64_t l = 0; l < kBlocksTogether; ++l) {
        const std::int64_t begin = first + l * block_;
        const bool there = begin + i < size_;
        for (std::int64_t c = 0; c < i; ++c) {
          matrix_.At(i, c)[l] = there ? element(begin + i, begin + c) : 0;
        }
        const double diagonal = there ? element(begin + i, begin + i) : 1;
        Scale(i)[l] = diagonal > kFaded<T> ? 1 / std::sqrt(diagonal) : 0;
        matrix_.At(i, i)[l] = diagonal > kFaded<T> ? 1 : 0;
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
  void InvertCarefully(const Element& element, std::int64_t begin, std::int64_t n, T* rows) const {
    const auto count = static_cast<std::size_t>(n);
    std::vector<double> a(count * count), unit(count), column(count);
    for (std::int64_t i = 0; i < n; ++i) {
      for (std::int64_t c = 0; c <= i; ++c) {
        a[i * n + c] = a[c * n + i] = element(begin + i, begin + c);
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
}  // namespace ttr::least_squares
HWY_AFTER_NAMESPACE();

#endif  // TTR_LEAST_SQUARES_BLOCK_INVERSES_INL_H_
