// Symmetric matrices to tridiagonal ones by reflections, in double. Compiled once for every target.

#if defined(TTR_LINALG_TRIDIAGONAL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_LINALG_TRIDIAGONAL_INL_H_
#undef TTR_LINALG_TRIDIAGONAL_INL_H_
#else
#define TTR_LINALG_TRIDIAGONAL_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>

#include "hwy/highway.h"
#include "src/linalg/block.h"
#include "src/linalg/blocks-inl.h"
#include "src/linalg/eigensystems.h"
#include "src/simd/vector_map-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::linalg {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace sn = ttr::simd::HWY_NAMESPACE;

/// A = Q T Q^T, T tridiagonal, Q = H_0 .. H_{n-3} of reflections H_k = I - tau_k v_k v_k^T, v_k = 0
/// up to entry k: 4/3 n^3 flops. One matrix in each lane of T, whose numbers are side by side.
/// Source: Golub, Van Loan, Matrix Computations, 8.3.
class Tridiagonal {
 public:
  using Tag = hn::CappedTag<double, kEigensystemsTogether>;
  using Vec = hn::Vec<Tag>;

  Tridiagonal(std::int64_t size, const EigenScratch& scratch)
      : n_(size), stride_(RoundUp(size, kUnit)), s_(scratch) {}

  /// Matrices side by side, at the most; also the lanes of a vector.
  static std::int64_t Together() { return static_cast<std::int64_t>(hn::Lanes(Tag())); }

  /// Matrix `lane`: `element(i, j)`, j <= i. All eigenvalues of one that is not finite are NaN.
  template <class Element>
  void Load(std::int64_t lane, const Element& element) const {
    double* const a = Row(lane, 0);
    std::fill(a, a + stride_ * stride_, 0.0);
    double largest = 0;
    bool finite = true;
    for (std::int64_t i = 0; i < n_; ++i) {
      for (std::int64_t j = 0; j <= i; ++j) {
        const double x = element(i, j);
        a[i * stride_ + j] = a[j * stride_ + i] = x;
        largest = std::max(largest, std::abs(x));
        finite &= std::isfinite(x);
      }
    }
    s_.scale[lane] = largest > 0 ? largest : 1;  // squares neither overflow nor vanish
    for (std::int64_t i = 0; i < stride_ * stride_; ++i) a[i] /= s_.scale[lane];
    if (!finite) {
      std::fill(a, a + stride_ * stride_, 0.0);
      s_.scale[lane] = std::numeric_limits<double>::quiet_NaN();
    }
    Reduce(lane);
  }

  /// T is held with its last row first: reflections leave small numbers there, and QL steps that
  /// begin with these are few.
  std::int64_t Reversed(std::int64_t row) const { return n_ - 1 - row; }
  double* Diagonal(std::int64_t i, std::int64_t lane) const {
    return s_.diagonal + i * Together() + lane;
  }
  /// T's element (i, i + 1).
  double* OffDiagonal(std::int64_t i, std::int64_t lane) const {
    return s_.off_diagonal + i * Together() + lane;
  }

  /// columns -= tau v_k (v_k^T columns): H_k of NV vectors of columns, rows `stride` apart.
  template <int NV>
  HWY_INLINE void Reflect(std::int64_t lane, std::int64_t k, std::int64_t stride,
                          double* columns) const {
    const Tag d;
    const double* const v = Row(lane, k);
    Vec sums[NV];
    for (int j = 0; j < NV; ++j) sums[j] = hn::Zero(d);
    for (std::int64_t i = k + 1; i < n_; ++i) {
      const Vec left = hn::Set(d, v[i]);
      for (int j = 0; j < NV; ++j) {
        sums[j] = hn::MulAdd(left, hn::Load(d, columns + i * stride + j * Together()), sums[j]);
      }
    }
    for (int j = 0; j < NV; ++j) sums[j] = hn::Mul(sums[j], hn::Set(d, Tau(lane, k)));
    for (std::int64_t i = k + 1; i < n_; ++i) {
      const Vec left = hn::Set(d, v[i]);
      for (int j = 0; j < NV; ++j) {
        double* const to = columns + i * stride + j * Together();
        hn::Store(hn::NegMulAdd(left, sums[j], hn::Load(d, to)), d, to);
      }
    }
  }

 private:
  double* Row(std::int64_t lane, std::int64_t i) const {
    return s_.a + (lane * stride_ + i) * stride_;
  }
  double& Tau(std::int64_t lane, std::int64_t k) const { return s_.tau[lane * stride_ + k]; }

  /// T; row k of A becomes v_k. With p = tau (A v - tau / 2 (v . A v) v) a reflection is
  ///
  ///     A <- H_k A H_k = A - v p^T - p v^T
  ///
  /// after row and column k. Row k + 1 of that has the next v; the others are taken when they are
  /// multiplied by it.
  void Reduce(std::int64_t lane) const {
    double* p = s_.p;
    double* next = p + stride_;
    const double* v = next + stride_;
    std::fill(p, p + 3 * stride_, 0.0);
    for (std::int64_t k = 0; k < n_; ++k) {
      double* const row = Row(lane, k);
      const double by_p = v[k], by_v = p[k];
      for (std::int64_t c = 0; c < stride_; ++c) row[c] -= by_p * p[c] + by_v * v[c];
      *Diagonal(Reversed(k), lane) = row[k];
      MakeReflection(lane, k, row);
      const std::int64_t begin = k / kUnit * kUnit;  // v and p are zero before, or of no use
      ForTiles(Tag(), begin, stride_, [&](std::int64_t c, auto vectors) HWY_ATTR {
        ReflectAndMultiply<vectors()>(lane, k, c, v, p, next);
      });
      const double tau = Tau(lane, k);
      const double half = tau / 2 * sn::WideDot(stride_ - begin, next + begin, row + begin);
      for (std::int64_t c = begin; c < stride_; ++c) next[c] = tau * (next[c] - half * row[c]);
      std::swap(p, next);
      v = row;
    }
  }

  /// Row k after its k-th entry, which becomes v_k; zeros where nothing is to be reflected.
  void MakeReflection(std::int64_t lane, std::int64_t k, double* row) const {
    const double first = k + 1 < n_ ? row[k + 1] : 0;
    const double others = k + 2 < n_ ? sn::WideDot(n_ - k - 2, row + k + 2, row + k + 2) : 0;
    Tau(lane, k) = 0;
    if (others == 0) {
      std::fill(row, row + stride_, 0.0);
      if (k + 1 < n_) *OffDiagonal(Reversed(k + 1), lane) = first;
      return;
    }
    const double length = std::sqrt(first * first + others);
    const double beside = first > 0 ? -length : length;
    const double inverse = 1 / (first - beside);
    std::fill(row, row + k + 1, 0.0);
    row[k + 1] = 1;
    for (std::int64_t c = k + 2; c < n_; ++c) row[c] *= inverse;
    *OffDiagonal(Reversed(k + 1), lane) = beside;
    Tau(lane, k) = (beside - first) / beside;
  }

  /// A -= v p^T + p v^T, next = A v_k, rows after k and columns from c on.
  template <int NV>
  HWY_INLINE void ReflectAndMultiply(std::int64_t lane, std::int64_t k, std::int64_t c,
                                     const double* v, const double* p, double* next) const {
    constexpr int kRows = 2;  // in sums that do not wait for each other
    const Tag d;
    const double* const by = Row(lane, k);
    Vec sums[kRows][NV], vs[NV], ps[NV];
    for (int j = 0; j < NV; ++j) {
      vs[j] = hn::Load(d, v + c + j * Together());
      ps[j] = hn::Load(d, p + c + j * Together());
      for (int r = 0; r < kRows; ++r) sums[r][j] = hn::Zero(d);
    }
    const auto take = [&](std::int64_t i, Vec* sum) HWY_ATTR {
      double* const row = Row(lane, i) + c;
      const Vec by_p = hn::Set(d, v[i]);
      const Vec by_v = hn::Set(d, p[i]);
      const Vec by_next = hn::Set(d, by[i]);
      for (int j = 0; j < NV; ++j) {
        const Vec x = hn::NegMulAdd(by_p, ps[j], hn::Load(d, row + j * Together()));
        const Vec y = hn::NegMulAdd(by_v, vs[j], x);
        hn::Store(y, d, row + j * Together());
        sum[j] = hn::MulAdd(by_next, y, sum[j]);
      }
    };
    std::int64_t i = k + 1;
    for (; i + kRows <= n_; i += kRows) {
      for (int r = 0; r < kRows; ++r) take(i + r, sums[r]);
    }
    if (i < n_) take(i, sums[0]);
    for (int j = 0; j < NV; ++j) {
      hn::Store(hn::Add(sums[0][j], sums[1][j]), d, next + c + j * Together());
    }
  }

  const std::int64_t n_, stride_;
  const EigenScratch& s_;
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::linalg
HWY_AFTER_NAMESPACE();

#endif  // TTR_LINALG_TRIDIAGONAL_INL_H_
