// Exponentials of decays that are taken once for every entry of a memory and token. Compiled once
// for every target.
//
// float: 2^y = 2^n 2^f, n the nearest integer, |f| <= 1/2, (2^f - 1) / f a polynomial of relative
// error 1e-8 (Remez). Adding 1.5 2^23 + 64 rounds y and leaves n + 64 in the lowest bits, from
// where it is shifted into the exponent: 2^(n + 64) is a normal number for every n that matters,
// and a last multiplication by 2^-64 rounds results below the normal numbers as they should be.
// Fused multiply-adds are what keeps f exact. With them exp is within 1.5 units in the last place,
// 1 - exp within 2.5; without them both lose |y| / 2 units more. Exactly 1 at 0; NaN stays NaN.

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
inline constexpr float kLog2ERest = static_cast<float>(std::numbers::log2e - kLog2E);
/// kRounder for Pow2(): 127, where exponents begin, is in it.
inline constexpr float kBiasedRounder = kRounder + 127;

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

/// 2^n, n as kBiasedRounder left it in `rounded`.
template <class D>
HWY_INLINE hn::Vec<D> Pow2(D d, hn::Vec<D> rounded) {
  const hn::RebindToUnsigned<D> du;
  const auto power = hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(du, rounded)));
  return hn::Mul(power, hn::Set(d, 0x1p-64f));
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

/// m times a decay, plus x.
template <class D>
HWY_INLINE hn::Vec<D> FadeAdd(const Decay<D>& decay, hn::Vec<D> m, hn::Vec<D> x) {
  return hn::IfThenElse(decay.forgets, x, hn::MulAdd(decay.factor, m, x));
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
    // Below the bound a decay is 0 and its complement 1 to the last bit. x stands second: Max() of
    // x86 then keeps NaN.
    const auto bound = hn::Set(d, static_cast<T>(kForgottenBelow<T>));
    const auto forgets = hn::Lt(x, bound);
    x = hn::Max(bound, x);
    const auto rounder = hn::Set(d, kBiasedRounder);
    const auto rounded = hn::MulAdd(x, hn::Set(d, kLog2E), rounder);
    const auto n = hn::Sub(rounded, rounder);
    const auto near = hn::MulSub(x, hn::Set(d, kLog2E), n);
    const auto f = hn::MulAdd(x, hn::Set(d, kLog2ERest), near);
    const auto p = hn::Mul(Pow2Minus1Over(d, f), f);
    const auto power = Pow2(d, rounded);
    complement = hn::NegMulAdd(power, p, hn::Sub(one, power));
    return {hn::MulAdd(power, p, power), forgets};
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
