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
#include "src/simd/exp-inl.h"
#include "src/simd/unroll.h"

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

/// log(1 + exp(x)) and its slope, 1 / (1 + exp(-x)): no overflow, and no cancellation where x is
/// far below 0.
template <class D>
struct SoftplusAt {
  hn::Vec<D> value, slope;
};

/// With e = exp(-|x|), log(1 + e) = 2 atanh(s) for s = e / (2 + e) <= 1/3, of which the terms
/// s^(2n + 1) / (2n + 1), all of one sign, are summed as long as they matter: 9^-n / (2n + 1) is
/// below 2^-26 at n = 7, below 2^-55 at n = 16.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE SoftplusAt<D> Softplus(D d, hn::Vec<D> x) {
  constexpr int kTerms = sizeof(T) == 4 ? 7 : 16;
  const auto one = hn::Set(d, T(1)), two = hn::Set(d, T(2));
  const auto e = ExpNonPositive(d, hn::Neg(hn::Abs(x)));
  const auto s = hn::Div(e, hn::Add(two, e));
  const auto square = hn::Mul(s, s);
  auto sum = hn::Set(d, T(1) / (2 * kTerms - 1));
  TTR_UNROLL
  for (int n = kTerms - 2; n >= 0; --n)
    sum = hn::MulAdd(sum, square, hn::Set(d, T(1) / T(2 * n + 1)));
  const auto above = hn::Ge(x, hn::Zero(d));
  return {hn::MulAdd(hn::Add(s, s), sum, Relu(d, x)),
          hn::Div(hn::IfThenElse(above, one, e), hn::Add(one, e))};
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
