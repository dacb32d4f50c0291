/// How a worker's scratch is divided. One layout for all targets: rows are padded to lines, so that
/// they are whole vectors. Arrays that the options do not need are null.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "src/engines/fast_weights/fast_weights.h"
#include "src/engines/fast_weights/layout.h"

namespace ttr::fast_weights {

/// Pairs of a chunk's rows, a row and itself among them.
inline constexpr std::int64_t kPairs = kChunk * (kChunk + 1) / 2;

using common::ScratchLayout;

/// What a memory passes from chunk to chunk beside its strips.
template <class T>
struct Running {
  T* sum;
  T* curvature;
  T lazy_decay;  // the memory is this times what the strips hold
  double maximum;
  std::int64_t position;  // of the sequence's first token
};

/// A number for each of a chunk's rows.
template <class T>
struct GatheredNumbers {
  T step[kChunk];   // b
  T decay[kChunk];  // a: from row to row
  T seen[kChunk];   // h: from the row before to the erasure
  T momentum[kChunk];
  T log_scale[kChunk];  // the maximum after the row
  bool saved[kChunk];   // is log_scale set by the past, not by the row?
  T first_scale;        // and before the first
};

/// The rows of one chunk as they act on the memory: row i at [i stride], padded with zeros.
template <class T>
struct Gathered : GatheredNumbers<T> {
  std::int64_t stride;
  T* write;                   // w
  T* erase;                   // r; = write for a plain delta rule
  T* value;                   // the separate value key
  std::int64_t query_stride;  // between the queries of one memory
  T* query;                   // [query][row]; behind them those of the second of a pair
  T* bonus;                   // one row
  T* raw;                     // a row before its features, and their scratch
  T* factors;                 // decay per channel
  T* cosines;                 // of the phase
  T* sines;
  T* products;  // [2][row]: keys times the decays behind them
  T* sums;      // [1 + query][kPairs]: of pairs under decays per channel, by lanes
};

using simd::Bf16Products;

/// Operands of products in bfloat16, in pairs. Where tiles multiply (chunked/bf16_tiles-inl.h),
/// they are only read, and what they have read is `found`.
struct Bf16Scratch {
  Bf16Products products = Bf16Products::kFloat32;
  std::uint32_t* strips = nullptr;  // [columns / W][state rows / 2][W]
  std::uint32_t* reads = nullptr;   // [chunk][1 + query][state rows / 2][kChunk]; or as tiles
  std::uint32_t* writes = nullptr;  // [chunk][2][state rows][kChunk / 2]; of pairs
  float* found = nullptr;           // [1 + query][kChunk][W] of a strip; of tiles

  bool any() const { return products != Bf16Products::kFloat32; }
};

/// Numbers of a tile. Its rows hold two of the readers of a chunk, which are the keys that erase
/// and the queries of every head. Its pairs cover 32 rows of the memory, so that every two readers
/// take TileBlocks() tiles.
inline constexpr std::int64_t kTileNumbers = 16 * 16;
inline std::int64_t TileBlocks(std::int64_t state_rows) { return CeilDiv(state_rows, 32); }
inline std::int64_t TileNumbers(std::int64_t readers, std::int64_t state_rows) {
  return CeilDiv(readers, 2) * TileBlocks(state_rows) * kTileNumbers;
}

/// What chunked/prepared.h divides among the chunks of a block.
template <class T>
struct PreparedScratch {
  T* keys;          // [chunk][3][state rows][kChunk]: erase, write and value keys as columns
  T* queries;       // [chunk][query][state rows][kChunk]
  T* unscaled;      // [1 + queries][key rows][kChunk]: columns before they are stacked
  T* coefficients;  // [chunk][CoefficientCount]
  T* transitions;   // [chunk][5][key rows]: how the memory's rows decay; what is forgotten
  T* bonuses;       // [query][kChunk]: weights of the rows' own values
  T* zeros;         // [key rows]
  T* units;         // [1 + query][kChunk]: what normalises keys and queries that are used in place
};

/// Rows of values and outputs, and what a strip needs.
template <class T>
struct ColumnScratch {
  T* values;   // [block row][columns]: converted values, where not used in place
  T* outputs;  // [query][block row][columns]
  T* errors;   // [3][kChunk][W] of a strip: as solved, as written, values
  T* early;    // [query][W]: outputs of a memory that is then forgotten
};

/// Rows of a pass of decode/replay-inl.h.
inline constexpr std::int64_t kReplayRows = 8;

/// Most vectors of columns that it reads at a time.
inline constexpr std::int64_t kReplayVectors = 8;

/// The numbers of one of its rows.
template <class T>
struct ReplayedRow {
  std::int64_t row;      // of the sequence
  std::int64_t pairs;    // pending before it, with those of the pass
  std::int64_t readers;  // its first: the key that erases, if one does, and the queries
  std::int64_t queries;
  T erased, step, scale;  // as in RowStep; what multiplies the pair's values
  const T* values;        // of column 0, as the outputs of each query
};

/// What such a pass needs; readers are the keys that erase and the queries.
template <class T>
struct ReplayScratch {
  ReplayedRow<T>* rows;
  const T** readers;  // [reader]: where it is,
  T* copies;          // [reader][key rows]: if it is copied
  T* products;        // [reader][pairs]: with the keys that are pending
  T* read;            // [reader][W]: what a strip of the memory gives
  T* reads;    // [row][query][3]: what multiplies what is read, and what the row writes itself
  T* values;   // [row][columns]
  T* outputs;  // [row][query][columns]
  T* wide;     // [key rows][columns]: a state of two bytes a number, where a row is done in place
  T* beside;   // the state beside the memory before the row: sum, curvature, a line
};

/// The arrays of a worker's scratch, in elements of T.
template <class T>
struct Scratch {
  T* strips;  // the memory, strip by strip: [columns / W][state rows][W]
  Running<T> running;
  T* paused;         // `running`, between the time slices of a memory
  std::int64_t own;  // bytes of what belongs to one memory, not to all that are interleaved
  Bf16Scratch bf16;
  PreparedScratch<T> prepared;
  ColumnScratch<T> columns;
  Gathered<T> gathered;
  ReplayScratch<T> replay;
  bool decode;  // is the state updated in place, row by row, or only read?

  static std::int64_t CoefficientCount(std::int64_t queries) {
    // lower, lower of values, scores and scores of values; read a query; step, decay, to_end
    return (2 + 2 * queries) * kChunk * kChunk + (queries + 3) * kChunk;
  }

  Scratch(const Options& options, const Sizes& sizes, ScratchLayout& layout)
      : decode(sizes.pairs > 0 || (!sizes.saved && IsDecode(sizes.tokens * options.steps))) {
    TakeOwn(options, sizes, layout);
    TakePrepared(options, sizes, layout);
    TakeColumns(sizes, layout);
    TakeGathered(options, sizes, layout);
    TakeReplay(options, sizes, layout);
  }

  /// This scratch, moved to the memory at `place` among those that are interleaved.
  Scratch At(std::int64_t place) const {
    Scratch moved = *this;
    const auto move = [&]<class Number>(Number*& array) {
      if (array != nullptr) array += place * own / static_cast<std::int64_t>(sizeof(Number));
    };
    move(moved.strips);
    move(moved.running.sum);
    move(moved.running.curvature);
    move(moved.paused);
    move(moved.bf16.strips);
    return moved;
  }

 private:
  void TakeOwn(const Options& options, const Sizes& sizes, ScratchLayout& layout) {
    const std::int64_t state_rows = StateRows<T>(options, sizes.key_dim);
    const std::int64_t key_rows = RoundUp(sizes.key_dim, kLine<T>);
    const std::int64_t width = RoundUp(sizes.value_dim, kLine<T>);
    strips = layout.Take<T>(state_rows * (decode ? kLine<T> : width));
    bf16.products = sizes.products;
    bf16.strips = layout.Take<std::uint32_t>(bf16.any() ? state_rows * width / 2 : 0);
    running.sum = layout.Take<T>(options.denominator != Denominator::kNone ? key_rows : 0);
    running.curvature = layout.Take<T>(options.preconditioned ? key_rows : 0);
    paused = layout.Take<T>(sizeof(Running<T>) / sizeof(T));
    own = layout.Repeat(MostInterleaved<T>(options, sizes));
  }

  void TakePrepared(const Options& options, const Sizes& sizes, ScratchLayout& layout) {
    const std::int64_t chunks = decode ? 0 : kBlockChunks;
    const std::int64_t some = decode ? 1 : kBlockChunks;
    const std::int64_t packed = StateRows<T>(options, sizes.key_dim) * kChunk;
    const std::int64_t key_rows = RoundUp(sizes.key_dim, kLine<T>);
    prepared.keys = layout.Take<T>(chunks * 3 * packed);
    prepared.queries = layout.Take<T>(chunks * sizes.queries * packed);
    // Pairs and tiles get the same room, so that bytes do not depend on which of them are chosen.
    const std::int64_t readers = RoundUp(1 + sizes.queries, 2), any = bf16.any() ? 1 : 0;
    bf16.reads = layout.Take<std::uint32_t>(
        any * chunks * std::max(readers * packed / 2, TileNumbers(readers, packed / kChunk)));
    bf16.writes = layout.Take<std::uint32_t>(any * chunks * packed);
    bf16.found = layout.Take<float>(any * readers * kChunk * 2 * kLine<float>);
    prepared.unscaled =
        layout.Take<T>(options.momentum ? (1 + sizes.queries) * key_rows * kChunk : 0);
    prepared.coefficients = layout.Take<T>(some * CoefficientCount(sizes.queries));
    prepared.transitions = layout.Take<T>(some * 5 * key_rows);
    prepared.bonuses = layout.Take<T>(options.bonus ? sizes.queries * kChunk : 0);
    prepared.zeros = layout.Take<T>(key_rows);
    prepared.units = layout.Take<T>(options.normalise_qk ? (1 + sizes.queries) * kChunk : 0);
  }

  void TakeColumns(const Sizes& sizes, ScratchLayout& layout) {
    const std::int64_t block = (decode ? 1 : kBlockRows) * RoundUp(sizes.value_dim, kLine<T>);
    columns.values = layout.Take<T>(block);
    columns.outputs = layout.Take<T>(sizes.queries * block);
    columns.errors = layout.Take<T>(3 * kChunk * 2 * kLine<T>);
    columns.early = layout.Take<T>(sizes.queries * 2 * kLine<T>);
  }

  void TakeReplay(const Options& options, const Sizes& sizes, ScratchLayout& layout) {
    const std::int64_t rows = sizes.pairs > 0 ? kReplayRows : 0;
    const std::int64_t readers = rows * (1 + sizes.queries);
    const std::int64_t keys = options.separate_value_key() ? 2 : 1;
    const std::int64_t width = RoundUp(sizes.value_dim, kLine<T>);
    replay.rows = layout.Take<ReplayedRow<T>>(rows);
    replay.readers = layout.Take<const T*>(readers);
    replay.copies = layout.Take<T>(readers * RoundUp(sizes.key_dim, kLine<T>));
    replay.products = layout.Take<T>(readers * sizes.pairs * keys);
    replay.read = layout.Take<T>(readers * kReplayVectors * kLine<T>);
    replay.reads = layout.Take<T>(rows * sizes.queries * 3);
    replay.values = layout.Take<T>(rows * width);
    replay.outputs = layout.Take<T>(rows * sizes.queries * width);
    replay.wide = layout.Take<T>(rows > 0 && sizes.rounded ? sizes.key_dim * width : 0);
    const std::int64_t beside = 2 * RoundUp(sizes.key_dim, kLine<T>) + kLine<T>;
    replay.beside = layout.Take<T>(rows > 0 ? beside : 0);
  }

  void TakeGathered(const Options& options, const Sizes& sizes, ScratchLayout& layout) {
    const std::int64_t key_rows = RoundUp(sizes.key_dim, kLine<T>);
    const std::int64_t all = (decode ? 1 : kChunk) * key_rows;
    const bool separate = options.separate_value_key(), channels = options.by_channel();
    const bool own_erase = separate || options.erase != Erase::kKey || options.preconditioned;
    const bool maps = options.features.map != rows::Map::kNone;
    Gathered<T>& g = gathered;
    g.stride = key_rows;
    g.write = layout.Take<T>(all);
    g.erase = own_erase ? layout.Take<T>(all) : g.write;
    g.value = layout.Take<T>(separate ? all : 0);
    g.query_stride = all;
    g.query = layout.Take<T>((options.paired() ? 2 : 1) * sizes.queries * all);
    g.raw = layout.Take<T>(maps ? 3 * RoundUp(sizes.input_dim, kLine<T>) + key_rows : 0);
    g.bonus = layout.Take<T>(options.bonus ? key_rows : 0);
    g.factors = layout.Take<T>(channels ? all : 0);
    g.cosines = layout.Take<T>(options.phase ? all : 0);
    g.sines = layout.Take<T>(options.phase ? all : 0);
    g.products = layout.Take<T>(channels ? 2 * all : 0);
    // Whole vectors of pairs.
    const std::int64_t pairs = (1 + sizes.queries) * kPairs + kLine<T>;
    g.sums = layout.Take<T>(channels && !decode ? pairs * kLine<T> : 0);
  }
};

}  // namespace ttr::fast_weights
