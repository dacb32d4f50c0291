// One token where the state lies: one read and one write of A and B. Compiled once for every
// target.

#if defined(TTR_LEAST_SQUARES_STEP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_LEAST_SQUARES_STEP_INL_H_
#undef TTR_LEAST_SQUARES_STEP_INL_H_
#else
#define TTR_LEAST_SQUARES_STEP_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "hwy/highway.h"
#include "src/engines/least_squares/layout.h"
#include "src/engines/least_squares/step_factor-inl.h"
#include "src/simd/ahead.h"
#include "src/simd/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::least_squares {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// `count` numbers, and zeros.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> LoadPart(D d, const T* from, std::size_t count) {
  if (count == hn::Lanes(d)) return hn::LoadU(d, from);
  HWY_ALIGN T part[hn::MaxLanes(D())] = {};
  std::copy(from, from + count, part);
  return hn::Load(d, part);
}
template <class D, class T = hn::TFromD<D>>
HWY_INLINE void StorePart(hn::Vec<D> x, D d, T* to, std::size_t count) {
  if (count == hn::Lanes(d)) return hn::StoreU(x, d, to);
  HWY_ALIGN T part[hn::MaxLanes(D())];
  hn::Store(x, d, part);
  std::copy(part, part + count, to);
}

/// A <- g A + k k^T in the caller's state, k times sqrt(w); g = 0 forgets, whatever was there.
/// Tells the bits that A had and has.
template <class T>
HWY_INLINE void WriteGram(const Memory& memory, T g, const T* k, BitSum<T>& before,
                          BitSum<T>& after) {
  const hn::CappedTag<T, kUnit> d;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const std::int64_t whole = memory.key_dim / lanes * lanes;
  const auto fade = hn::Set(d, g);
  // In registers: what a reference leads to would be stored for every vector.
  BitSum<T> was, is;
  const T* const upcoming = static_cast<const T*>(memory.upcoming.a);
  for (std::int64_t i = 0; i < memory.key_dim; ++i) {
    T* HWY_RESTRICT const row = static_cast<T*>(memory.a) + i * memory.a_stride;
    const auto by = hn::Set(d, k[i]);
    if (upcoming != nullptr) simd::FetchRow(upcoming + i * memory.a_stride, memory.key_dim);
    was.NextRow();
    is.NextRow();
    const auto write = [&](std::int64_t j, auto old) HWY_ATTR {
      was.Add(old);
      const auto kept = g == 0 ? hn::Zero(d) : hn::Mul(fade, old);
      const auto now = hn::MulAdd(by, hn::Load(d, k + j), kept);
      is.Add(now);
      return now;
    };
    for (std::int64_t j = 0; j < whole; j += lanes) {
      hn::StoreU(write(j, hn::LoadU(d, row + j)), d, row + j);
    }
    if (whole == memory.key_dim) continue;
    const auto rest = static_cast<std::size_t>(memory.key_dim - whole);
    StorePart(write(whole, LoadPart(d, row + whole, rest)), d, row + whole, rest);
  }
  before = was;
  after = is;
}

/// The bits of A as they are.
template <class T>
HWY_INLINE BitSum<T> BitsOfGram(const Memory& memory) {
  const hn::CappedTag<T, kUnit> d;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  BitSum<T> bits;
  for (std::int64_t i = 0; i < memory.key_dim; ++i) {
    const T* const row = static_cast<const T*>(memory.a) + i * memory.a_stride;
    bits.NextRow();
    for (std::int64_t j = 0; j < memory.key_dim; j += lanes) {
      const auto count = static_cast<std::size_t>(std::min(lanes, memory.key_dim - j));
      bits.Add(LoadPart(d, row + j, count));
    }
  }
  return bits;
}

/// Calls columns(first, vectors as a constant, numbers in the last of them) for strips of B.
template <class D, class Columns>
HWY_INLINE void ForStrips(D d, std::int64_t value_dim, const Columns& columns) {
  constexpr int kVectors = 4;  // held in registers
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t c = 0;
  for (; c + kVectors * lanes <= value_dim; c += kVectors * lanes) {
    columns(c, std::integral_constant<int, kVectors>(), static_cast<std::size_t>(lanes));
  }
  for (; c < value_dim; c += lanes) {
    columns(c, std::integral_constant<int, 1>(),
            static_cast<std::size_t>(std::min(lanes, value_dim - c)));
  }
}

/// y = B^T x of the caller's state.
template <class T>
HWY_INLINE void ReadInPlace(const Memory& memory, const T* x, T* y) {
  const hn::CappedTag<T, kUnit> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  ForStrips(d, memory.value_dim, [&](std::int64_t c, auto vectors, std::size_t last) HWY_ATTR {
    constexpr int kVectors = vectors();
    hn::Vec<decltype(d)> sum[kVectors];
    TTR_UNROLL
    for (int n = 0; n < kVectors; ++n) sum[n] = hn::Zero(d);
    const T* row = static_cast<const T*>(memory.b) + c;
    for (std::int64_t i = 0; i < memory.key_dim; ++i, row += memory.b_stride) {
      const auto by = hn::Set(d, x[i]);
      TTR_UNROLL
      for (int n = 0; n < kVectors; ++n) {
        const auto b = kVectors > 1 ? hn::LoadU(d, row + n * lanes) : LoadPart(d, row, last);
        sum[n] = hn::MulAdd(by, b, sum[n]);
      }
    }
    TTR_UNROLL
    for (int n = 0; n < kVectors; ++n) hn::StoreU(sum[n], d, y + c + n * lanes);
  });
}

/// B <- g B + k v^T in the caller's state, k and v times sqrt(w), and y = B^T x after it; without x
/// no y.
template <class T>
HWY_INLINE void WriteValues(const Memory& memory, T g, const T* k, const T* v, const T* x, T* y) {
  const hn::CappedTag<T, kUnit> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto fade = hn::Set(d, g);
  ForStrips(d, memory.value_dim, [&](std::int64_t c, auto vectors, std::size_t last) HWY_ATTR {
    constexpr int kVectors = vectors();
    hn::Vec<decltype(d)> sum[kVectors], value[kVectors];
    TTR_UNROLL
    for (int n = 0; n < kVectors; ++n) {
      sum[n] = hn::Zero(d);
      value[n] = hn::Load(d, v + c + n * lanes);
    }
    T* row = static_cast<T*>(memory.b) + c;
    const T* const upcoming = static_cast<const T*>(memory.upcoming.b);
    for (std::int64_t i = 0; i < memory.key_dim; ++i, row += memory.b_stride) {
      const auto by = hn::Set(d, k[i]);
      if (upcoming != nullptr) simd::FetchRow(upcoming + i * memory.b_stride + c, kVectors * lanes);
      const auto read = hn::Set(d, x == nullptr ? T(0) : x[i]);
      TTR_UNROLL
      for (int n = 0; n < kVectors; ++n) {
        const auto old = kVectors > 1 ? hn::LoadU(d, row + n * lanes) : LoadPart(d, row, last);
        const auto now = hn::MulAdd(by, value[n], g == 0 ? hn::Zero(d) : hn::Mul(fade, old));
        sum[n] = hn::MulAdd(read, now, sum[n]);
        if constexpr (kVectors > 1) {
          hn::StoreU(now, d, row + n * lanes);
        } else {
          StorePart(now, d, row, last);
        }
      }
    }
    if (x == nullptr) return;
    TTR_UNROLL
    for (int n = 0; n < kVectors; ++n) hn::StoreU(sum[n], d, y + c + n * lanes);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::least_squares
HWY_AFTER_NAMESPACE();

#endif  // TTR_LEAST_SQUARES_STEP_INL_H_
