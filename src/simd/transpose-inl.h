// Rows into columns, in registers. Compiled once for every target.

#if defined(TTR_SIMD_TRANSPOSE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_SIMD_TRANSPOSE_INL_H_
#undef TTR_SIMD_TRANSPOSE_INL_H_
#else
#define TTR_SIMD_TRANSPOSE_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"
#include "src/simd/rows-inl.h"
#include "src/simd/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::simd {
namespace HWY_NAMESPACE {

#if HWY_TARGET != HWY_SCALAR

/// A vector whose 16-byte blocks are rows[0], rows[step], rows[2 step], ... at `column`.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> LoadBlocks(D d, const T* const* rows, std::size_t step, std::int64_t column) {
  if constexpr (hn::MaxLanes(D()) * sizeof(T) == 16) {
    return hn::LoadU(d, rows[0] + column);
  } else {
    const hn::Half<D> half;
    const std::size_t blocks = hn::MaxLanes(D()) * sizeof(T) / 32;
    return hn::Combine(d, LoadBlocks(half, rows + blocks * step, step, column),
                       LoadBlocks(half, rows, step, column));
  }
}

/// The same of numbers that are as wide as those of D only with zeros behind them.
template <class D>
HWY_INLINE hn::Vec<D> LoadUpperHalves(D d, const BFloat16* const* rows, std::size_t step,
                                      std::int64_t column) {
  if constexpr (hn::MaxLanes(D()) == 4) {
    const hn::Rebind<std::uint16_t, D> narrow;
    const auto* bits = reinterpret_cast<const std::uint16_t*>(rows[0] + column);
    return hn::PromoteTo(d, hn::LoadU(narrow, bits));
  } else {
    const hn::Half<D> half;
    const std::size_t blocks = hn::MaxLanes(D()) / 8;
    return hn::Combine(d, LoadUpperHalves(half, rows + blocks * step, step, column),
                       LoadUpperHalves(half, rows, step, column));
  }
}
template <class D>
HWY_INLINE hn::Vec<D> LoadBlocks(D d, const BFloat16* const* rows, std::size_t step,
                                 std::int64_t column) {
  const hn::RebindToUnsigned<D> bits;
  return hn::BitCast(d, hn::ShiftLeft<16>(LoadUpperHalves(bits, rows, step, column)));
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
  for (; c + kBlock <= columns; c += kBlock) {
    for (std::size_t r = 0; r < COUNT; r += hn::Lanes(d)) {
      const auto load = [&](std::int64_t row)
                            HWY_ATTR { return LoadBlocks(d, rows + r + row, kBlock, c); };
      TransposeBlocks(d, load, out + c * COUNT + r, COUNT);
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
