// Exponentials for gates, of arguments <= 0. Compiled once for every target.

#if defined(TTR_SIMD_EXP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_SIMD_EXP_INL_H_
#undef TTR_SIMD_EXP_INL_H_
#else
#define TTR_SIMD_EXP_INL_H_
#endif

#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::simd {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Below this exp is 0 to the last bit, and Highway's conversions to integer are still in range.
template <class T>
inline constexpr T kLowestExponent = sizeof(T) == 4 ? T(-104) : T(-1000);

/// exp(x), x <= 0 or NaN. Highway's own takes NaN to 0.
template <class D>
HWY_INLINE hn::Vec<D> ExpNonPositive(D d, hn::Vec<D> x) {
  const auto in_range = hn::Ge(x, hn::Set(d, kLowestExponent<hn::TFromD<D>>));
  const auto safe = hn::IfThenElseZero(in_range, x);
  const auto outside = hn::IfThenElse(hn::Eq(x, x), hn::Zero(d), x);
  return hn::IfThenElse(in_range, hn::Exp(d, safe), outside);
}

/// (1 - exp(-x)) / x, x >= 0 or NaN: 1 at 0, 1/x at infinity.
template <class D>
HWY_INLINE hn::Vec<D> OneMinusExpOver(D d, hn::Vec<D> x) {
  using T = hn::TFromD<D>;
  const auto in_range = hn::Le(x, hn::Set(d, -kLowestExponent<T>));
  const auto safe = hn::IfThenElseZero(in_range, x);
  const auto one = hn::Set(d, T(1));
  // 1 - x/2 is exact to rounding where x^2/6 is below it, and the quotient is harmless above.
  const auto tiny = hn::Lt(safe, hn::Set(d, sizeof(T) == 4 ? T(1e-4) : T(1e-8)));
  const auto divisor = hn::IfThenElse(tiny, one, safe);
  const auto quotient = hn::Div(hn::Neg(hn::Expm1(d, hn::Neg(divisor))), divisor);
  const auto series = hn::NegMulAdd(safe, hn::Set(d, T(0.5)), one);
  return hn::IfThenElse(in_range, hn::IfThenElse(tiny, series, quotient), hn::Div(one, x));
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::simd
HWY_AFTER_NAMESPACE();

#endif  // TTR_SIMD_EXP_INL_H_
