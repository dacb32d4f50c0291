// Exponentials of decays that are taken once for every entry of a memory and token. Compiled once
// for every target.
//
// float: 2^y = 2^n 2^f, n the nearest integer, |f| <= 1/2, (2^f - 1) / f a polynomial of relative
// error 1e-8 (Remez). Adding 1.5 2^23 + 64 rounds y and leaves n + 64 in the lowest bits, from
// where it is shifted into the exponent: 2^(n + 64) is a normal number for every n that matters,
// and a last multiplication by 2^-64 rounds results below the normal numbers as they should be.
// Within 1.5 units in the last place of exp, 2.5 of 1 - exp; exactly 1 at 0; NaN stays NaN.

#if defined(TTR_SIMD_DECAY_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_SIMD_DECAY_INL_H_
#undef TTR_SIMD_DECAY_INL_H_
#else
#define TTR_SIMD_DECAY_INL_H_
#endif

#include <numbers>

#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"
#include "src/simd/exp-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::simd {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

inline constexpr float kRounder = 0x1.8p23f + 64;
inline constexpr float kLog2E = std::numbers::log2e_v<float>;
inline constexpr float kLn2High = 0x1.62e4p-1f;  // 16 bits: exact times n
inline constexpr float kLn2Low = 0x1.7f7d1cp-20f;

/// (2^f - 1) / f
template <class D>
HWY_INLINE hn::Vec<D> Pow2Minus1Over(D d, hn::Vec<D> f) {
  auto p = hn::MulAdd(hn::Set(d, 0x1.4308fap-13f), f, hn::Set(d, 0x1.5f0878p-10f));
  p = hn::MulAdd(p, f, hn::Set(d, 0x1.3b2ba0p-7f));
  p = hn::MulAdd(p, f, hn::Set(d, 0x1.c6af6ep-5f));
  p = hn::MulAdd(p, f, hn::Set(d, 0x1.ebfbdep-3f));
  return hn::MulAdd(p, f, hn::Set(d, 0x1.62e430p-1f));
}

/// x 2^n for x near 1, n as kRounder left it in `rounded`.
template <class D>
HWY_INLINE hn::Vec<D> TimesPow2(D d, hn::Vec<D> x, hn::Vec<D> rounded) {
  const hn::RebindToUnsigned<D> du;
  const auto exponent = hn::ShiftLeft<23>(hn::BitCast(du, rounded));
  const auto scaled = hn::BitCast(d, hn::Add(hn::BitCast(du, x), exponent));
  return hn::Mul(scaled, hn::Set(d, 0x1p-64f));
}

/// Where exp is 0 to the last bit: -inf among them, NaN not.
template <class D>
HWY_INLINE hn::Mask<D> IsForgotten(D d, hn::Vec<D> rounded) {
  return hn::Lt(rounded, hn::Set(d, kRounder - 150));
}

/// What dt of exp(dt a) is multiplied by, once, before it is given to RateDecay: its unit.
template <class T>
inline constexpr double kRateUnit = sizeof(T) == 4 ? std::numbers::log2e : 1;

/// A decay, and where it forgets altogether (there `factor` means nothing: what was remembered is
/// taken as 0, so that NaN is forgotten too).
template <class D>
struct Decay {
  hn::Vec<D> factor;
  hn::Mask<D> forgets;
};

/// m times a decay; 0 where it forgets, even if m is NaN.
template <class D>
HWY_INLINE hn::Vec<D> Fade(const Decay<D>& decay, hn::Vec<D> m) {
  return hn::IfThenZeroElse(decay.forgets, hn::Mul(decay.factor, m));
}

/// exp(dt a) for dt a <= 0 or NaN; one of them, which does not matter here, in kRateUnit. With
/// fused multiply-adds the product is rounded nowhere in float.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE Decay<D> RateDecay(D d, hn::Vec<D> dt, hn::Vec<D> rate) {
  if constexpr (sizeof(T) == 4) {
    const auto rounder = hn::Set(d, kRounder);
    const auto rounded = hn::MulAdd(dt, rate, rounder);
    const auto f = hn::MulSub(dt, rate, hn::Sub(rounded, rounder));
    const auto p = hn::MulAdd(Pow2Minus1Over(d, f), f, hn::Set(d, 1.0f));
    return {TimesPow2(d, p, rounded), IsForgotten(d, rounded)};
  } else {
    const auto x = hn::Mul(dt, rate);
    return {ExpNonPositive(d, x), hn::Lt(x, hn::Set(d, static_cast<T>(kForgottenBelow<T>)))};
  }
}

/// exp(x) for x <= 0 or NaN, and `complement` = 1 - exp(x) without cancellation.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE Decay<D> ExpDecay(D d, hn::Vec<D> x, hn::Vec<D>& complement) {
  const auto one = hn::Set(d, T(1));
  if constexpr (sizeof(T) == 4) {
    const auto rounder = hn::Set(d, kRounder);
    const auto rounded = hn::MulAdd(x, hn::Set(d, kLog2E), rounder);
    const auto forgets = IsForgotten(d, rounded);
    const auto n = hn::Sub(rounded, rounder);
    auto r = hn::NegMulAdd(n, hn::Set(d, kLn2High), x);
    r = hn::NegMulAdd(n, hn::Set(d, kLn2Low), r);
    const auto f = hn::Mul(r, hn::Set(d, kLog2E));
    const auto p = hn::Mul(Pow2Minus1Over(d, f), f);
    const auto power = TimesPow2(d, one, rounded);
    complement = hn::IfThenElse(forgets, one, hn::NegMulAdd(power, p, hn::Sub(one, power)));
    return {hn::IfThenZeroElse(forgets, hn::MulAdd(power, p, power)), forgets};
  } else {
    const auto forgets = hn::Lt(x, hn::Set(d, static_cast<T>(kForgottenBelow<T>)));
    const auto is_number = hn::Eq(x, x);
    // Highway's own function turns NaN into numbers.
    const auto safe = hn::IfThenElseZero(is_number, hn::IfThenZeroElse(forgets, x));
    const auto minus_one = hn::IfThenElse(is_number, hn::Expm1(d, safe), x);
    complement = hn::IfThenElse(forgets, one, hn::Neg(minus_one));
    return {ExpNonPositive(d, x), forgets};
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::simd
HWY_AFTER_NAMESPACE();

#endif  // TTR_SIMD_DECAY_INL_H_
