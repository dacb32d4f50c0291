// Sums of the lanes of vectors. Compiled once for every target.

#if defined(TTR_FAST_WEIGHTS_ADJOINT_TALLIES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_FAST_WEIGHTS_ADJOINT_TALLIES_INL_H_
#undef TTR_FAST_WEIGHTS_ADJOINT_TALLIES_INL_H_
#else
#define TTR_FAST_WEIGHTS_ADJOINT_TALLIES_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/fast_weights/adjoint/chunk-inl.h"
#include "src/engines/fast_weights/adjoint/layout.h"
#include "src/simd/lane_sums-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::fast_weights::gradient {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace sn = ttr::simd::HWY_NAMESPACE;

/// Adds up the lanes of vectors, as many at a time as a vector has lanes.
template <class T>
class LaneSums {
 public:
  /// *out += the sum of the lanes of `v`, at the latest with Flush.
  HWY_INLINE void Add(hn::Vec<hn::ScalableTag<T>> v, T* out) {
    const hn::ScalableTag<T> d;
    hn::Store(v, d, vectors_ + count_ * kLanes);
    targets_[count_] = out;
    if (++count_ == kLanes) Flush();
  }

  void Flush() {
    const hn::ScalableTag<T> d;
    for (std::int64_t i = count_; i < kLanes; ++i) {
      hn::Store(hn::Zero(d), d, vectors_ + i * kLanes);
    }
    alignas(64) T sums[kLanes];
    hn::Store(sn::SumVectors<kLanes>(d, vectors_), d, sums);
    for (std::int64_t i = 0; i < count_; ++i) *targets_[i] += sums[i];
    count_ = 0;
  }

 private:
  static constexpr std::int64_t kLanes = Lanes<T>();

  alignas(64) T vectors_[kLanes * kLanes];
  T* targets_[kLanes];
  std::int64_t count_ = 0;
};

/// out[i] = the sum of the lanes of tally row i.
template <class T>
void SumTallies(const T* tallies, T* out) {
  const hn::ScalableTag<T> d;
  if constexpr (Lanes<T>() == kTokens) {
    hn::StoreU(sn::SumVectors<kTokens>(d, tallies), d, out);
    return;
  }
  LaneSums<T> sums;
  std::fill(out, out + kTokens, T(0));
  for (int i = 0; i < kTokens; ++i) sums.Add(hn::Load(d, tallies + i * kTokens), out + i);
  sums.Flush();
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::fast_weights::gradient
HWY_AFTER_NAMESPACE();

#endif  // TTR_FAST_WEIGHTS_ADJOINT_TALLIES_INL_H_
