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

/// Hands out arrays one behind the other, of whole lines.
template <class T>
struct Arrays {
  T* memory;  // null: they are only counted
  std::int64_t used = 0;

  T* Take(std::int64_t count) {
    T* const start = memory == nullptr || count == 0 ? nullptr : memory + used;
    used += RoundUp(count, kLine<T>);
    return start;
  }
  std::uint32_t* TakePairs(std::int64_t count) {
    return reinterpret_cast<std::uint32_t*>(Take(count / 2));
  }
};

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
  bool saved[kChunk];   // is it that of the past?
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

/// Operands of products in bfloat16, in pairs (chunked/bf16_products-inl.h).
struct Bf16Scratch {
  std::uint32_t* strips = nullptr;  // [columns / W][state rows / 2][W]; null: there are none
  std::uint32_t* reads = nullptr;   // [chunk][1 + query][state rows / 2][kChunk]
  std::uint32_t* writes = nullptr;  // [chunk][2][state rows][kChunk / 2]
};

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

/// The arrays of a worker's scratch, in elements of T.
template <class T>
struct Scratch {
  T* strips;  // the memory, strip by strip: [columns / W][state rows][W]
  Running<T> running;
  T* paused;             // `running`, between the time slices of a memory
  std::int64_t own = 0;  // numbers of what belongs to one memory, not to all that are interleaved
  Bf16Scratch bf16;
  PreparedScratch<T> prepared;
  ColumnScratch<T> columns;
  Gathered<T> gathered;
  bool decode;  // is every sequence so short that the state is updated in place?
  std::size_t bytes;

  static std::int64_t CoefficientCount(std::int64_t queries) {
    // lower, lower of values, scores and scores of values; read a query; step, decay, to_end
    return (2 + 2 * queries) * kChunk * kChunk + (queries + 3) * kChunk;
  }

  /// `memory` is aligned to lines, or null: then only `bytes` is of use.
  Scratch(const Options& options, const Sizes& sizes, std::byte* memory)
      : decode(!sizes.saved && IsDecode(sizes.tokens * options.steps)) {
    Arrays<T> arrays{reinterpret_cast<T*>(memory)};
    TakeOwn(options, sizes, arrays);
    TakePrepared(options, sizes, arrays);
    TakeColumns(sizes, arrays);
    TakeGathered(options, sizes, arrays);
    bytes = static_cast<std::size_t>(arrays.used) * sizeof(T);
  }

  /// The same for the memory with this place among those that are interleaved.
  Scratch At(std::int64_t place) const {
    Scratch moved = *this;
    for (T** array : {&moved.strips, &moved.running.sum, &moved.running.curvature, &moved.paused}) {
      if (*array != nullptr) *array += place * own;
    }
    if (moved.bf16.strips != nullptr) moved.bf16.strips += place * own;
    return moved;
  }

 private:
  void TakeOwn(const Options& options, const Sizes& sizes, Arrays<T>& arrays) {
    const std::int64_t state_rows = StateRows<T>(options, sizes.key_dim);
    const std::int64_t key_rows = RoundUp(sizes.key_dim, kLine<T>);
    const std::int64_t width = RoundUp(sizes.value_dim, kLine<T>);
    strips = arrays.Take(state_rows * (decode ? kLine<T> : width));
    bf16.strips = arrays.TakePairs(sizes.bf16_products ? state_rows * width : 0);
    running.sum = arrays.Take(options.denominator != Denominator::kNone ? key_rows : 0);
    running.curvature = arrays.Take(options.preconditioned ? key_rows : 0);
    paused = arrays.Take(sizeof(Running<T>) / sizeof(T));
    own = arrays.used;
    arrays.used *= MostInterleaved<T>(options, sizes);
  }

  void TakePrepared(const Options& options, const Sizes& sizes, Arrays<T>& arrays) {
    const std::int64_t chunks = decode ? 0 : kBlockChunks;
    const std::int64_t some = decode ? 1 : kBlockChunks;
    const std::int64_t packed = StateRows<T>(options, sizes.key_dim) * kChunk;
    const std::int64_t key_rows = RoundUp(sizes.key_dim, kLine<T>);
    const std::int64_t pairs = sizes.bf16_products ? chunks * packed : 0;
    prepared.keys = arrays.Take(chunks * 3 * packed);
    prepared.queries = arrays.Take(chunks * sizes.queries * packed);
    bf16.reads = arrays.TakePairs((1 + sizes.queries) * pairs);
    bf16.writes = arrays.TakePairs(2 * pairs);
    prepared.unscaled = arrays.Take(options.momentum ? (1 + sizes.queries) * key_rows * kChunk : 0);
    prepared.coefficients = arrays.Take(some * CoefficientCount(sizes.queries));
    prepared.transitions = arrays.Take(some * 5 * key_rows);
    prepared.bonuses = arrays.Take(options.bonus ? sizes.queries * kChunk : 0);
    prepared.zeros = arrays.Take(key_rows);
    prepared.units = arrays.Take(options.normalise_qk ? (1 + sizes.queries) * kChunk : 0);
  }

  void TakeColumns(const Sizes& sizes, Arrays<T>& arrays) {
    const std::int64_t block = (decode ? 1 : kBlockRows) * RoundUp(sizes.value_dim, kLine<T>);
    columns.values = arrays.Take(block);
    columns.outputs = arrays.Take(sizes.queries * block);
    columns.errors = arrays.Take(3 * kChunk * 2 * kLine<T>);
    columns.early = arrays.Take(sizes.queries * 2 * kLine<T>);
  }

  void TakeGathered(const Options& options, const Sizes& sizes, Arrays<T>& arrays) {
    const std::int64_t key_rows = RoundUp(sizes.key_dim, kLine<T>);
    const std::int64_t all = (decode ? 1 : kChunk) * key_rows;
    const bool separate = options.separate_value_key(), channels = options.by_channel();
    const bool own_erase = separate || options.erase != Erase::kKey || options.preconditioned;
    const bool maps = options.features.map != rows::Map::kNone;
    Gathered<T>& g = gathered;
    g.stride = key_rows;
    g.write = arrays.Take(all);
    g.erase = own_erase ? arrays.Take(all) : g.write;
    g.value = arrays.Take(separate ? all : 0);
    g.query_stride = all;
    g.query = arrays.Take((options.paired() ? 2 : 1) * sizes.queries * all);
    g.raw = arrays.Take(maps ? 3 * RoundUp(sizes.input_dim, kLine<T>) + key_rows : 0);
    g.bonus = arrays.Take(options.bonus ? key_rows : 0);
    g.factors = arrays.Take(channels ? all : 0);
    g.cosines = arrays.Take(options.phase ? all : 0);
    g.sines = arrays.Take(options.phase ? all : 0);
    g.products = arrays.Take(channels ? 2 * all : 0);
    // Whole vectors of pairs.
    const std::int64_t pairs = (1 + sizes.queries) * kPairs + kLine<T>;
    g.sums = arrays.Take(channels && !decode ? pairs * kLine<T> : 0);
  }
};

}  // namespace ttr::fast_weights
