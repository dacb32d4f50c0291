// One strip of the memory beside the rows of a chunk. Compiled once for every target.

#if defined(TTR_FAST_WEIGHTS_CHUNKED_STRIP_TASK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_FAST_WEIGHTS_CHUNKED_STRIP_TASK_INL_H_
#undef TTR_FAST_WEIGHTS_CHUNKED_STRIP_TASK_INL_H_
#else
#define TTR_FAST_WEIGHTS_CHUNKED_STRIP_TASK_INL_H_
#endif

#include <cstdint>
#include <type_traits>

#include "hwy/highway.h"
#include "src/engines/fast_weights/chunked/bf16_products-inl.h"
#include "src/engines/fast_weights/chunked/bf16_tiles-inl.h"
#include "src/engines/fast_weights/chunked/prepared.h"
#include "src/engines/fast_weights/operands/gather-inl.h"
#include "src/linalg/tile-inl.h"
#include "src/simd/prefetcher.h"
#include "src/simd/unroll.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::fast_weights {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace ln = ttr::linalg::HWY_NAMESPACE;

/// Rows of T, one a token, of one strip's columns.
template <class T>
struct StripRows {
  T* data;
  std::int64_t stride;
  T* operator[](std::int64_t token) const { return data + token * stride; }
};

/// Rows of values or outputs, one a token, of one strip's columns: of T, or of bfloat16.
template <class T>
struct OuterRows {
  void* data;
  std::int64_t stride;
  bool bf16;

  /// Calls use(the rows) as those of their type.
  template <class Use>
  HWY_INLINE void Visit(const Use& use) const {
    if constexpr (std::is_same_v<T, float>) {
      if (bf16) return use(StripRows<BFloat16>{static_cast<BFloat16*>(data), stride});
    }
    use(StripRows<T>{static_cast<T*>(data), stride});
  }
};

/// Where errors and outputs of a chunk's rows are saved for the backward pass; null: nowhere.
template <class T>
struct SavedRows {
  StripRows<T> errors, outputs;
  std::int64_t outputs_head_stride;
};

/// Where the outputs of a chunk's rows go, past the caches if it `streams`.
template <class T>
struct OutputRows {
  OuterRows<T> rows;  // of the first query head
  std::int64_t head_stride;
  bool streams;

  OuterRows<T> Of(std::int64_t query) const {
    OuterRows<T> own = rows;
    rows.Visit([&](auto first) { own.data = first.data + query * head_stride; });
    return own;
  }
};

/// What reads the memory: columns of a chunk's rows; or their pairs; or where among all that read
/// it its products are found.
template <class T>
struct Reader {
  const T* columns;
  const std::uint32_t* pairs;
  std::int64_t number;
};

/// The readers of a chunk: keys that erase, and the queries of every head.
inline std::int64_t Erasers(const Options& options, const Memory& memory) {
  return memory.writes() && options.erases() ? 1 : 0;
}
inline std::int64_t Readers(const Options& options, const Memory& memory) {
  return Erasers(options, memory) + memory.outputs();
}

/// The strip, the chunk, and where its values and outputs are.
template <class T>
struct StripTask {
  const Options& options;
  const Memory& memory;
  const Chunk& chunk;
  const Prepared<T>& prepared;
  const ColumnScratch<T>& scratch;
  T* strip;              // [state rows][W]
  std::uint32_t* pairs;  // its copy for products in bfloat16; or null
  T* found;              // what tiles read of it (Bf16Scratch::found); or null
  OuterRows<T> values;
  OutputRows<T> outputs;
  SavedRows<T> saved;
  Prefetcher& prefetcher;

  /// Rows of the memory, without padding.
  std::int64_t rows() const { return (options.paired() ? 2 : 1) * memory.dims.key_dim; }
  /// Numbers of a chunk's columns.
  std::int64_t columns() const { return StateRows<T>(options, memory.dims.key_dim) * kChunk; }

  Reader<T> Eraser() const { return {prepared.columns.erase, prepared.pairs.erase, 0}; }
  Reader<T> Query(std::int64_t query) const {
    const std::uint32_t* const pairs_of_all = prepared.pairs.queries;
    const std::int64_t at = query * columns();
    return {prepared.columns.queries + at,
            pairs_of_all == nullptr ? nullptr : pairs_of_all + at / 2,
            Erasers(options, memory) + query};
  }
};

/// The first `count` rows of a tile to where they are saved.
template <int R, int NV, class T>
HWY_INLINE void SaveTile(std::int64_t count, const ln::Tile<hn::ScalableTag<T>, R, NV>& tile, T* to,
                         std::int64_t stride) {
  const hn::ScalableTag<T> d;
  TTR_UNROLL
  for (int r = 0; r < R; ++r) {
    if (r >= count) break;
    TTR_UNROLL
    for (int n = 0; n < NV; ++n) hn::Store(tile[r][n], d, to + r * stride + n * hn::MaxLanes(d));
  }
}

/// A tile of zeros += the rows i + r of what reads, or where SEVERAL i + r `every`, times the
/// strip; in bfloat16, times its copy.
template <Bf16Products P, bool SEVERAL, int R, int NV, class T>
HWY_INLINE void ReadStrip(const StripTask<T>& s, const Reader<T>& reader, std::int64_t i,
                          std::int64_t every, ln::Tile<hn::ScalableTag<T>, R, NV>& tile) {
  const hn::ScalableTag<T> d;
  constexpr std::size_t kWidth = NV * hn::MaxLanes(hn::ScalableTag<T>());
  const T* HWY_RESTRICT strip = s.strip;
  const std::int64_t rows = s.rows();
  if constexpr (P == Bf16Products::kTiles) {
    const T* HWY_RESTRICT found = s.found + (reader.number * kChunk + i) * kWidth;
    TTR_UNROLL
    for (int r = 0; r < R; ++r) {
      TTR_UNROLL
      for (int n = 0; n < NV; ++n) {
        tile[r][n] = hn::Load(d, found + r * every * kWidth + n * hn::MaxLanes(d));
      }
    }
  } else if constexpr (P == Bf16Products::kPairs) {
    const std::int64_t row = SEVERAL ? every : 1;
    MulAddPairs<SEVERAL>(reader.pairs + i, row, kChunk, s.pairs, (rows + 1) / 2, tile);
  } else if constexpr (SEVERAL) {
    ln::Accumulate<false>(d, reader.columns + i, every, kChunk, strip, kWidth, rows, tile);
  } else {
    ln::MulAddRows<1, kChunk>(d, reader.columns + i, strip, kWidth, rows, tile);
  }
}

/// What tiles read of the strip, for ReadStrip.
template <int NV, class T>
HWY_INLINE void ReadByTiles([[maybe_unused]] const StripTask<T>& s) {
#if TTR_HAS_BF16_TILES
  constexpr std::int64_t kWidth = NV * hn::MaxLanes(hn::ScalableTag<T>());
  const std::uint32_t* readers = s.prepared.pairs.tiles;
  T* found = s.found;
  for (std::int64_t left = Readers(s.options, s.memory); left > 0; left -= 2) {
    readers = MultiplyTiles<NV>(readers, s.pairs, CeilDiv(s.rows(), 2), found);
    found += 2 * kChunk * kWidth;
  }
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::fast_weights
HWY_AFTER_NAMESPACE();

#endif  // TTR_FAST_WEIGHTS_CHUNKED_STRIP_TASK_INL_H_
