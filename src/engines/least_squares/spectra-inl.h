// Eigenvalues and eigenvectors of symmetric matrices, in double. Compiled once for every target.

#if defined(TTR_LEAST_SQUARES_SPECTRA_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_LEAST_SQUARES_SPECTRA_INL_H_
#undef TTR_LEAST_SQUARES_SPECTRA_INL_H_
#else
#define TTR_LEAST_SQUARES_SPECTRA_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>

#include "hwy/highway.h"
#include "src/engines/least_squares/iteration_scratch.h"
#include "src/engines/least_squares/layout.h"
#include "src/linalg/blocks-inl.h"
#include "src/simd/vector_map-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::least_squares {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace ln = ttr::linalg::HWY_NAMESPACE;
namespace sn = ttr::simd::HWY_NAMESPACE;

/// Matrices A = Q T Q^T, T tridiagonal, Q = H_0 .. H_{n-3} of reflections H_k = I - tau_k v_k
/// v_k^T, v_k = 0 up to entry k; T = W diag(l) W^T by QL steps with implicit shifts, W a product of
/// rotations. As many as a vector has lanes take their steps together: these are chains of square
/// roots.
/// Cost for each: 2 n^3 flops; 9 n^2 for an eigenvector Q w, a column w of W.
/// Source: Golub, Van Loan, Matrix Computations, 8.3.
class Spectra {
 public:
  /// `vectors`: are there eigenvectors to be left, too?
  Spectra(std::int64_t size, bool vectors, const SpectraScratch& scratch)
      : n_(size), stride_(RoundUp(size, kUnit)), vectors_(vectors), s_(scratch) {}

  /// Matrices that are decomposed together, at the most.
  static std::int64_t Together() { return static_cast<std::int64_t>(hn::Lanes(Lane())); }

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

  /// The first `count` of them; what other lanes hold is no matrix.
  void Decompose(std::int64_t count) {
    for (std::int64_t i = 0; i < n_; ++i) {
      std::fill(Diagonal(i, count), Diagonal(i, Together()), 0.0);
      std::fill(OffDiagonal(i, count), OffDiagonal(i, Together()), 0.0);
    }
    rotations_ = 0;
    for (std::int64_t i = 0; i < n_; ++i) Isolate(i);
  }

  /// The eigenvalues of matrix `lane`, largest first, and the eigenvectors of the first `count`: of
  /// unit length, the columns of n rows, `stride` numbers apart, a multiple of 8, and filled up
  /// with zeros.
  void Leave(std::int64_t lane, double* values, std::int64_t count, std::int64_t stride,
             double* vectors) const {
    std::iota(s_.order, s_.order + n_, std::int64_t{0});
    std::sort(s_.order, s_.order + n_, [&](std::int64_t i, std::int64_t j) {
      return *Diagonal(i, lane) > *Diagonal(j, lane);
    });
    for (std::int64_t i = 0; i < n_; ++i) values[i] = *Diagonal(s_.order[i], lane) * s_.scale[lane];
    std::fill(vectors, vectors + n_ * stride, 0.0);
    for (std::int64_t j = 0; j < count; ++j) vectors[Reversed(s_.order[j]) * stride + j] = 1;
    ln::ForTiles(Tag(), 0, stride, [&](std::int64_t c, auto tile) HWY_ATTR {
      Rotate<tile()>(lane, stride, vectors + c);
      for (std::int64_t k = n_ - 3; k >= 0; --k) Reflect<tile()>(lane, k, stride, vectors + c);
    });
  }

 private:
  using Tag = hn::CappedTag<double, kUnit / 2>;
  using Vec = hn::Vec<Tag>;
  using Lane = Tag;  // a matrix in every lane

  static std::int64_t Lanes() { return static_cast<std::int64_t>(hn::Lanes(Tag())); }
  double* Row(std::int64_t lane, std::int64_t i) const {
    return s_.a + (lane * stride_ + i) * stride_;
  }
  /// T is held with its last row first: reflections leave what is small there, and steps that begin
  /// with that are few.
  std::int64_t Reversed(std::int64_t row) const { return n_ - 1 - row; }
  double* Diagonal(std::int64_t i, std::int64_t lane) const {
    return s_.diagonal + i * Together() + lane;
  }
  /// T's element (i, i + 1).
  double* OffDiagonal(std::int64_t i, std::int64_t lane) const {
    return s_.off_diagonal + i * Together() + lane;
  }
  double& Tau(std::int64_t lane, std::int64_t k) const { return s_.tau[lane * stride_ + k]; }

  /// T; row k of A becomes v_k. With p = tau (A v - tau / 2 (v . A v) v) a reflection is
  ///
  ///     A <- H_k A H_k = A - v p^T - p v^T
  ///
  /// behind row and column k. Row k + 1 of that has the next v; the others are taken when they are
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
      ln::ForTiles(Tag(), begin, stride_, [&](std::int64_t c, auto vectors) HWY_ATTR {
        ReflectAndMultiply<vectors()>(lane, k, c, v, p, next);
      });
      const double tau = Tau(lane, k);
      const double half = tau / 2 * sn::WideDot(stride_ - begin, next + begin, row + begin);
      for (std::int64_t c = begin; c < stride_; ++c) next[c] = tau * (next[c] - half * row[c]);
      std::swap(p, next);
      v = row;
    }
  }

  /// Row k behind its k-th entry, which becomes v_k; zeros where nothing is to be reflected.
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

  /// A -= v p^T + p v^T, next = A v_k, rows behind k and columns from c on.
  template <int NV>
  HWY_INLINE void ReflectAndMultiply(std::int64_t lane, std::int64_t k, std::int64_t c,
                                     const double* v, const double* p, double* next) const {
    constexpr int kRows = 2;  // in sums that do not wait for each other
    const Tag d;
    const double* const by = Row(lane, k);
    Vec sums[kRows][NV], vs[NV], ps[NV];
    for (int j = 0; j < NV; ++j) {
      vs[j] = hn::Load(d, v + c + j * Lanes());
      ps[j] = hn::Load(d, p + c + j * Lanes());
      for (int r = 0; r < kRows; ++r) sums[r][j] = hn::Zero(d);
    }
    const auto take = [&](std::int64_t i, Vec* sum) HWY_ATTR {
      double* const row = Row(lane, i) + c;
      const Vec by_p = hn::Set(d, v[i]);
      const Vec by_v = hn::Set(d, p[i]);
      const Vec by_next = hn::Set(d, by[i]);
      for (int j = 0; j < NV; ++j) {
        const Vec x = hn::NegMulAdd(by_p, ps[j], hn::Load(d, row + j * Lanes()));
        const Vec y = hn::NegMulAdd(by_v, vs[j], x);
        hn::Store(y, d, row + j * Lanes());
        sum[j] = hn::MulAdd(by_next, y, sum[j]);
      }
    };
    std::int64_t i = k + 1;
    for (; i + kRows <= n_; i += kRows) {
      for (int r = 0; r < kRows; ++r) take(i + r, sums[r]);
    }
    if (i < n_) take(i, sums[0]);
    for (int j = 0; j < NV; ++j) {
      hn::Store(hn::Add(sums[0][j], sums[1][j]), d, next + c + j * Lanes());
    }
  }

  /// Where T of every lane falls apart first, from row i on, and T's diagonal there.
  struct End {
    Vec row, diagonal;
    std::int64_t last;  // of all lanes
  };

  /// QL steps until nothing lies beside the diagonal in row i, whose eigenvalue that then is: two
  /// or three. Should they not end, all eigenvalues are NaN.
  void Isolate(std::int64_t i) {
    for (;;) {
      const End end = FindEnd(i);
      if (end.last == i) return;
      if (rotations_ + end.last - i >
          MostRotations(n_)) {  // no finite matrix was seen to need as many
        std::fill(s_.scale, s_.scale + Together(), std::numeric_limits<double>::quiet_NaN());
        return;
      }
      Step(i, end);
    }
  }

  End FindEnd(std::int64_t i) const {
    const Lane d;
    const Vec epsilon = hn::Set(d, std::numeric_limits<double>::epsilon());
    End end{hn::Set(d, static_cast<double>(n_ - 1)), hn::Load(d, Diagonal(n_ - 1, 0)), n_ - 1};
    auto open = hn::Eq(epsilon, epsilon);
    for (std::int64_t k = i; k + 1 < n_; ++k) {
      const Vec here = hn::Load(d, Diagonal(k, 0));
      const Vec sizes = hn::Add(hn::Abs(here), hn::Abs(hn::Load(d, Diagonal(k + 1, 0))));
      const Vec least = hn::Mul(epsilon, hn::Max(sizes, epsilon));
      const auto ends = hn::And(open, hn::Le(hn::Abs(hn::Load(d, OffDiagonal(k, 0))), least));
      end.row = hn::IfThenElse(ends, hn::Set(d, static_cast<double>(k)), end.row);
      end.diagonal = hn::IfThenElse(ends, here, end.diagonal);
      open = hn::AndNot(ends, open);
      if (hn::AllFalse(d, open)) {
        end.last = k;
        break;
      }
    }
    return end;
  }

  /// One step on rows begin .. end (included) of every lane, shifted by the eigenvalue of the first
  /// two that is nearer to the first. Rotations go upwards; `bulge` is what they carry along.
  void Step(std::int64_t begin, const End& end) {
    const Lane d;
    const Vec zero = hn::Zero(d), one = hn::Set(d, 1.0), two = hn::Set(d, 2.0);
    const auto works = hn::Gt(end.row, hn::Set(d, static_cast<double>(begin)));
    const Vec first = hn::Load(d, Diagonal(begin, 0));
    const Vec off = hn::IfThenElse(works, hn::Load(d, OffDiagonal(begin, 0)), one);
    const Vec slope =
        hn::Div(hn::Sub(hn::Load(d, Diagonal(begin + 1, 0)), first), hn::Mul(two, off));
    const Vec root = hn::CopySign(hn::Sqrt(hn::MulAdd(slope, slope, one)), slope);
    const Vec shift = hn::Sub(first, hn::Div(off, hn::Add(slope, root)));
    Vec along = hn::Sub(end.diagonal, shift);
    Vec sine = one, cosine = one, moved = zero;
    for (std::int64_t i = end.last - 1; i >= begin; --i) {
      const auto rotates = hn::Gt(end.row, hn::Set(d, static_cast<double>(i)));
      const Vec beside = hn::Load(d, OffDiagonal(i, 0));
      const Vec bulge = hn::Mul(sine, beside);
      const Vec length = hn::Sqrt(hn::MulAdd(bulge, bulge, hn::Mul(along, along)));
      const auto some = hn::Gt(length, zero);  // or T falls apart here, and nothing rotates
      const Vec inverse = hn::Div(one, hn::IfThenElse(some, length, one));
      const Vec s = hn::Mul(bulge, inverse);
      const Vec c = hn::IfThenElse(some, hn::Mul(along, inverse), one);
      const Vec below = hn::Load(d, Diagonal(i + 1, 0));
      const Vec left = hn::Sub(below, moved);
      const Vec beside_turned = hn::Mul(cosine, beside);
      const Vec turned = hn::MulAdd(hn::Sub(hn::Load(d, Diagonal(i, 0)), left), s,
                                    hn::Mul(two, hn::Mul(c, beside_turned)));
      moved = hn::IfThenElse(rotates, hn::Mul(s, turned), moved);
      hn::Store(hn::IfThenElse(rotates, hn::Add(left, moved), below), d, Diagonal(i + 1, 0));
      hn::Store(hn::IfThenElse(rotates, length, hn::Load(d, OffDiagonal(i + 1, 0))), d,
                OffDiagonal(i + 1, 0));
      along = hn::IfThenElse(rotates, hn::MulSub(c, turned, beside_turned), along);
      sine = hn::IfThenElse(rotates, s, sine);
      cosine = hn::IfThenElse(rotates, c, cosine);
      if (vectors_) {
        s_.rotated[rotations_] = static_cast<std::int32_t>(i);
        Rotation& rotation = s_.rotations[rotations_];
        hn::Store(hn::IfThenElseZero(rotates, s), d, rotation.sine);
        hn::Store(hn::IfThenElse(rotates, c, one), d, rotation.cosine);
      }
      ++rotations_;
    }
    hn::Store(hn::IfThenElse(works, hn::Sub(hn::Load(d, Diagonal(begin, 0)), moved), first), d,
              Diagonal(begin, 0));
    hn::Store(hn::IfThenElse(works, along, hn::Load(d, OffDiagonal(begin, 0))), d,
              OffDiagonal(begin, 0));
    for (std::int64_t lane = 0; lane < Together(); ++lane) {
      const auto row = static_cast<std::int64_t>(hn::ExtractLane(end.row, lane));
      if (row > begin) *OffDiagonal(row, lane) = 0;
    }
  }

  /// Columns of W from unit vectors: all rotations, from the last to the first. Those of a step go
  /// upwards then, and what two share stays in registers.
  template <int NV>
  HWY_INLINE void Rotate(std::int64_t lane, std::int64_t stride, double* columns) const {
    const Tag d;
    Vec carried[NV];
    for (int j = 0; j < NV; ++j) carried[j] = hn::Zero(d);
    double* carried_row = nullptr;
    const auto put = [&]() HWY_ATTR {
      for (int j = 0; j < NV && carried_row != nullptr; ++j) {
        hn::Store(carried[j], d, carried_row + j * Lanes());
      }
    };
    for (std::int64_t n = rotations_ - 1; n >= 0; --n) {
      const Rotation& r = s_.rotations[n];
      double* const row = columns + Reversed(s_.rotated[n]) * stride;
      if (row != carried_row) {
        put();
        for (int j = 0; j < NV; ++j) carried[j] = hn::Load(d, row + j * Lanes());
      }
      const Vec sine = hn::Set(d, r.sine[lane]);
      const Vec cosine = hn::Set(d, r.cosine[lane]);
      carried_row = row - stride;
      for (int j = 0; j < NV; ++j) {
        const Vec x = carried[j];
        const Vec y = hn::Load(d, carried_row + j * Lanes());
        hn::Store(hn::MulAdd(cosine, x, hn::Mul(sine, y)), d, row + j * Lanes());
        carried[j] = hn::NegMulAdd(sine, x, hn::Mul(cosine, y));
      }
    }
    put();
  }

  /// columns -= tau v_k (v_k^T columns)
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
        sums[j] = hn::MulAdd(left, hn::Load(d, columns + i * stride + j * Lanes()), sums[j]);
      }
    }
    for (int j = 0; j < NV; ++j) sums[j] = hn::Mul(sums[j], hn::Set(d, Tau(lane, k)));
    for (std::int64_t i = k + 1; i < n_; ++i) {
      const Vec left = hn::Set(d, v[i]);
      for (int j = 0; j < NV; ++j) {
        double* const to = columns + i * stride + j * Lanes();
        hn::Store(hn::NegMulAdd(left, sums[j], hn::Load(d, to)), d, to);
      }
    }
  }

  const std::int64_t n_, stride_;
  const bool vectors_;
  const SpectraScratch& s_;
  std::int64_t rotations_ = 0;
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::least_squares
HWY_AFTER_NAMESPACE();

#endif  // TTR_LEAST_SQUARES_SPECTRA_INL_H_
