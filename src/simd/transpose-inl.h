// Rows into columns, in registers. Compiled once for every target.

#if defined(TTR_SIMD_TRANSPOSE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_SIMD_TRANSPOSE_INL_H_
#undef TTR_SIMD_TRANSPOSE_INL_H_
#else
#define TTR_SIMD_TRANSPOSE_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "hwy/highway.h"
#include "src/simd/rows-inl.h"
#include "src/simd/unroll.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::simd {
namespace HWY_NAMESPACE {

#if HWY_TARGET != HWY_SCALAR

/// A vector whose 16-byte blocks are rows[0], rows[step], rows[2 step], ... at `column`, of numbers
/// as wide as D's.
template <class D, class From>
HWY_INLINE hn::Vec<D> LoadBlocks(D d, const From* const* rows, std::size_t step,
                                 std::int64_t column) {
  using T = hn::TFromD<D>;
  static_assert(sizeof(From) == sizeof(T));
  if constexpr (hn::MaxLanes(D()) * sizeof(T) == 16) {
    return hn::LoadU(d, reinterpret_cast<const T*>(rows[0] + column));
  } else {
    const hn::Half<D> half;
    const std::size_t blocks = hn::MaxLanes(D()) * sizeof(T) / 32;
    return hn::Combine(d, LoadBlocks(half, rows + blocks * step, step, column),
                       LoadBlocks(half, rows, step, column));
  }
}

/// out[m stride + lane], m < n: the m-th number of every 16-byte block of load(0) .. load(n - 1),
/// where n = 4 (float) or 2 (double) are in a block; lane b n + i holds that of block b of load(i).
template <class D, class Load>
HWY_INLINE void TransposeBlocks(D d, const Load& load, float* out, std::int64_t stride) {
  const hn::RepartitionToWide<D> wide;
  const auto x0 = load(0), x1 = load(1), x2 = load(2), x3 = load(3);
  const auto a = hn::BitCast(wide, hn::InterleaveLower(d, x0, x1));
  const auto b = hn::BitCast(wide, hn::InterleaveLower(d, x2, x3));
  const auto e = hn::BitCast(wide, hn::InterleaveUpper(d, x0, x1));
  const auto f = hn::BitCast(wide, hn::InterleaveUpper(d, x2, x3));
  hn::Store(hn::BitCast(d, hn::InterleaveLower(wide, a, b)), d, out);
  hn::Store(hn::BitCast(d, hn::InterleaveUpper(wide, a, b)), d, out + stride);
  hn::Store(hn::BitCast(d, hn::InterleaveLower(wide, e, f)), d, out + 2 * stride);
  hn::Store(hn::BitCast(d, hn::InterleaveUpper(wide, e, f)), d, out + 3 * stride);
}

template <class D, class Load>
HWY_INLINE void TransposeBlocks(D d, const Load& load, double* out, std::int64_t stride) {
  const auto x0 = load(0), x1 = load(1);
  hn::Store(hn::InterleaveLower(d, x0, x1), d, out);
  hn::Store(hn::InterleaveUpper(d, x0, x1), d, out + stride);
}

#endif  // HWY_TARGET != HWY_SCALAR

/// out[c COUNT + r] = rows[r][c], c < columns. `out` is aligned; COUNT is a multiple of a vector.
/// Rows are of T or, where that is float, of bfloat16.
template <std::size_t COUNT, class From, class T>
HWY_INLINE void Transpose(const From* const* rows, std::int64_t columns, T* HWY_RESTRICT out) {
  std::int64_t c = 0;
#if HWY_TARGET != HWY_SCALAR
  const hn::CappedTag<T, COUNT> d;
  constexpr std::int64_t kBlock = 16 / sizeof(T);
  constexpr std::int64_t kLoaded = 16 / sizeof(From);
  for (; c + kLoaded <= columns; c += kLoaded) {
    for (std::size_t r = 0; r < COUNT; r += hn::Lanes(d)) {
      T* const to = out + c * COUNT + r;
      if constexpr (std::is_same_v<From, T>) {
        const auto load = [&](std::int64_t row)
                              HWY_ATTR { return LoadBlocks(d, rows + r + row, kBlock, c); };
        TransposeBlocks(d, load, to, COUNT);
      } else {
        // With zeros below, bfloat16 is float.
        const hn::Repartition<std::uint16_t, decltype(d)> narrow;
        const auto zero = hn::Zero(narrow);
        hn::Vec<decltype(narrow)> x[kBlock];
        TTR_UNROLL
        for (std::int64_t row = 0; row < kBlock; ++row) {
          x[row] = LoadBlocks(narrow, rows + r + row, kBlock, c);
        }
        const auto lower = [&](std::int64_t row) HWY_ATTR {
          return hn::BitCast(d, hn::InterleaveLower(narrow, zero, x[row]));
        };
        const auto upper = [&](std::int64_t row) HWY_ATTR {
          return hn::BitCast(d, hn::InterleaveUpper(narrow, zero, x[row]));
        };
        TransposeBlocks(d, lower, to, COUNT);
        TransposeBlocks(d, upper, to + kBlock * COUNT, COUNT);
      }
    }
  }
#endif
  for (; c < columns; ++c) {
    for (std::size_t r = 0; r < COUNT; ++r) out[c * COUNT + r] = Widen(rows[r][c]);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::simd
HWY_AFTER_NAMESPACE();

#endif  // TTR_SIMD_TRANSPOSE_INL_H_
