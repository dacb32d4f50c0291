// Sums of the lanes of several vectors. Compiled once for every target.

#if defined(TTR_SIMD_LANE_SUMS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_SIMD_LANE_SUMS_INL_H_
#undef TTR_SIMD_LANE_SUMS_INL_H_
#else
#define TTR_SIMD_LANE_SUMS_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::simd {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// Lanes in groups of COUNT, whose sums are those of COUNT vectors, which lie one behind the other:
/// by halves, three operations a vector, where each by itself takes ten.
template <std::int64_t COUNT, class D, class T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> SumVectors(D d, const T* vectors) {
  if constexpr (COUNT == 1) {
    return hn::Load(d, vectors);
  } else {
#if HWY_TARGET != HWY_SCALAR
    const auto low = SumVectors<COUNT / 2>(d, vectors);
    const auto high = SumVectors<COUNT / 2>(d, vectors + COUNT / 2 * hn::MaxLanes(d));
    return hn::Add(hn::ConcatEven(d, high, low), hn::ConcatOdd(d, high, low));
#endif
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::simd
HWY_AFTER_NAMESPACE();

#endif  // TTR_SIMD_LANE_SUMS_INL_H_
