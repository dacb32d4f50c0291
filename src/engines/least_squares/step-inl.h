// One token where the state lies: one read and one write of A and B. Compiled once for every
// target.

#if defined(TTR_LEAST_SQUARES_STEP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_LEAST_SQUARES_STEP_INL_H_
#undef TTR_LEAST_SQUARES_STEP_INL_H_
#else
#define TTR_LEAST_SQUARES_STEP_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/least_squares/layout.h"
#include "src/simd/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::least_squares {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// row <- g row + factor x; g = 0 forgets, whatever was there.
template <class T>
HWY_INLINE void WriteRow(T g, T factor, const T* x, std::int64_t count, T* row) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto fade = hn::Set(d, g);
  const auto by = hn::Set(d, factor);
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto old = g == 0 ? hn::Zero(d) : hn::Mul(fade, hn::LoadU(d, row + i));
    hn::StoreU(hn::MulAdd(by, hn::LoadU(d, x + i), old), d, row + i);
  }
  for (; i < count; ++i) row[i] = (g == 0 ? T(0) : g * row[i]) + factor * x[i];
}

/// A <- g A + k k^T and B <- g B + k v^T in the caller's state; k and v times sqrt(w).
template <class T>
HWY_INLINE void WriteInPlace(const Memory& memory, T g, const T* k, const T* v) {
  for (std::int64_t i = 0; i < memory.key_dim; ++i) {
    WriteRow(g, k[i], k, memory.key_dim, static_cast<T*>(memory.a) + i * memory.a_stride);
    WriteRow(g, k[i], v, memory.value_dim, static_cast<T*>(memory.b) + i * memory.b_stride);
  }
}

/// y = B^T x of the caller's state, x with this stride.
template <class T>
HWY_INLINE void ReadInPlace(const Memory& memory, const T* x, std::int64_t x_stride, T* y) {
  constexpr int kVectors = 4;  // columns held in registers
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const T* const b = static_cast<const T*>(memory.b);
  std::int64_t c = 0;
  for (; c + kVectors * lanes <= memory.value_dim; c += kVectors * lanes) {
    hn::Vec<decltype(d)> sum[kVectors];
    TTR_UNROLL
    for (int n = 0; n < kVectors; ++n) sum[n] = hn::Zero(d);
    for (std::int64_t i = 0; i < memory.key_dim; ++i) {
      const auto by = hn::Set(d, x[i * x_stride]);
      const T* const row = b + i * memory.b_stride + c;
      TTR_UNROLL
      for (int n = 0; n < kVectors; ++n) {
        sum[n] = hn::MulAdd(by, hn::LoadU(d, row + n * lanes), sum[n]);
      }
    }
    TTR_UNROLL
    for (int n = 0; n < kVectors; ++n) hn::StoreU(sum[n], d, y + c + n * lanes);
  }
  std::fill(y + c, y + memory.value_dim, T(0));
  for (std::int64_t i = 0; i < memory.key_dim; ++i) {
    const T by = x[i * x_stride];
    const T* const row = b + i * memory.b_stride;
    for (std::int64_t j = c; j < memory.value_dim; ++j) y[j] += by * row[j];
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::least_squares
HWY_AFTER_NAMESPACE();

#endif  // TTR_LEAST_SQUARES_STEP_INL_H_
