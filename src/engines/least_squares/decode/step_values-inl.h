// Values beside a factor of A, which stand for B. Compiled once for every target.

#if defined(TTR_LEAST_SQUARES_DECODE_STEP_VALUES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_LEAST_SQUARES_DECODE_STEP_VALUES_INL_H_
#undef TTR_LEAST_SQUARES_DECODE_STEP_VALUES_INL_H_
#else
#define TTR_LEAST_SQUARES_DECODE_STEP_VALUES_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/least_squares/decode/state-inl.h"
#include "src/engines/least_squares/decode/step_factor-inl.h"
#include "src/simd/unroll.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::least_squares {
namespace HWY_NAMESPACE {

/// The rows of W as StepFactor::Update() says, of which every one takes up a share of what those
/// before it leave of v; with kRead y = W^T (U^-T q) after it.
template <bool kRead, class T>
HWY_INLINE void UpdateValues(const StepFactor<T>& factor,
                             const typename StepFactor<T>::Shares& shares, const T* v, T* y) {
  const hn::CappedTag<T, kUnit> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const FactorLayout<T>& f = factor.layout();
  ForStrips(d, f.values, [&](std::int64_t c, auto vectors, std::size_t) HWY_ATTR {
    constexpr int kVectors = vectors();
    hn::Vec<decltype(d)> rest[kVectors], sum[kVectors];
    TTR_UNROLL
    for (int n = 0; n < kVectors; ++n) {
      rest[n] = hn::Load(d, v + c + n * lanes);
      sum[n] = hn::Zero(d);
    }
    T* HWY_RESTRICT row = f.w + c;
    for (std::int64_t i = 0; i < f.unit; ++i, row += f.values) {
      const auto by = hn::Set(d, shares.by[i]);
      const auto w = hn::Set(d, shares.w[i]);
      const auto read = hn::Set(d, kRead ? shares.read[i] : T(0));
      TTR_UNROLL
      for (int n = 0; n < kVectors; ++n) {
        const auto old = hn::Load(d, row + n * lanes);
        rest[n] = hn::NegMulAdd(w, old, rest[n]);
        const auto now = hn::MulAdd(by, rest[n], old);
        if constexpr (kRead) sum[n] = hn::MulAdd(read, now, sum[n]);
        hn::Store(now, d, row + n * lanes);
      }
    }
    if constexpr (!kRead) return;
    TTR_UNROLL
    for (int n = 0; n < kVectors; ++n) hn::Store(sum[n], d, y + c + n * lanes);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::least_squares
HWY_AFTER_NAMESPACE();

#endif  // TTR_LEAST_SQUARES_DECODE_STEP_VALUES_INL_H_
