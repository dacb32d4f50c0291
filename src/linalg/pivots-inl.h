// Which pivots of a Cholesky factor are numbers, and which are rounding of 0. Compiled
// once for every target.
//
// Pivot i of a row a_i that the rows before it span, a_i = sum_j w_j a_j, is by rounding not 0
// but some eps times its diagonal A_ii and, what is more where those rows are nearly dependent
// themselves, sum_j w_j^2 A_jj: where the first D - 1 of so many keys happen to lie close to
// fewer dimensions, the key after the last can pass for a new direction by thousands of eps.

#if defined(TTR_LINALG_PIVOTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_LINALG_PIVOTS_INL_H_
#undef TTR_LINALG_PIVOTS_INL_H_
#else
#define TTR_LINALG_PIVOTS_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "src/linalg/cholesky-inl.h"
#include "src/linalg/rounding.h"
#include "src/linalg/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::linalg {
namespace HWY_NAMESPACE {

/// Asked for the pivots of Factor(), `count` at most, in order, of a matrix of rank `dim` at most;
/// `work` has room for twice as many numbers. O(dim) a pivot, O(dim^2) one that is doubtful.
template <class T>
class Pivots {
 public:
  Pivots(const UpperFactor<T>& factor, std::int64_t dim, std::int64_t count, T* work)
      : u_(factor.u),
        corners_(CornersOf(factor)),
        dim_(static_cast<double>(dim)),
        shares_(work),
        diagonals_(work + count) {}

  /// Is pivot i, what is `left` of its diagonal, more than rounding?
  bool operator()(std::int64_t i, T diagonal, T left) {
    const double share = static_cast<double>(left) / static_cast<double>(diagonal);
    const double rounding = dim_ * Rounding<T>(1);
    if (!(share > rounding) || !(diagonal > static_cast<T>(kFaded<T>))) return false;
    diagonals_[i] = diagonal;
    // The sum of w_j^2 A_jj over A_ii is at most 1 / the least eigenvalue of the rows before,
    // scaled to ones on the diagonal: about the least share. Where that is too much, it is
    // computed.
    const bool doubtful = share * least_ * dim_ <= rounding;
    if (doubtful && share * dim_ <= rounding * Spread(i) / static_cast<double>(diagonal)) {
      return false;
    }
    least_ = std::min(least_, share);
    return true;
  }

 private:
  /// sum_j w_j^2 A_jj, w = U^-1 u what the rows before i share in row i.
  HWY_NOINLINE double Spread(std::int64_t i) const {
    const std::int64_t first = i - i % kTileRows;  // whose rows are in the corner, not in u
    const Corner<T>& corner = corners_[first / kTileRows];
    double sum = 0;
    for (std::int64_t j = i - 1; j >= 0; --j) {
      const T w = j < first ? Share(u_.Row(j), j, i, shares_)
                            : Share(corner.upper[j - first], j - first, i - first, shares_ + first);
      shares_[j] = w;
      sum += static_cast<double>(w) * static_cast<double>(w) * static_cast<double>(diagonals_[j]);
    }
    return sum;
  }

  /// w_j from those after it and row j of the factor.
  static HWY_INLINE T Share(const T* row, std::int64_t j, std::int64_t i, const T* shares) {
    const hn::ScalableTag<T> d;
    const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
    auto sums = hn::Zero(d);
    std::int64_t c = j + 1;
    for (; c + lanes <= i; c += lanes) {
      sums = hn::MulAdd(hn::LoadU(d, row + c), hn::LoadU(d, shares + c), sums);
    }
    T rest = row[i] - hn::GetLane(hn::SumOfLanes(d, sums));
    for (; c < i; ++c) rest -= row[c] * shares[c];
    return rest / row[j];
  }

  Block<T> u_;
  const Corner<T>* corners_;
  double dim_;
  T *shares_, *diagonals_;
  double least_ = 1;  // share of the pivots before
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::linalg
HWY_AFTER_NAMESPACE();

#endif  // TTR_LINALG_PIVOTS_INL_H_
