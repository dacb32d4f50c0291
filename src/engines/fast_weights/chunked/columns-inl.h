// Rows of a chunk as columns, and the products of their pairs. Compiled once for every target.

#if defined(TTR_FAST_WEIGHTS_CHUNKED_COLUMNS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_FAST_WEIGHTS_CHUNKED_COLUMNS_INL_H_
#undef TTR_FAST_WEIGHTS_CHUNKED_COLUMNS_INL_H_
#else
#define TTR_FAST_WEIGHTS_CHUNKED_COLUMNS_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "hwy/highway.h"
#include "src/engines/fast_weights/layout.h"
#include "src/engines/fast_weights/operands/gather-inl.h"
#include "src/linalg/tile-inl.h"
#include "src/simd/transpose-inl.h"
#include "src/simd/unroll.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::fast_weights {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace ln = ttr::linalg::HWY_NAMESPACE;
namespace sn = ttr::simd::HWY_NAMESPACE;

/// out[d kChunk + i] = rows[i stride + d] for the chunk's rows and d < count; zero elsewhere.
/// `reads`: only of rows that are read.
template <class From, class T>
HWY_INLINE void PackColumns(const Memory& memory, const Chunk& chunk, const From* rows,
                            std::int64_t stride, bool reads, const From* zeros, T* out) {
  const From* pointers[kChunk];
  for (std::int64_t i = 0; i < kChunk; ++i) {
    const bool there = i < chunk.rows && (!reads || memory.Reads(chunk.first + i));
    pointers[i] = there ? rows + i * stride : zeros;
  }
  sn::Transpose<kChunk>(pointers, memory.dims.key_dim, out);
}

/// Packs the columns of rows that are used in place (KeysInPlace()), from number `offset` of each.
template <class T>
HWY_INLINE void PackRows(const Memory& memory, const Chunk& chunk, const Rows& rows,
                         std::int64_t offset, bool reads, const T* zeros, T* out) {
  const std::int64_t at = chunk.first * rows.stride + offset;
  if constexpr (std::is_same_v<T, float>) {
    if (rows.dtype == DType::kBFloat16) {
      const auto* halves = static_cast<const BFloat16*>(rows.data) + at;
      const auto* none = reinterpret_cast<const BFloat16*>(zeros);
      return PackColumns(memory, chunk, halves, rows.stride, reads, none, out);
    }
  }
  PackColumns(memory, chunk, static_cast<const T*>(rows.data) + at, rows.stride, reads, zeros, out);
}

/// Zeros below the `used` rows of columns that a memory of `rows` rows has.
template <class T>
HWY_INLINE void PadColumns(T* columns, std::int64_t used, std::int64_t rows) {
  std::fill(columns + used * kChunk, columns + rows * kChunk, T(0));
}

/// Rows i .. i + R, columns j .. j + NV vectors of the product below.
template <int R, int NV, class D, class T = hn::TFromD<D>>
HWY_INLINE void GramTile(D d, const T* left, const T* right, std::int64_t key_dim, int i, int j,
                         T* out) {
  ln::Tile<D, R, NV> tile;
  ln::SetZero(d, tile);
  ln::MulAddRows<1, kChunk>(d, left + i, right + j, kChunk, key_dim, tile);
  TTR_UNROLL
  for (int r = 0; r < R; ++r) {
    TTR_UNROLL
    for (int v = 0; v < NV; ++v) {
      hn::Store(tile[r][v], d, out + (i + r) * kChunk + j + v * hn::MaxLanes(d));
    }
  }
}

/// out[i kChunk + j] = sum_d left[d kChunk + i] right[d kChunk + j] for j <= i at least: tiles
/// above the diagonal are left out.
template <class T>
HWY_INLINE void Gram(const T* left, const T* right, std::int64_t key_dim, T* out) {
  const ChunkTag<T> d;
  constexpr int kLanes = hn::MaxLanes(ChunkTag<T>());
  constexpr int kVectors = std::min(kChunk / kLanes, 2);
  constexpr int kRows = std::min(kChunk, ln::kTileRows * 2 / kVectors);
  for (int i = 0; i < kChunk; i += kRows) {
    for (int j = 0; j < i + kRows; j += kVectors * kLanes) {
      GramTile<kRows, kVectors>(d, left, right, key_dim, i, j, out);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::fast_weights
HWY_AFTER_NAMESPACE();

#endif  // TTR_FAST_WEIGHTS_CHUNKED_COLUMNS_INL_H_
