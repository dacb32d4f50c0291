// One token in place: one read and one write of A and B. Compiled once for every target.

#if defined(TTR_LEAST_SQUARES_DECODE_STATE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_LEAST_SQUARES_DECODE_STATE_INL_H_
#undef TTR_LEAST_SQUARES_DECODE_STATE_INL_H_
#else
#define TTR_LEAST_SQUARES_DECODE_STATE_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "hwy/highway.h"
#include "src/engines/least_squares/scratch.h"
#include "src/engines/least_squares/sequence/gather-inl.h"
#include "src/simd/prefetcher.h"
#include "src/simd/unroll.h"
#include "src/simd/vector_map-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::least_squares {
namespace HWY_NAMESPACE {

/// The bits of rows of numbers, added up: two matrices with the same sum are the same, but for a
/// chance of 2^-32.
template <class T>
class BitSum {
 public:
  using Tag = hn::CappedTag<T, kUnit>;
  using Bits = hn::RebindToUnsigned<Tag>;

  BitSum() : sum_(hn::Zero(Bits())) {}  // compiled for the target, as one made by itself is not
  void NextRow() { sum_ = hn::RotateRight<1>(sum_); }
  void Add(hn::Vec<Tag> x) { sum_ = hn::Add(sum_, hn::BitCast(Bits(), x)); }
  void Store(T* to) const { hn::StoreU(hn::BitCast(Tag(), sum_), Tag(), to); }
  bool Is(const T* stored) const {
    const auto other = hn::BitCast(Bits(), hn::LoadU(Tag(), stored));
    return hn::AllTrue(Bits(), hn::Eq(sum_, other));
  }

 private:
  hn::Vec<Bits> sum_;
};

/// A vector of `count` numbers, and zeros behind them.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> LoadPart(D d, const T* from, std::size_t count) {
  if (count == hn::Lanes(d)) return hn::LoadU(d, from);
  return sn::LoadSome(d, from, static_cast<std::int64_t>(count));
}
template <class D, class T = hn::TFromD<D>>
HWY_INLINE void StorePart(hn::Vec<D> x, D d, T* to, std::size_t count) {
  if (count == hn::Lanes(d)) return hn::StoreU(x, d, to);
  sn::StoreSome(x, d, to, static_cast<std::int64_t>(count));
}

/// Calls strip(first column, vectors as a constant, numbers in the last of them) for all columns of
/// a matrix; the vectors of a strip are held in registers.
template <class D, class Strip>
HWY_INLINE void ForStrips(D d, std::int64_t columns, const Strip& strip) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t c = 0;
  const auto run = [&](auto vectors) HWY_ATTR {
    for (; c + vectors() * lanes <= columns; c += vectors() * lanes) {
      strip(c, vectors, static_cast<std::size_t>(lanes));
    }
  };
  run(std::integral_constant<int, 8>());
  run(std::integral_constant<int, 4>());
  run(std::integral_constant<int, 1>());
  if (c < columns) {
    strip(c, std::integral_constant<int, 1>(), static_cast<std::size_t>(columns - c));
  }
}

/// Forgetting leaves zeros, where a number was not finite, too.
template <class T>
HWY_INLINE void Forget(void* matrix, std::int64_t stride, std::int64_t rows, std::int64_t columns) {
  T* row = static_cast<T*>(matrix);
  for (std::int64_t i = 0; i < rows; ++i, row += stride) std::fill(row, row + columns, T(0));
}

/// A <- g A + k k^T in the caller's state, k times sqrt(w); g = 0 forgets, whatever was there.
/// Adds up the bits that A had in `before`, those that it has in `after`.
template <class T>
HWY_INLINE void WriteGram(const Memory& memory, T g, const T* k, BitSum<T>& before,
                          BitSum<T>& after) {
  const hn::CappedTag<T, kUnit> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const std::int64_t key_dim = memory.key_dim(), stride = memory.state.a_stride;
  if (g == 0) Forget<T>(memory.state.a, stride, key_dim, key_dim);
  const auto fade = hn::Set(d, g);
  // Sums of their own stay in registers: those behind the references would be stored for every
  // vector.
  BitSum<T> was, is;
  ForStrips(d, key_dim, [&](std::int64_t c, auto vectors, std::size_t last) HWY_ATTR {
    constexpr int kVectors = vectors();
    hn::Vec<decltype(d)> key[kVectors];
    TTR_UNROLL
    for (int n = 0; n < kVectors; ++n) key[n] = hn::Load(d, k + c + n * lanes);
    T* HWY_RESTRICT row = static_cast<T*>(memory.state.a) + c;
    const T* upcoming = static_cast<const T*>(memory.upcoming.a);
    for (std::int64_t i = 0; i < key_dim; ++i, row += stride) {
      const auto by = hn::Set(d, k[i]);
      if (upcoming != nullptr) simd::FetchRow(upcoming + i * stride + c, kVectors * lanes);
      was.NextRow();
      is.NextRow();
      TTR_UNROLL
      for (int n = 0; n < kVectors; ++n) {
        const auto old = kVectors > 1 ? hn::LoadU(d, row + n * lanes) : LoadPart(d, row, last);
        was.Add(old);
        const auto now = hn::MulAdd(by, key[n], hn::Mul(fade, old));
        is.Add(now);
        if constexpr (kVectors > 1) {
          hn::StoreU(now, d, row + n * lanes);
        } else {
          StorePart(now, d, row, last);
        }
      }
    }
  });
  before = was;
  after = is;
}

/// The bits of A as they are, added up in the same order.
template <class T>
HWY_INLINE BitSum<T> BitsOfGram(const Memory& memory) {
  const hn::CappedTag<T, kUnit> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  BitSum<T> bits;
  ForStrips(d, memory.key_dim(), [&](std::int64_t c, auto vectors, std::size_t last) HWY_ATTR {
    constexpr int kVectors = vectors();
    const T* row = static_cast<const T*>(memory.state.a) + c;
    for (std::int64_t i = 0; i < memory.key_dim(); ++i, row += memory.state.a_stride) {
      bits.NextRow();
      TTR_UNROLL
      for (int n = 0; n < kVectors; ++n) {
        bits.Add(kVectors > 1 ? hn::LoadU(d, row + n * lanes) : LoadPart(d, row, last));
      }
    }
  });
  return bits;
}

/// y = M^T x of `rows` rows of `columns` numbers. `y` is written by whole vectors.
template <class T>
HWY_INLINE void ReadRows(const Block<T>& m, std::int64_t rows, std::int64_t columns, const T* x,
                         T* y) {
  const hn::CappedTag<T, kUnit> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  ForStrips(d, columns, [&](std::int64_t c, auto vectors, std::size_t last) HWY_ATTR {
    constexpr int kVectors = vectors();
    hn::Vec<decltype(d)> sum[kVectors];
    TTR_UNROLL
    for (int n = 0; n < kVectors; ++n) sum[n] = hn::Zero(d);
    const T* row = m.data + c;
    for (std::int64_t i = 0; i < rows; ++i, row += m.stride) {
      const auto by = hn::Set(d, x[i]);
      TTR_UNROLL
      for (int n = 0; n < kVectors; ++n) {
        const auto number = kVectors > 1 ? hn::LoadU(d, row + n * lanes) : LoadPart(d, row, last);
        sum[n] = hn::MulAdd(by, number, sum[n]);
      }
    }
    TTR_UNROLL
    for (int n = 0; n < kVectors; ++n) hn::StoreU(sum[n], d, y + c + n * lanes);
  });
}

/// B <- g B + k v^T in the caller's state, k and v times sqrt(w), and y = B^T x after it; kRead =
/// false: no y.
template <bool kRead, class T>
HWY_INLINE void WriteValues(const Memory& memory, T g, const T* k, const T* v, const T* x, T* y) {
  const hn::CappedTag<T, kUnit> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const std::int64_t key_dim = memory.key_dim(), stride = memory.state.b_stride;
  if (g == 0) Forget<T>(memory.state.b, stride, key_dim, memory.value_dim());
  const auto fade = hn::Set(d, g);
  ForStrips(d, memory.value_dim(), [&](std::int64_t c, auto vectors, std::size_t last) HWY_ATTR {
    constexpr int kVectors = vectors();
    hn::Vec<decltype(d)> sum[kVectors], value[kVectors];
    TTR_UNROLL
    for (int n = 0; n < kVectors; ++n) {
      sum[n] = hn::Zero(d);
      value[n] = hn::Load(d, v + c + n * lanes);
    }
    T* HWY_RESTRICT row = static_cast<T*>(memory.state.b) + c;
    const T* const upcoming = static_cast<const T*>(memory.upcoming.b);
    for (std::int64_t i = 0; i < key_dim; ++i, row += stride) {
      const auto by = hn::Set(d, k[i]);
      const auto read = hn::Set(d, kRead ? x[i] : T(0));
      if (upcoming != nullptr) simd::FetchRow(upcoming + i * stride + c, kVectors * lanes);
      TTR_UNROLL
      for (int n = 0; n < kVectors; ++n) {
        const auto old = kVectors > 1 ? hn::LoadU(d, row + n * lanes) : LoadPart(d, row, last);
        const auto now = hn::MulAdd(by, value[n], hn::Mul(fade, old));
        if constexpr (kRead) sum[n] = hn::MulAdd(read, now, sum[n]);
        if constexpr (kVectors > 1) {
          hn::StoreU(now, d, row + n * lanes);
        } else {
          StorePart(now, d, row, last);
        }
      }
    }
    if constexpr (!kRead) return;
    TTR_UNROLL
    for (int n = 0; n < kVectors; ++n) hn::StoreU(sum[n], d, y + c + n * lanes);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::least_squares
HWY_AFTER_NAMESPACE();

#endif  // TTR_LEAST_SQUARES_DECODE_STATE_INL_H_
