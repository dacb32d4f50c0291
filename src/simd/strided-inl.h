// Transposition between rows of any stride. Compiled once for every target.

#if defined(TTR_SIMD_STRIDED_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_SIMD_STRIDED_INL_H_
#undef TTR_SIMD_STRIDED_INL_H_
#else
#define TTR_SIMD_STRIDED_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"
#include "src/simd/transpose-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::simd {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET != HWY_SCALAR

/// A vector whose 16-byte blocks are in[0], in[step], in[2 step], ...
template <class D, class T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> LoadBlocksStrided(D d, const T* in, std::int64_t step) {
  if constexpr (hn::MaxLanes(D()) * sizeof(T) == 16) {
    return hn::LoadU(d, in);
  } else {
    const hn::Half<D> half;
    constexpr std::int64_t kBlocks = hn::MaxLanes(D()) * sizeof(T) / 32;
    return hn::Combine(d, LoadBlocksStrided(half, in + kBlocks * step, step),
                       LoadBlocksStrided(half, in, step));
  }
}

#endif  // HWY_TARGET != HWY_SCALAR

/// out[c out_stride + r] = in[r in_stride + c], r < rows, c < columns; both multiples of 16, and
/// `out` aligned.
template <class T>
HWY_INLINE void TransposeStrided(const T* HWY_RESTRICT in, std::int64_t in_stride,
                                 std::int64_t rows, std::int64_t columns, T* HWY_RESTRICT out,
                                 std::int64_t out_stride) {
#if HWY_TARGET != HWY_SCALAR
  const hn::CappedTag<T, 16> d;
  constexpr std::int64_t kBlock = 16 / sizeof(T);
  constexpr std::int64_t kLanes = hn::MaxLanes(hn::CappedTag<T, 16>());
  for (std::int64_t r = 0; r < rows; r += kLanes) {
    for (std::int64_t c = 0; c < columns; c += kBlock) {
      const T* const from = in + r * in_stride + c;
      const auto load = [&](std::int64_t row) HWY_ATTR {
        return LoadBlocksStrided(d, from + row * in_stride, kBlock * in_stride);
      };
      TransposeBlocks(d, load, out + c * out_stride + r, out_stride);
    }
  }
#else
  for (std::int64_t c = 0; c < columns; ++c) {
    for (std::int64_t r = 0; r < rows; ++r) out[c * out_stride + r] = in[r * in_stride + c];
  }
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::simd
HWY_AFTER_NAMESPACE();

#endif  // TTR_SIMD_STRIDED_INL_H_
