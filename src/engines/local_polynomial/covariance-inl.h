// What fits are made of: monomials of a key and covariances of monomials, a query in every lane.
// Compiled once for every target.

#if defined(TTR_LOCAL_POLYNOMIAL_COVARIANCE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_LOCAL_POLYNOMIAL_COVARIANCE_INL_H_
#undef TTR_LOCAL_POLYNOMIAL_COVARIANCE_INL_H_
#else
#define TTR_LOCAL_POLYNOMIAL_COVARIANCE_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/local_polynomial/monomials.h"
#include "src/linalg/panels-inl.h"
#include "src/simd/unroll.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::local_polynomial {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace ln = ttr::linalg::HWY_NAMESPACE;

/// The monomials of k less a centre, [channel][lane], in `one`, [monomial][lane].
template <class T>
HWY_INLINE void ExpandKey(const Monomials& f, const T* k, const T* centre, T* one) {
  const ln::SystemTag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t c = 0; c < f.channels; ++c) {
    hn::Store(hn::Sub(hn::Set(d, k[c]), hn::Load(d, centre + c * lanes)), d, one + c * lanes);
  }
  for (std::int64_t j = f.channels; j < f.count; ++j) {
    const auto before = hn::Load(d, one + f.before[j] * lanes);
    hn::Store(hn::Mul(before, hn::Load(d, one + f.channel[j] * lanes)), d, one + j * lanes);
  }
}

/// The monomials of k less a centre, in `row`, [monomial]; k may be the row.
template <class T>
HWY_INLINE void ExpandRow(const Monomials& f, const T* k, const T* centre, T* row) {
  for (std::int64_t c = 0; c < f.channels; ++c) row[c] = k[c] - centre[c];
  for (std::int64_t j = f.channels; j < f.count; ++j) row[j] = row[f.before[j]] * row[f.channel[j]];
}

/// The covariance with its ridge, square by square of the second moments.
template <class T>
struct Covariance {
  ln::Panels<T> h;
  const T* mean;
  T ridge;
  std::int64_t size;

  template <class Tag>
  HWY_INLINE void operator()(Tag d, std::int64_t i, std::int64_t j, ln::Square<Tag>& square) const {
    const std::size_t lanes = hn::Lanes(d);
    ln::LoadSquare(d, h.At(i, j), square);
    TTR_UNROLL
    for (std::size_t c = 0; c < linalg::kPanelRows; ++c) {
      const auto column =
          hn::Load(d, mean + (static_cast<std::size_t>(j * linalg::kPanelRows) + c) * lanes);
      TTR_UNROLL
      for (std::size_t r = 0; r < linalg::kPanelRows; ++r) {
        const auto row =
            hn::Load(d, mean + (static_cast<std::size_t>(i * linalg::kPanelRows) + r) * lanes);
        square[r][c] = hn::NegMulAdd(row, column, square[r][c]);
      }
    }
    if (i != j) return;
    TTR_UNROLL
    for (int r = 0; r < linalg::kPanelRows; ++r) {
      const std::int64_t row = i * linalg::kPanelRows + r;
      square[r][r] = row < size ? hn::Add(hn::Set(d, ridge), square[r][r]) : hn::Set(d, T(1));
    }
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::local_polynomial
HWY_AFTER_NAMESPACE();

#endif  // TTR_LOCAL_POLYNOMIAL_COVARIANCE_INL_H_
