// A memory through its sequence, or a time slice of it, in blocks of chunks. Compiled once for
// every target.

#if defined(TTR_FAST_WEIGHTS_CHUNKED_RUN_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_FAST_WEIGHTS_CHUNKED_RUN_INL_H_
#undef TTR_FAST_WEIGHTS_CHUNKED_RUN_INL_H_
#else
#define TTR_FAST_WEIGHTS_CHUNKED_RUN_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "src/engines/fast_weights/chunked/prepare-inl.h"
#include "src/engines/fast_weights/chunked/save-inl.h"
#include "src/engines/fast_weights/chunked/strip-inl.h"
#include "src/engines/fast_weights/operands/rows-inl.h"
#include "src/simd/caches.h"
#include "src/simd/prefetcher.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::fast_weights {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

template <class T>
constexpr std::int64_t Lanes() {
  return hn::MaxLanes(hn::ScalableTag<T>());
}

/// visit(column, width) for the strips of a memory: two vectors, or one at the end.
template <class T, class Visit>
HWY_INLINE void ForStrips(const Memory& memory, const Visit& visit) {
  for (std::int64_t c = memory.extent.first_column; c < memory.extent.end_column;) {
    const std::int64_t width = memory.dims.value_dim - c > Lanes<T>() ? 2 * Lanes<T>() : Lanes<T>();
    visit(c, width);
    c += width;
  }
}

/// One matrix of a memory from `tensor`, the caller's, to the strips, where it begins at row
/// `first`. Columns that a strip has beyond the memory's last are zero.
template <class T>
void LoadStrips(const Memory& memory, const Rows& tensor, std::int64_t first,
                std::int64_t state_rows, T* strips) {
  ForStrips<T>(memory, [&](std::int64_t c, std::int64_t width) {
    const std::int64_t filled = std::min(width, memory.dims.value_dim - c);
    T* strip = strips + c * state_rows + first * width;
    for (std::int64_t row = 0; row < memory.dims.key_dim; ++row, strip += width) {
      const T* from = static_cast<const T*>(tensor.data) + row * tensor.stride + c;
      std::fill(std::copy(from, from + filled, strip), strip + width, T(0));
    }
    // Tiles of rows go beyond the last.
    std::fill(strip, strips + c * state_rows + state_rows * width, T(0));
  });
}

/// One matrix of a memory from the strips back to `tensor`.
template <class T>
void StoreStrips(const Memory& memory, const Rows& tensor, std::int64_t first,
                 std::int64_t state_rows, const T* strips) {
  ForStrips<T>(memory, [&](std::int64_t c, std::int64_t width) {
    const std::int64_t filled = std::min(width, memory.dims.value_dim - c);
    const T* strip = strips + c * state_rows + first * width;
    for (std::int64_t row = 0; row < memory.dims.key_dim; ++row, strip += width) {
      std::copy(strip, strip + filled, static_cast<T*>(tensor.data) + row * tensor.stride + c);
    }
  });
}

/// Are rows of this type bfloat16 that strips read as floats, or write?
template <class T>
bool IsBf16(DType dtype) {
  return DTypeOf<T>() == DType::kFloat32 && dtype == DType::kBFloat16;
}

/// The first column from which rows of this type go through the scratch, others being read or
/// written in place: all columns where they need another conversion, or whole rows are needed, else
/// those of a last strip that the rows do not fill.
template <class T>
std::int64_t FirstConverted(const Memory& memory, DType dtype, bool whole_rows) {
  if ((dtype != DTypeOf<T>() && !IsBf16<T>(dtype)) || whole_rows) return memory.extent.first_column;
  const std::int64_t filled = memory.dims.value_dim / Lanes<T>() * Lanes<T>();
  const std::int64_t last = filled / (2 * Lanes<T>()) * (2 * Lanes<T>());
  const std::int64_t end = filled == memory.dims.value_dim ? filled : last;
  return std::clamp(end, memory.extent.first_column, memory.extent.end_column);
}

/// Do outputs, of V, go past the caches? Then strips write them in place, in whole lines.
template <class T, class V>
bool Streams(const Memory& memory) {
  constexpr std::int64_t kStrip = 2 * Lanes<T>() * static_cast<std::int64_t>(sizeof(V));
  const std::int64_t unit = std::is_same_v<T, V> ? kLine<T> : 2 * Lanes<T>();
  return (std::is_same_v<T, V> || kStrip % kLineBytes == 0) &&
         simd::PastCaches<V>(memory.y, memory.dims.rows, simd::TheCaches().uncached_outputs) &&
         memory.y_head_stride % kLine<V> == 0 && memory.dims.value_dim % unit == 0;
}

template <class T>
class ChunkedRun {
 public:
  ChunkedRun(const Options& options, const Memory& memory, const Memory& next, Scratch<T>& scratch)
      : options_(options),
        memory_(memory),
        next_(next),
        scratch_(scratch),
        state_rows_(StateRows<T>(options, memory.dims.key_dim)),
        columns_(RoundUp(memory.dims.value_dim, kLine<T>)),
        whole_rows_(options.output_norm != OutputNorm::kNone || memory.dims.steps > 1),
        values_from_(memory.writes() ? FirstConverted<T>(memory, memory.inputs.v.dtype, false)
                                     : memory.extent.end_column),
        outputs_from_(memory.y ? FirstConverted<T>(memory, memory.y.dtype, whole_rows_)
                               : memory.extent.end_column),
        streams_(!whole_rows_ && (IsBf16<T>(memory.y.dtype) ? Streams<T, BFloat16>(memory)
                                                            : Streams<T, T>(memory))),
        saver_(options, memory),
        prepared_{{options, memory, scratch, 0}, {options, memory, scratch, 1}} {
    static_assert(kBlockChunks == 2);
  }

  void Run() {
#if TTR_HAS_BF16_TILES
    if (scratch_.bf16.products == Bf16Products::kTiles) {
      const TileRegisters registers(Readers(options_, memory_), memory_.dims.key_dim);
      return RunBlocks();
    }
#endif
    RunBlocks();
  }

 private:
  void RunBlocks() {
    std::fill_n(scratch_.prepared.zeros, scratch_.gathered.stride, T(0));
    if (memory_.extent.from == 0) Load();
    for (std::int64_t begin = memory_.extent.from; begin < memory_.extent.to;) {
      Block block{.begin = begin, .end = begin};
      PrepareBlock(block);
      LoadValues(block);
      RunStrips(block);
      StoreOutputs(block);
      begin = block.end;
    }
    if (memory_.extent.to < memory_.dims.rows) return;
    if (streams_) hwy::FlushStream();
    if (memory_.writes()) Store();
  }

  struct Block {
    std::int64_t begin, end;  // rows
    std::int64_t count = 0;
    Chunk chunks[kBlockChunks]{};
  };

  void Load() {
    LoadStrips(memory_, memory_.entries.state, 0, state_rows_, scratch_.strips);
    if (options_.paired()) {
      LoadStrips(memory_, memory_.entries.second, memory_.dims.key_dim, state_rows_,
                 scratch_.strips);
    }
    ForStrips<T>(memory_, [&](std::int64_t c, std::int64_t width) { PairStripAt(c, width); });
    if (!saver_.Wants(0)) return;
    ForStrips<T>(memory_, [&](std::int64_t c, std::int64_t width) {
      saver_.SaveStrip(scratch_.strips + c * state_rows_, c, width);
    });
    saver_.FinishState(scratch_.running.sum);
  }

  void Store() {
    StoreStrips(memory_, memory_.entries.state, 0, state_rows_, scratch_.strips);
    if (options_.paired()) {
      StoreStrips(memory_, memory_.entries.second, memory_.dims.key_dim, state_rows_,
                  scratch_.strips);
    }
  }

  /// The strip's copy for products in bfloat16, where there is one.
  void PairStripAt(std::int64_t c, std::int64_t width) {
    if constexpr (kHasBf16Pairs<T>) {
      if (!scratch_.bf16.any()) return;
      const T* const strip = scratch_.strips + c * state_rows_;
      std::uint32_t* const pairs = scratch_.bf16.strips + c * state_rows_ / 2;
      width > Lanes<T>() ? PairStrip<2>(strip, state_rows_, pairs)
                         : PairStrip<1>(strip, state_rows_, pairs);
    }
  }

  /// Pairs for products in bfloat16 of what a chunk's rows read and write, where there are any.
  void PairColumns(const Prepared<T>& p) {
    if constexpr (kHasBf16Pairs<T>) {
      if (scratch_.bf16.products != Bf16Products::kPairs) return;
      if (memory_.writes()) {
        if (options_.erases()) PairRowsOf(p.columns.erase, state_rows_, p.pairs.erase);
        PairTokensOf(p.columns.write, state_rows_, p.pairs.write);
        if (options_.separate_value_key()) {
          PairTokensOf(p.columns.value, state_rows_, p.pairs.value);
        }
      }
      for (std::int64_t q = 0; q < memory_.readers(); ++q) {
        const std::int64_t at = q * state_rows_ * kChunk;
        PairRowsOf(p.columns.queries + at, state_rows_, p.pairs.queries + at / 2);
      }
    }
  }

  /// Tiles for products in bfloat16 of what a chunk's rows read, where there are any.
  void TileColumns(const Prepared<T>& p) {
    if constexpr (kHasBf16Tiles<T>) {
      if (scratch_.bf16.products != Bf16Products::kTiles) return;
      const T* const zeros = scratch_.prepared.zeros;
      const std::int64_t erasers = Erasers(options_, memory_);
      if (erasers > 0) TileRowsOf(p.columns.erase, state_rows_, zeros, 0, p.pairs.tiles);
      for (std::int64_t q = 0; q < memory_.outputs(); ++q) {
        const T* const query = p.columns.queries + q * state_rows_ * kChunk;
        TileRowsOf(query, state_rows_, zeros, erasers + q, p.pairs.tiles);
      }
    }
  }

  void PrepareBlock(Block& block) {
    while (block.count < kBlockChunks && block.end < memory_.extent.to) {
      Chunk& chunk = block.chunks[block.count];
      const Prepared<T>& prepared = prepared_[block.count++];
      chunk = NextChunk<T>(options_, memory_, block.end);
      PlaceKeys(options_, memory_, scratch_.prepared.units, chunk);
      block.end += chunk.rows;
      // The memory is wanted at the same rows whether it is saved or not: outputs have the same
      // bits.
      const bool wanted = block.end % kGradientBlock == 0 || block.end == memory_.dims.rows;
      Prepare(options_, memory_, wanted, chunk, scratch_, prepared);
      PairColumns(prepared);
      TileColumns(prepared);
      // A block ends where the state is saved, as what is saved beside the strips is that of its
      // end.
      if (saver_.Wants(block.end)) return;
    }
  }

  /// Values that are not read in place.
  void LoadValues(const Block& block) {
    for (std::int64_t t = block.begin; values_from_ < memory_.extent.end_column && t < block.end;
         ++t) {
      T* row = scratch_.columns.values + (t - block.begin) * columns_;
      LoadRow(memory_.inputs.v, t, values_from_, memory_.extent.end_column - values_from_,
              row + values_from_);
      std::fill(row + memory_.extent.end_column, row + columns_, T(0));
    }
  }

  /// Outputs that were not written in place.
  void StoreOutputs(const Block& block) {
    const std::int64_t count = memory_.extent.end_column - outputs_from_;
    for (std::int64_t q = 0; count > 0 && q < memory_.outputs(); ++q) {
      for (std::int64_t r = block.begin; r < block.end; ++r) {
        if (!memory_.Reads(r)) continue;
        T* row = scratch_.columns.outputs + (q * kBlockRows + r - block.begin) * columns_ +
                 outputs_from_;
        NormaliseOutput(options_, row, count);
        StoreRow(row, memory_.Token(r), q * memory_.y_head_stride + outputs_from_, count,
                 memory_.y);
      }
    }
  }

  /// Rows of values or outputs from number `offset` on, in place; null where there are none.
  static OuterRows<T> InPlace(const Rows& rows, std::int64_t offset) {
    if (!rows) return {};
    const auto size = static_cast<std::int64_t>(SizeOf(rows.dtype));
    return {static_cast<std::byte*>(rows.data) + offset * size, rows.stride, IsBf16<T>(rows.dtype)};
  }

  OuterRows<T> ValuesAt(const Block& block, std::int64_t t, std::int64_t c) const {
    if (c < values_from_) return InPlace(memory_.inputs.v, t * memory_.inputs.v.stride + c);
    return {scratch_.columns.values + (t - block.begin) * columns_ + c, columns_, false};
  }

  OutputRows<T> OutputsAt(const Block& block, std::int64_t t, std::int64_t c) const {
    if (c < outputs_from_) {
      return {InPlace(memory_.y, t * memory_.y.stride + c), memory_.y_head_stride, streams_};
    }
    return {{scratch_.columns.outputs + (t - block.begin) * columns_ + c, columns_, false},
            kBlockRows * columns_,
            streams_};
  }

  T* Found() const {
    if constexpr (kHasBf16Tiles<T>) return scratch_.bf16.found;
    return nullptr;
  }

  template <int NV>
  void Process(const StripTask<T>& task) {
    using enum Bf16Products;
    const Bf16Products products = scratch_.bf16.products;
    if constexpr (kHasBf16Tiles<T>) {
      if (products == kTiles) return ProcessStrip<NV, kTiles>(task);
    }
    if constexpr (kHasBf16Pairs<T>) {
      if (products == kPairs) return ProcessStrip<NV, kPairs>(task);
    }
    ProcessStrip<NV, kFloat32>(task);
  }

  /// All strips pass over the chunks of the block.
  void RunStrips(const Block& block) {
    Prefetcher prefetcher = PrefetcherBehind(block);
    const bool saves = saver_.Wants(block.end);
    std::int64_t end = 0;
    ForStrips<T>(memory_, [&](std::int64_t c, std::int64_t width) {
      for (std::int64_t i = 0; i < block.count; ++i) {
        const Chunk& chunk = block.chunks[i];
        const std::int64_t t = chunk.first;
        std::uint32_t* const pairs =
            scratch_.bf16.any() ? scratch_.bf16.strips + c * state_rows_ / 2 : nullptr;
        const StripTask<T> task{.options = options_,
                                .memory = memory_,
                                .chunk = chunk,
                                .prepared = prepared_[i],
                                .scratch = scratch_.columns,
                                .strip = scratch_.strips + c * state_rows_,
                                .pairs = pairs,
                                .found = Found(),
                                .values = ValuesAt(block, t, c),
                                .outputs = OutputsAt(block, t, c),
                                .saved = {{saver_.Errors(t, c), saver_.errors_stride()},
                                          {saver_.Outputs(t, c), saver_.outputs_stride()},
                                          saver_.values()},
                                .prefetcher = prefetcher};
        width > Lanes<T>() ? Process<2>(task) : Process<1>(task);
      }
      if (saves) saver_.SaveStrip(scratch_.strips + c * state_rows_, c, width);
      end = c + width;
    });
    saver_.PadErrors(block.begin, block.end, end);
    if (saves) saver_.FinishState(scratch_.running.sum);
  }

  /// Fetches the rows of the next block, perhaps of the next memory, while the strips are written.
  Prefetcher PrefetcherBehind(const Block& block) const {
    const bool last = block.end == memory_.extent.to;
    const Memory& memory = last ? next_ : memory_;
    const std::int64_t begin = last ? next_.extent.from : block.end;
    Prefetcher prefetcher =
        PrefetcherOf(memory, begin, std::min(begin + kBlockRows, memory.extent.to));
    const std::int64_t strips =
        RoundUp(memory_.extent.end_column - memory_.extent.first_column, 2 * Lanes<T>()) /
        (2 * Lanes<T>());
    const std::int64_t rows = (options_.paired() ? 2 : 1) * memory_.dims.key_dim;
    const std::int64_t tiles =
        RoundUp(rows, kWrittenRows) / kWrittenRows * (options_.separate_value_key() ? 2 : 1);
    prefetcher.Start(strips * block.count * tiles);
    return prefetcher;
  }

  /// Rows begin .. end of the inputs and outputs of `memory`.
  Prefetcher PrefetcherOf(const Memory& memory, std::int64_t begin, std::int64_t end) const {
    constexpr std::int64_t kMostQueries = 3;
    Prefetcher prefetcher(end - begin);
    BlockSaver<T>(options_, memory).AddTo(begin, prefetcher);
    const std::int64_t width = memory.extent.end_column - memory.extent.first_column;
    prefetcher.Add(memory.inputs.k, begin, 0, memory.dims.input_dim);
    prefetcher.Add(memory.inputs.v, begin, memory.extent.first_column, width);
    auto add = [&](const Rows& rows, std::int64_t first, std::int64_t count) {
      prefetcher.Add(rows, memory.Token(begin), first, count, memory.dims.steps);
    };
    add(memory.inputs.erase_key, 0, memory.dims.key_dim);
    add(memory.inputs.erase_gate, 0, memory.dims.key_dim);
    if (options_.decay == Decay::kChannel) add(memory.inputs.log_decay, 0, memory.dims.key_dim);
    add(memory.inputs.phase, 0, memory.dims.key_dim);
    for (std::int64_t q = 0; q < std::min(memory.readers(), kMostQueries); ++q) {
      add(memory.inputs.q, q * memory.q_head_stride, memory.dims.input_dim);
      if (!streams_) add(memory.y, q * memory.y_head_stride + memory.extent.first_column, width);
    }
    return prefetcher;
  }

  const Options& options_;
  const Memory& memory_;
  const Memory& next_;  // only fetched towards the caches
  Scratch<T>& scratch_;
  const std::int64_t state_rows_, columns_;
  const bool whole_rows_;
  const std::int64_t values_from_, outputs_from_;  // columns that go through the scratch
  const bool streams_;
  BlockSaver<T> saver_;
  const Prepared<T> prepared_[kBlockChunks];
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::fast_weights
HWY_AFTER_NAMESPACE();

#endif  // TTR_FAST_WEIGHTS_CHUNKED_RUN_INL_H_
