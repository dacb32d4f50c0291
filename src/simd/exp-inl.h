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

/// A decay with a logarithm below this forgets: its exponential is 0 in T.
template <class T>
inline constexpr double kForgottenBelow = sizeof(T) == 4 ? -104 : -746;

/// exp(x), x <= 0 or NaN. Highway's own takes NaN to 0.
template <class D>
HWY_INLINE hn::Vec<D> ExpNonPositive(D d, hn::Vec<D> x) {
  const auto in_range = hn::Ge(x, hn::Set(d, kLowestExponent<hn::TFromD<D>>));
  const auto safe = hn::IfThenElseZero(in_range, x);
  const auto outside = hn::IfThenElse(hn::Eq(x, x), hn::Zero(d), x);
  return hn::IfThenElse(in_range, hn::Exp(d, safe), outside);
}

// Below this ExpFlushed is 0: what follows 2^-126 has fewer digits.
inline constexpr float kLowestFlushed = -87;

/// exp(x), x <= 0 or NaN, to two units of the last place, of weights beside a weight of 1: of
/// float32 what is no normal number is 0. Half of the operations of the above: with n the integer
/// next to x / ln 2 it is 2^n e^f, |f| <= ln 2 / 2, and the series of e^f ends at f^7 / 7!.
template <class D>
HWY_INLINE hn::Vec<D> ExpFlushed(D d, hn::Vec<D> x) {
  if constexpr (sizeof(hn::TFromD<D>) != 4) {
    return ExpNonPositive(d, x);
  } else {
    const hn::RebindToSigned<D> di;
    const auto set = [d](float number) HWY_ATTR { return hn::Set(d, number); };
    const auto n = hn::Round(hn::Mul(x, set(1.44269504F)));
    // ln 2 in two parts, the first of few digits, so that its product is exact.
    const auto f = hn::NegMulAdd(n, set(-2.12194440e-4F), hn::NegMulAdd(n, set(0.693359375F), x));
    auto sum = hn::MulAdd(set(1.0F / 5040), f, set(1.0F / 720));
    sum = hn::MulAdd(sum, f, set(1.0F / 120));
    sum = hn::MulAdd(sum, f, set(1.0F / 24));
    sum = hn::MulAdd(sum, f, set(1.0F / 6));
    sum = hn::MulAdd(sum, f, set(0.5F));
    sum = hn::MulAdd(sum, f, set(1.0F));
    sum = hn::MulAdd(sum, f, set(1.0F));
    const auto low = hn::Lt(x, set(kLowestFlushed));
    const auto safe = hn::IfThenZeroElse(low, n);
    const auto exponent = hn::ShiftLeft<23>(hn::Add(hn::ConvertTo(di, safe), hn::Set(di, 127)));
    return hn::IfThenZeroElse(low, hn::Mul(sum, hn::BitCast(d, exponent)));
  }
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
