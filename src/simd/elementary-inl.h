// Elementary functions of any argument: NaN stays NaN, infinities and overflow are those of the
// standard library. Compiled once for every target.

#if defined(TTR_SIMD_ELEMENTARY_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_SIMD_ELEMENTARY_INL_H_
#undef TTR_SIMD_ELEMENTARY_INL_H_
#else
#define TTR_SIMD_ELEMENTARY_INL_H_
#endif

#include <cmath>

#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::simd {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// exp(x). Highway's own takes NaN to 0 and leaves its range above; between these bounds it reaches
/// 0 and infinity by itself.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V Exp(D d, V x) {
  using T = hn::TFromD<D>;
  const auto lowest = hn::Set(d, sizeof(T) == 4 ? T(-104) : T(-1000));
  const auto highest = hn::Set(d, sizeof(T) == 4 ? T(104) : T(720));
  const auto safe = hn::IfThenElseZero(hn::Ge(x, lowest), hn::Min(x, highest));
  const auto exponential = hn::Exp(d, safe);
  return hn::IfThenElse(hn::Eq(x, x), hn::IfThenZeroElse(hn::Lt(x, lowest), exponential), x);
}

/// 1 / (1 + exp(-x)). Where exp(-x) overflows, 0.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V Sigmoid(D d, V x) {
  const auto one = hn::Set(d, hn::TFromD<D>(1));
  return hn::Div(one, hn::Add(one, simd::HWY_NAMESPACE::Exp(d, hn::Neg(x))));
}

/// x where x > 0 or is NaN, else 0.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V Relu(D d, V x) {
  return hn::IfThenZeroElse(hn::Lt(x, hn::Zero(d)), x);
}

/// Highway reduces arguments up to 39000; beyond, lane by lane.
template <class D, class V = hn::Vec<D>>
HWY_INLINE bool WithinReduction(D d, V x) {
  return hn::AllTrue(d, hn::Le(hn::Abs(x), hn::Set(d, hn::TFromD<D>(30000))));
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V Sin(D d, V x) {
  if (HWY_LIKELY(WithinReduction(d, x))) return hn::Sin(d, x);
  HWY_ALIGN hn::TFromD<D> lanes[hn::MaxLanes(d)];
  hn::Store(x, d, lanes);
  for (auto& lane : lanes) lane = std::sin(lane);
  return hn::Load(d, lanes);
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V Cos(D d, V x) {
  if (HWY_LIKELY(WithinReduction(d, x))) return hn::Cos(d, x);
  HWY_ALIGN hn::TFromD<D> lanes[hn::MaxLanes(d)];
  hn::Store(x, d, lanes);
  for (auto& lane : lanes) lane = std::cos(lane);
  return hn::Load(d, lanes);
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::simd
HWY_AFTER_NAMESPACE();

#endif  // TTR_SIMD_ELEMENTARY_INL_H_
