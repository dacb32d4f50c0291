// Products in bfloat16 by matrix tiles (simd/bf16_tiles.h): what a chunk reads of a strip, all of
// it at once, before errors and outputs are made of it. Rows of tiles are tokens: keys that erase
// and the queries of one head together, those of two more heads together. The other factor is the
// strip's copy of pairs as it lies.
//
// Tiles do not write. A chunk's eight tokens are a quarter of what a product of tiles sums over,
// and floats that are in registers to be decayed and copied are multiplied there.
//
// Compiled once for every target; only where kHasBf16Tiles is there anything of it.

#if defined(TTR_FAST_WEIGHTS_CHUNKED_BF16_TILES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_FAST_WEIGHTS_CHUNKED_BF16_TILES_INL_H_
#undef TTR_FAST_WEIGHTS_CHUNKED_BF16_TILES_INL_H_
#else
#define TTR_FAST_WEIGHTS_CHUNKED_BF16_TILES_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "hwy/highway.h"
#include "src/engines/fast_weights/layout.h"
#include "src/engines/fast_weights/scratch.h"
#include "src/simd/bf16_pairs-inl.h"
#include "src/simd/bf16_tiles.h"
#include "src/simd/transpose-inl.h"

#undef TTR_HAS_BF16_TILES
#define TTR_HAS_BF16_TILES TTR_BF16_PAIRS_OF_X86

HWY_BEFORE_NAMESPACE();
namespace ttr::fast_weights {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace sn = ttr::simd::HWY_NAMESPACE;

template <class T>
inline constexpr bool kHasBf16Tiles = TTR_HAS_BF16_TILES && std::is_same_v<T, float>;

#if TTR_HAS_BF16_TILES

using simd::kTileSide;
static_assert(kTileSide == 2 * kChunk && kTileNumbers == kTileSide * kTileSide);

/// The registers; of a strip's second vector the one behind.
inline constexpr int kSums = 0, kLeft = 2, kRestLeft = 3, kRight = 4, kRestRight = 6;

/// Their shapes for products of so many `readers`, of kChunk rows each, with a memory of `rows`
/// rows: for as long as this lives, in this thread.
class TileRegisters {
 public:
  TileRegisters(std::int64_t readers, std::int64_t rows) {
    simd::TileShapes shapes;
    const auto shape = [&](int tile, std::int64_t height, std::int64_t width) {
      shapes.rows[tile] = static_cast<std::uint8_t>(height);
      shapes.row_bytes[tile] = static_cast<std::uint16_t>(4 * width);
    };
    const std::int64_t height = readers > 1 ? kTileSide : kChunk;
    const std::int64_t rest = std::max<std::int64_t>(common::CeilDiv(rows, 2) % kTileSide, 1);
    shape(kLeft, height, kTileSide);
    shape(kRestLeft, height, rest);
    for (const int vector : {0, 1}) {
      shape(kSums + vector, height, kTileSide);
      shape(kRight + vector, kTileSide, kTileSide);
      shape(kRestRight + vector, rest, kTileSide);
    }
    simd::SetTileShapes(shapes);
  }
  ~TileRegisters() { simd::ReleaseTiles(); }
  TileRegisters(const TileRegisters&) = delete;
  TileRegisters& operator=(const TileRegisters&) = delete;
};

/// Sums += left times NV tiles of the strip, side by side.
template <int NV, int LEFT, int RIGHT>
HWY_INLINE void AddTiles(const std::uint32_t* left, const std::uint32_t* right) {
  constexpr std::int64_t kBytes = 4 * NV * kTileSide;
  simd::LoadTile<LEFT>(left, 4 * kTileSide);
  simd::LoadTile<RIGHT>(right, kBytes);
  simd::AddTileProducts<kSums, LEFT, RIGHT>();
  if constexpr (NV == 2) {
    simd::LoadTile<RIGHT + 1>(right + kTileSide, kBytes);
    simd::AddTileProducts<kSums + 1, LEFT, RIGHT + 1>();
  }
}

/// found[r W ...] = row r of two readers times the strip of `pairs` pairs of rows, by
/// TileRegisters. Returns the tiles of the next two.
template <int NV>
HWY_INLINE const std::uint32_t* MultiplyTiles(const std::uint32_t* readers,
                                              const std::uint32_t* strip, std::int64_t pairs,
                                              float* found) {
  constexpr std::int64_t kWidth = NV * kTileSide;
  simd::ZeroTile<kSums>();
  if constexpr (NV == 2) simd::ZeroTile<kSums + 1>();
  for (; pairs >= kTileSide; pairs -= kTileSide) {
    AddTiles<NV, kLeft, kRight>(readers, strip);
    readers += kTileNumbers;
    strip += kTileSide * kWidth;
  }
  if (pairs > 0) {
    AddTiles<NV, kRestLeft, kRestRight>(readers, strip);
    readers += kTileNumbers;
  }
  simd::StoreTile<kSums>(found, 4 * kWidth);
  if constexpr (NV == 2) simd::StoreTile<kSums + 1>(found + kTileSide, 4 * kWidth);
  return readers;
}

/// Columns of a chunk [rows][kChunk] of reader number `reader`, rounded, to its rows of `tiles`;
/// `zeros`: kChunk of them.
inline void TileRowsOf(const float* columns, std::int64_t rows, const float* zeros,
                       std::int64_t reader, std::uint32_t* tiles) {
  constexpr std::int64_t kBlock = 2 * kTileSide;  // rows of the memory
  const sn::Wide d;
  tiles += reader / 2 * TileBlocks(rows) * kTileNumbers + reader % 2 * kChunk * kTileSide;
  for (std::int64_t first = 0; first < rows; first += kBlock, tiles += kTileNumbers) {
    const float* at[kBlock];
    for (std::int64_t i = 0; i < kBlock; ++i) {
      at[i] = first + i < rows ? columns + (first + i) * kChunk : zeros;
    }
    alignas(kLineBytes) float turned[kChunk * kBlock];
    sn::Transpose<kBlock>(at, kChunk, turned);
    for (std::int64_t token = 0; token < kChunk; ++token) {
      const float* const row = turned + token * kBlock;
      const auto rounded = sn::RoundBoth(hn::Load(d, row), hn::Load(d, row + kTileSide));
      hn::Store(rounded, sn::Pairs(), tiles + token * kTileSide);
    }
  }
}

#endif

}  // namespace HWY_NAMESPACE
}  // namespace ttr::fast_weights
HWY_AFTER_NAMESPACE();

#endif  // TTR_FAST_WEIGHTS_CHUNKED_BF16_TILES_INL_H_
