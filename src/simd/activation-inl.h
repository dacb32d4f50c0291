// Activations with their first and second derivatives. NaN stays NaN. Compiled once for every
// target.

#if defined(TTR_SIMD_ACTIVATION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_SIMD_ACTIVATION_INL_H_
#undef TTR_SIMD_ACTIVATION_INL_H_
#else
#define TTR_SIMD_ACTIVATION_INL_H_
#endif

#include <type_traits>

#include "hwy/highway.h"
#include "src/simd/activation.h"
#include "src/simd/exp-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::simd {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// act(z), act'(z) and act''(z). What a caller does not use is not computed.
template <class D>
struct ActivationAt {
  hn::Vec<D> value, slope, curvature;
};

/// z s with s = 1 / (1 + exp(-w)), w = z (SiLU), or w = 2 sqrt(2/pi) (z + 0.044715 z^3) (GELU, as
/// (1 + tanh x) / 2 = 1 / (1 + exp(-2x))):
///
///     slope  s + z s (1 - s) w'
///     curvature   s (1 - s) (2 w' + z ((1 - 2s) w'^2 + w''))
///
/// Both s and 1 - s come from exp(-|w|), so that neither cancels.
template <bool CUBIC, class D, class V = hn::Vec<D>>
HWY_INLINE ActivationAt<D> GatedAt(D d, V z) {
  using T = hn::TFromD<D>;
  const auto set = [d](double number) HWY_ATTR { return hn::Set(d, static_cast<T>(number)); };
  const auto one = set(1), zero = hn::Zero(d);
  V near = z, w = z, w1 = one, w2 = zero;
  if constexpr (CUBIC) {
    constexpr double kScale = 1.5957691216057308, kCubic = 0.044715;
    // From |z| = 22 on exp(-|w|) is 0 in double precision, and a cube may overflow.
    const auto far = set(40);
    near = hn::IfThenElse(hn::Gt(hn::Abs(z), far), hn::CopySign(far, z), z);
    const auto square = hn::Mul(near, near);
    w = hn::Mul(near, hn::MulAdd(square, set(kScale * kCubic), set(kScale)));
    w1 = hn::MulAdd(square, set(3 * kScale * kCubic), set(kScale));
    w2 = hn::Mul(near, set(6 * kScale * kCubic));
  }
  const auto e = ExpFlushed(d, hn::Neg(hn::Abs(w)));
  const auto high = hn::Div(one, hn::Add(one, e));
  const auto low = hn::Mul(e, high);
  const auto above = hn::Ge(w, zero);
  const auto s = hn::IfThenElse(above, high, low);
  const auto spread = hn::Mul(high, low);
  const auto difference = hn::IfThenElse(above, hn::Sub(low, high), hn::Sub(high, low));
  const auto slope = hn::Mul(spread, w1);
  const auto inner = hn::MulAdd(hn::Mul(near, difference), w1, set(2));
  return {hn::Mul(z, s), hn::MulAdd(z, slope, s),
          hn::MulAdd(slope, inner, hn::Mul(near, hn::Mul(spread, w2)))};
}

/// With e = exp(-2|z|) - 1: |tanh z| = -e / (2 + e), 1 - tanh^2 = 4 (1 + e) / (2 + e)^2.
template <class D, class V = hn::Vec<D>>
HWY_INLINE ActivationAt<D> TanhAt(D d, V z) {
  using T = hn::TFromD<D>;
  const auto two = hn::Set(d, T(2));
  // Beyond 20 tanh is 1 in double precision.
  const auto size =
      hn::IfThenElse(hn::Gt(hn::Abs(z), hn::Set(d, T(30))), hn::Set(d, T(30)), hn::Abs(z));
  const auto is_number = hn::Eq(z, z);
  const auto e = hn::Expm1(d, hn::Neg(hn::IfThenElseZero(is_number, hn::Add(size, size))));
  const auto quotient = hn::Div(hn::Set(d, T(1)), hn::Add(two, e));
  const auto t = hn::IfThenElse(is_number, hn::CopySign(hn::Mul(hn::Neg(e), quotient), z), z);
  const auto rest =
      hn::Mul(hn::Mul(hn::Set(d, T(4)), hn::Add(hn::Set(d, T(1)), e)), hn::Mul(quotient, quotient));
  const auto slope = hn::IfThenElse(is_number, rest, z);
  return {t, slope, hn::Neg(hn::Mul(hn::Add(t, t), slope))};
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE ActivationAt<D> ReluAt(D d, V z) {
  const auto zero = hn::Zero(d);
  const auto off = hn::Le(z, zero);  // a NaN goes on
  return {hn::IfThenZeroElse(off, z), hn::IfThenZeroElse(off, hn::Set(d, hn::TFromD<D>(1))), zero};
}

template <Activation ACTIVATION, class D>
HWY_INLINE ActivationAt<D> Activate(D d, hn::Vec<D> z) {
  if constexpr (ACTIVATION == Activation::kSilu) {
    return GatedAt<false>(d, z);
  } else if constexpr (ACTIVATION == Activation::kGelu) {
    return GatedAt<true>(d, z);
  } else if constexpr (ACTIVATION == Activation::kRelu) {
    return ReluAt(d, z);
  } else {
    return TanhAt(d, z);
  }
}

/// use(the activation as a constant).
template <class Use>
HWY_INLINE void WithActivation(Activation activation, const Use& use) {
  switch (activation) {
    case Activation::kSilu: return use(std::integral_constant<Activation, Activation::kSilu>());
    case Activation::kGelu: return use(std::integral_constant<Activation, Activation::kGelu>());
    case Activation::kRelu: return use(std::integral_constant<Activation, Activation::kRelu>());
    case Activation::kTanh: return use(std::integral_constant<Activation, Activation::kTanh>());
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::simd
HWY_AFTER_NAMESPACE();

#endif  // TTR_SIMD_ACTIVATION_INL_H_
