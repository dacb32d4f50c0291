// Sine and cosine together, of phases. Compiled once for every target.
//
// float: x less the nearest multiple of pi/2 (in three parts, of which the first two times the
// multiple are exact), then a polynomial of degree 7 and one of degree 8 on |r| <= pi/4 (Remez).

#if defined(TTR_SIMD_SINCOS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_SIMD_SINCOS_INL_H_
#undef TTR_SIMD_SINCOS_INL_H_
#else
#define TTR_SIMD_SINCOS_INL_H_
#endif

#include <cmath>
#include <numbers>

#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::simd {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// |x| <= 8192.
template <class D>
HWY_INLINE void SinCosFloat(D d, hn::Vec<D> x, hn::Vec<D>& sine, hn::Vec<D>& cosine) {
  const hn::RebindToUnsigned<D> du;
  const auto rounder = hn::Set(d, 0x1.8p23f);
  const auto rounded = hn::MulAdd(x, hn::Set(d, 2 * std::numbers::inv_pi_v<float>), rounder);
  const auto n = hn::Sub(rounded, rounder);
  auto r = hn::NegMulAdd(n, hn::Set(d, 1.5703125f), x);
  r = hn::NegMulAdd(n, hn::Set(d, 0x1.fb4p-12f), r);
  r = hn::NegMulAdd(n, hn::Set(d, 0x1.4442d2p-24f), r);
  const auto z = hn::Mul(r, r);
  auto s = hn::MulAdd(hn::Set(d, -0x1.9ac42p-13f), z, hn::Set(d, 0x1.110c1cp-7f));
  s = hn::MulAdd(s, z, hn::Set(d, -0x1.555552p-3f));
  s = hn::MulAdd(hn::Mul(s, z), r, r);
  auto c = hn::MulAdd(hn::Set(d, 0x1.9bd5p-16f), z, hn::Set(d, -0x1.6c12ccp-10f));
  c = hn::MulAdd(c, z, hn::Set(d, 0x1.555554p-5f));
  c = hn::MulAdd(hn::Mul(c, z), z, hn::NegMulAdd(hn::Set(d, 0.5f), z, hn::Set(d, 1.0f)));
  // Quarter rotations: odd ones swap sine and cosine; bit 1 of n, and of n + 1, are the signs.
  const auto quarters = hn::BitCast(du, rounded);
  const auto one = hn::Set(du, 1);
  const auto odd = hn::RebindMask(d, hn::TestBit(quarters, one));
  const auto bit = hn::Set(du, 2);
  const auto sine_sign = hn::ShiftLeft<30>(hn::And(quarters, bit));
  const auto cosine_sign = hn::ShiftLeft<30>(hn::And(hn::Add(quarters, one), bit));
  sine = hn::Xor(hn::IfThenElse(odd, c, s), hn::BitCast(d, sine_sign));
  cosine = hn::Xor(hn::IfThenElse(odd, s, c), hn::BitCast(d, cosine_sign));
}

/// Sine and cosine of any x; NaN where x is not finite. Lanes beyond the range have no meaning
/// until they are computed again.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE void SinCos(D d, hn::Vec<D> x, hn::Vec<D>& sine, hn::Vec<D>& cosine) {
  const auto inside = hn::Le(hn::Abs(x), hn::Set(d, T(8192)));
  if constexpr (sizeof(T) == 4) {
    SinCosFloat(d, x, sine, cosine);
  } else {
    const auto safe = hn::IfThenElseZero(inside, x);
    sine = hn::Sin(d, safe);
    cosine = hn::Cos(d, safe);
  }
  if (HWY_LIKELY(hn::AllTrue(d, inside))) return;
  HWY_ALIGN T values[3][hn::MaxLanes(D())];
  hn::Store(x, d, values[0]);
  hn::Store(sine, d, values[1]);
  hn::Store(cosine, d, values[2]);
  for (std::size_t i = 0; i < hn::Lanes(d); ++i) {
    const T angle = values[0][i];
    if (std::abs(angle) <= T(8192)) continue;
    values[1][i] = std::sin(angle);
    values[2][i] = std::cos(angle);
  }
  sine = hn::Load(d, values[1]);
  cosine = hn::Load(d, values[2]);
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::simd
HWY_AFTER_NAMESPACE();

#endif  // TTR_SIMD_SINCOS_INL_H_
