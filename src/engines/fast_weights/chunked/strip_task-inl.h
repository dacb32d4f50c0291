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

/// The same of values or outputs: of T, or of bfloat16.
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
  OuterRows<T> values;
  OutputRows<T> outputs;
  SavedRows<T> saved;
  Prefetcher& prefetcher;

  /// Rows of the memory, without padding.
  std::int64_t rows() const { return (options.paired() ? 2 : 1) * memory.key_dim; }
  /// Numbers of a chunk's columns.
  std::int64_t columns() const { return StateRows<T>(options, memory.key_dim) * kChunk; }
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

/// tile[r] += row i + r of a chunk's `columns`, or where SEVERAL i + r `every`, times the strip;
/// with BF16, of their `pairs` times its copy.
template <bool BF16, bool SEVERAL, int R, int NV, class T>
HWY_INLINE void ReadStrip(const StripTask<T>& s, const T* columns, const std::uint32_t* pairs,
                          std::int64_t i, std::int64_t every,
                          ln::Tile<hn::ScalableTag<T>, R, NV>& tile) {
  const hn::ScalableTag<T> d;
  constexpr std::size_t kWidth = NV * hn::MaxLanes(hn::ScalableTag<T>());
  const T* HWY_RESTRICT strip = s.strip;
  const std::int64_t rows = s.rows();
  if constexpr (BF16) {
    MulAddPairs<SEVERAL>(pairs + i, SEVERAL ? every : 1, kChunk, s.pairs, (rows + 1) / 2, tile);
  } else if constexpr (SEVERAL) {
    ln::Accumulate<false>(d, columns + i, every, kChunk, strip, kWidth, rows, tile);
  } else {
    ln::MulAddRows<1, kChunk>(d, columns + i, strip, kWidth, rows, tile);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::fast_weights
HWY_AFTER_NAMESPACE();

#endif  // TTR_FAST_WEIGHTS_CHUNKED_STRIP_TASK_INL_H_
