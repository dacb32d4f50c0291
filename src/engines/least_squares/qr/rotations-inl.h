// Rotations of rows into a triangle, and its solution. Compiled once for every target.

#if defined(TTR_LEAST_SQUARES_QR_ROTATIONS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_LEAST_SQUARES_QR_ROTATIONS_INL_H_
#undef TTR_LEAST_SQUARES_QR_ROTATIONS_INL_H_
#else
#define TTR_LEAST_SQUARES_QR_ROTATIONS_INL_H_
#endif

#include <cstdint>
#include <limits>

#include "hwy/highway.h"
#include "src/engines/least_squares/qr/scratch.h"
#include "src/linalg/rounding.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::least_squares {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// x <- x - factor row, of `count` numbers and up to a vector more.
HWY_INLINE void SubtractRow(std::int64_t count, double factor, const double* HWY_RESTRICT row,
                            double* HWY_RESTRICT x) {
  const hn::ScalableTag<double> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto by = hn::Set(d, factor);
  for (std::int64_t i = 0; i < count; i += lanes) {
    hn::StoreU(hn::NegMulAdd(by, hn::LoadU(d, row + i), hn::LoadU(d, x + i)), d, x + i);
  }
}

/// x <- x - factor row and row <- row + share of that, at once.
HWY_INLINE void Correct(std::int64_t count, double factor, double share, double* HWY_RESTRICT row,
                        double* HWY_RESTRICT x) {
  const hn::ScalableTag<double> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto by = hn::Set(d, factor), s = hn::Set(d, share);
  for (std::int64_t i = 0; i < count; i += lanes) {
    const auto before = hn::LoadU(d, row + i);
    const auto left = hn::NegMulAdd(by, before, hn::LoadU(d, x + i));
    hn::StoreU(left, d, x + i);
    hn::StoreU(hn::MulAdd(s, left, before), d, row + i);
  }
}

/// x <- x - factor row and row <- kept row + share x, where little of the row is left: a correction
/// would keep its rounding errors, which may be larger than x.
HWY_INLINE void Replace(std::int64_t count, double factor, double kept, double share,
                        double* HWY_RESTRICT row, double* HWY_RESTRICT x) {
  const hn::ScalableTag<double> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto by = hn::Set(d, factor), c = hn::Set(d, kept), s = hn::Set(d, share);
  for (std::int64_t i = 0; i < count; i += lanes) {
    const auto before = hn::LoadU(d, row + i), given = hn::LoadU(d, x + i);
    hn::StoreU(hn::NegMulAdd(by, before, given), d, x + i);
    hn::StoreU(hn::MulAdd(c, before, hn::Mul(s, given)), d, row + i);
  }
}

/// Rotates the row [v k] in `x`, of this weight, into the triangle; `x` is overwritten. With s the
/// reciprocal of the weight that the row still has,
///
///     q = D_i s + k_i^2,    D_i <- q / s,    s <- s + k_i^2 / D_i
///     row i <- (D_i s / q) row i + (k_i / q) x,    x <- x - k_i row i
///
/// where only the last is waited for from channel to channel. Returns the weight that is left; in
/// the first places of x is the error of the values then. A weight whose reciprocal is no number is
/// none.
HWY_INLINE double RotateIn(const Triangle& to, double weight, std::int64_t channels, double* x) {
  double s = 1 / weight;
  if (s == std::numeric_limits<double>::infinity()) return 0;
  const double* const k = x + to.value_dim;
  for (std::int64_t i = channels - 1; i >= 0; --i) {
    const double ki = k[i];
    if (ki == 0) continue;
    const double before = to.d[i], square = ki * ki, p = before * s, q = p + square;
    const double after = q / s;
    if (after <= linalg::kFaded<double>) continue;  // too short a key to be seen
    const std::int64_t count = to.value_dim + i;
    to.d[i] = after;
    if (p < square) {
      Replace(count, ki, p / q, ki / q, to.Row(i), x);
    } else {
      Correct(count, ki, ki / q, to.Row(i), x);
    }
    s += square / before;
    if (s == std::numeric_limits<double>::infinity()) return 0;  // no weight is left
  }
  return 1 / s;
}

/// y - q M in the first places of [y q]: u = L^-T q, y - W^T u.
HWY_INLINE void SubtractAnswer(const Triangle& of, double* x) {
  for (std::int64_t i = of.key_dim - 1; i >= 0; --i) {
    SubtractRow(of.value_dim + i, x[of.value_dim + i], of.Row(i), x);
  }
}

/// Are all numbers of D more than rounding?
inline bool IsRegular(const Triangle& t) {
  const double rounding = linalg::Rounding<double>(t.key_dim);
  bool regular = true;
  for (std::int64_t i = 0; i < t.key_dim; ++i) {
    const double least = rounding * rounding * t.squares[i];
    // An infinite square makes this false, too.
    regular &= t.d[i] > least && t.d[i] > linalg::kFaded<double>;
  }
  return regular;
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::least_squares
HWY_AFTER_NAMESPACE();

#endif  // TTR_LEAST_SQUARES_QR_ROTATIONS_INL_H_
