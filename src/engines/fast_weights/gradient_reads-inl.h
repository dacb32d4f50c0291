// The reads of a token of paired memories, backwards: A += q^T dy, dq += dy M^T. Compiled once for
// every target.

#if defined(TTR_FAST_WEIGHTS_GRADIENT_READS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_FAST_WEIGHTS_GRADIENT_READS_INL_H_
#undef TTR_FAST_WEIGHTS_GRADIENT_READS_INL_H_
#else
#define TTR_FAST_WEIGHTS_GRADIENT_READS_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/fast_weights/gradient_paired_layout.h"
#include "src/simd/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::fast_weights::gradient {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

template <class T>
HWY_INLINE void Unread(const PairedCall<T>& call, const PairedToken& at,
                       const PairedScratch<T>& scratch, const T* memory) {
  const hn::ScalableTag<T> d;
  constexpr std::int64_t kLanes = hn::MaxLanes(d);
  const std::int64_t keys = scratch.keys;
  for (std::int64_t p = 0; p < call.sizes.queries; ++p) {
    const T* const query = call.query.data + p * call.query.head_stride + at.t * call.query.stride;
    T* const d_query =
        call.d_query.data + p * call.d_query.head_stride + at.t * call.d_query.stride;
    const T* const dy = call.d_output.data + p * call.d_output.head_stride +
                        at.t * call.d_output.stride + at.column;
    hn::Vec<decltype(d)> weights[kPairedColumns];
    TTR_UNROLL
    for (int c = 0; c < kPairedColumns; ++c) weights[c] = hn::Set(d, dy[c]);
    for (std::int64_t k = 0; k < keys; k += kLanes) {
      const auto q = hn::Load(d, query + k);
      auto by_query = hn::Load(d, d_query + k);
      TTR_UNROLL
      for (int c = 0; c < kPairedColumns; ++c) {
        const std::int64_t x = k * kPairedColumns + c * kLanes;
        by_query = hn::MulAdd(weights[c], hn::Load(d, memory + x), by_query);
        const auto adjoint = hn::Load(d, scratch.adjoint + x);
        hn::Store(hn::MulAdd(weights[c], q, adjoint), d, scratch.adjoint + x);
      }
      hn::Store(by_query, d, d_query + k);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::fast_weights::gradient
HWY_AFTER_NAMESPACE();

#endif  // TTR_FAST_WEIGHTS_GRADIENT_READS_INL_H_
