// Eigenvalues and eigenvectors of symmetric matrices, in double. Compiled once for every target.

#if defined(TTR_LINALG_EIGENSYSTEMS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_LINALG_EIGENSYSTEMS_INL_H_
#undef TTR_LINALG_EIGENSYSTEMS_INL_H_
#else
#define TTR_LINALG_EIGENSYSTEMS_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>

#include "hwy/highway.h"
#include "src/linalg/blocks-inl.h"
#include "src/linalg/eigensystems.h"
#include "src/linalg/tridiagonal-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::linalg {
namespace HWY_NAMESPACE {

/// A = Q T Q^T (tridiagonal-inl.h), T = W diag(l) W^T by QL steps with implicit shifts, W a product
/// of rotations. As many matrices as a vector has lanes take their steps together: these are chains
/// of square roots.
/// Cost for each: 2 n^3 flops; 9 n^2 for an eigenvector Q w, a column w of W.
/// Source: Golub, Van Loan, Matrix Computations, 8.3.
class Eigensystems {
 public:
  /// `vectors`: are there eigenvectors to be left, too?
  Eigensystems(std::int64_t size, bool vectors, const EigenScratch& scratch)
      : n_(size), vectors_(vectors), s_(scratch), t_(size, scratch) {}

  static std::int64_t Together() { return Tridiagonal::Together(); }

  /// Matrix `lane`: `element(i, j)`, j <= i. All eigenvalues of one that is not finite are NaN.
  template <class Element>
  void Load(std::int64_t lane, const Element& element) const {
    t_.Load(lane, element);
  }

  /// The first `count` of them; what other lanes hold is no matrix.
  void Decompose(std::int64_t count) {
    for (std::int64_t i = 0; i < n_; ++i) {
      std::fill(t_.Diagonal(i, count), t_.Diagonal(i, Together()), 0.0);
      std::fill(t_.OffDiagonal(i, count), t_.OffDiagonal(i, Together()), 0.0);
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
      return *t_.Diagonal(i, lane) > *t_.Diagonal(j, lane);
    });
    for (std::int64_t i = 0; i < n_; ++i)
      values[i] = *t_.Diagonal(s_.order[i], lane) * s_.scale[lane];
    std::fill(vectors, vectors + n_ * stride, 0.0);
    for (std::int64_t j = 0; j < count; ++j) vectors[t_.Reversed(s_.order[j]) * stride + j] = 1;
    ForTiles(Tag(), 0, stride, [&](std::int64_t c, auto tile) HWY_ATTR {
      Rotate<tile()>(lane, stride, vectors + c);
      for (std::int64_t k = n_ - 3; k >= 0; --k) t_.Reflect<tile()>(lane, k, stride, vectors + c);
    });
  }

 private:
  using Tag = Tridiagonal::Tag;
  using Vec = Tridiagonal::Vec;

  /// Where T of every lane falls apart first, from row i on, and T's diagonal there.
  struct End {
    Vec row, diagonal;
    std::int64_t last;  // of all lanes
  };

  /// QL steps until T has nothing beside its diagonal in row i, whose eigenvalue that then is: two
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
    const Tag d;
    const Vec epsilon = hn::Set(d, std::numeric_limits<double>::epsilon());
    End end{hn::Set(d, static_cast<double>(n_ - 1)), hn::Load(d, t_.Diagonal(n_ - 1, 0)), n_ - 1};
    auto open = hn::Eq(epsilon, epsilon);
    for (std::int64_t k = i; k + 1 < n_; ++k) {
      const Vec here = hn::Load(d, t_.Diagonal(k, 0));
      const Vec sizes = hn::Add(hn::Abs(here), hn::Abs(hn::Load(d, t_.Diagonal(k + 1, 0))));
      const Vec least = hn::Mul(epsilon, hn::Max(sizes, epsilon));
      const auto ends = hn::And(open, hn::Le(hn::Abs(hn::Load(d, t_.OffDiagonal(k, 0))), least));
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
    const Tag d;
    const Vec zero = hn::Zero(d), one = hn::Set(d, 1.0), two = hn::Set(d, 2.0);
    const auto works = hn::Gt(end.row, hn::Set(d, static_cast<double>(begin)));
    const Vec first = hn::Load(d, t_.Diagonal(begin, 0));
    const Vec off = hn::IfThenElse(works, hn::Load(d, t_.OffDiagonal(begin, 0)), one);
    const Vec slope =
        hn::Div(hn::Sub(hn::Load(d, t_.Diagonal(begin + 1, 0)), first), hn::Mul(two, off));
    const Vec root = hn::CopySign(hn::Sqrt(hn::MulAdd(slope, slope, one)), slope);
    const Vec shift = hn::Sub(first, hn::Div(off, hn::Add(slope, root)));
    Vec along = hn::Sub(end.diagonal, shift);
    Vec sine = one, cosine = one, moved = zero;
    for (std::int64_t i = end.last - 1; i >= begin; --i) {
      const auto rotates = hn::Gt(end.row, hn::Set(d, static_cast<double>(i)));
      const Vec beside = hn::Load(d, t_.OffDiagonal(i, 0));
      const Vec bulge = hn::Mul(sine, beside);
      const Vec length = hn::Sqrt(hn::MulAdd(bulge, bulge, hn::Mul(along, along)));
      const auto some = hn::Gt(length, zero);  // or T falls apart here, and nothing rotates
      const Vec inverse = hn::Div(one, hn::IfThenElse(some, length, one));
      const Vec s = hn::Mul(bulge, inverse);
      const Vec c = hn::IfThenElse(some, hn::Mul(along, inverse), one);
      const Vec below = hn::Load(d, t_.Diagonal(i + 1, 0));
      const Vec left = hn::Sub(below, moved);
      const Vec beside_rotated = hn::Mul(cosine, beside);
      const Vec rotated = hn::MulAdd(hn::Sub(hn::Load(d, t_.Diagonal(i, 0)), left), s,
                                     hn::Mul(two, hn::Mul(c, beside_rotated)));
      moved = hn::IfThenElse(rotates, hn::Mul(s, rotated), moved);
      hn::Store(hn::IfThenElse(rotates, hn::Add(left, moved), below), d, t_.Diagonal(i + 1, 0));
      hn::Store(hn::IfThenElse(rotates, length, hn::Load(d, t_.OffDiagonal(i + 1, 0))), d,
                t_.OffDiagonal(i + 1, 0));
      along = hn::IfThenElse(rotates, hn::MulSub(c, rotated, beside_rotated), along);
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
    hn::Store(hn::IfThenElse(works, hn::Sub(hn::Load(d, t_.Diagonal(begin, 0)), moved), first), d,
              t_.Diagonal(begin, 0));
    hn::Store(hn::IfThenElse(works, along, hn::Load(d, t_.OffDiagonal(begin, 0))), d,
              t_.OffDiagonal(begin, 0));
    for (std::int64_t lane = 0; lane < Together(); ++lane) {
      const auto row = static_cast<std::int64_t>(hn::ExtractLane(end.row, lane));
      if (row > begin) *t_.OffDiagonal(row, lane) = 0;
    }
  }

  /// Columns of W from unit vectors: all rotations, from the last to the first. Those of a step go
  /// upwards then, and what two share stays in registers.
  template <int NV>
  HWY_INLINE void Rotate(std::int64_t lane, std::int64_t stride, double* columns) const {
    const Tag d;
    Vec moving[NV];
    for (int j = 0; j < NV; ++j) moving[j] = hn::Zero(d);
    double* moving_row = nullptr;
    const auto put = [&]() HWY_ATTR {
      for (int j = 0; j < NV && moving_row != nullptr; ++j) {
        hn::Store(moving[j], d, moving_row + j * Together());
      }
    };
    for (std::int64_t n = rotations_ - 1; n >= 0; --n) {
      const Rotation& r = s_.rotations[n];
      double* const row = columns + t_.Reversed(s_.rotated[n]) * stride;
      if (row != moving_row) {
        put();
        for (int j = 0; j < NV; ++j) moving[j] = hn::Load(d, row + j * Together());
      }
      const Vec sine = hn::Set(d, r.sine[lane]);
      const Vec cosine = hn::Set(d, r.cosine[lane]);
      moving_row = row - stride;
      for (int j = 0; j < NV; ++j) {
        const Vec x = moving[j];
        const Vec y = hn::Load(d, moving_row + j * Together());
        hn::Store(hn::MulAdd(cosine, x, hn::Mul(sine, y)), d, row + j * Together());
        moving[j] = hn::NegMulAdd(sine, x, hn::Mul(cosine, y));
      }
    }
    put();
  }

  const std::int64_t n_;
  const bool vectors_;
  const EigenScratch& s_;
  const Tridiagonal t_;
  std::int64_t rotations_ = 0;
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::linalg
HWY_AFTER_NAMESPACE();

#endif  // TTR_LINALG_EIGENSYSTEMS_INL_H_
