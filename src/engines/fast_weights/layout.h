/// What the glue tells the kernels about one memory, and how they divide their scratch.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "src/engines/fast_weights/fast_weights.h"
#include "src/simd/prefetcher.h"
#include "src/simd/rows.h"

namespace ttr::fast_weights {

/// Rows (tokens, or the steps of a token) of a chunk. Longer chunks read and write the memory less
/// often and solve larger systems: per row 6 Dk Dv flops against kChunk (2 Dk + Dv) of Gram
/// matrices and substitution.
inline constexpr int kChunk = 8;

/// Chunks prepared at a time. All strips of the memory pass over a block before the next one is
/// fetched, so that every line of q, k, v and y comes and goes once. Longer blocks pass over the
/// strips less often; but rows of one head, which often lie 2^n bytes apart, share few places of
/// the second-level cache, and more of them drive each other out again before their turn comes.
inline constexpr int kBlockChunks = 2;
inline constexpr int kBlockRows = kChunk * kBlockChunks;

/// Rows of a block of the backward pass, which begins with a memory that was kept: no chunk goes
/// beyond one.
inline constexpr int kGradientBlock = 64;

/// Memories whose rows lie side by side take turns, this many rows each: a page of an input holds a
/// row of many heads, and what hardware fetches beside one head's is another's.
inline constexpr std::int64_t kSliceRows = kBlockRows;
inline constexpr std::int64_t kMostInterleaved = 16;

/// Sequences up to this many rows are updated row by row where the state lies.
inline constexpr std::int64_t kDirectRows = 3;

inline constexpr std::size_t kAlignment = 64;

using simd::Prefetcher;
using simd::Rows;

/// One memory, one sequence, a range of value columns. "Row" r belongs to token r / steps.
struct Memory : Operands<Rows>, StateOperands<Rows> {
  Rows y;                          // as q, of the first of `queries` heads
  std::int64_t q_head_stride = 0;  // in elements, between the queries of one memory
  std::int64_t y_head_stride = 0;
  double decay_factor = 1;
  Rows pending;  // see decode/deferred_write.h; absent: a token's write is done with it
  void* pending_values = nullptr;
  void* saved_states = nullptr;  // see kept.h; null: nothing is kept
  void* saved_errors = nullptr;
  void* saved_outputs = nullptr;
  void* saved_sums = nullptr;
  std::int64_t features = 0;
  std::int8_t* status = nullptr;
  std::int64_t status_stride = 0;
  std::int64_t status_head_stride = 0;
  std::int64_t rows = 0;
  std::int64_t from = 0, to = 0;  // those of this turn, or all
  std::int64_t place = 0;         // among the memories that take turns
  std::int64_t steps = 1;         // rows a token
  bool read_before = false;
  std::int64_t input_dim = 1;    // of q and k
  std::int64_t key_dim = 1;      // of the state: the features of q and k, and an intercept
  std::int64_t feature_dim = 1;  // without it
  std::int64_t value_dim = 1;
  std::int64_t queries = 1;
  std::int64_t first_column = 0;  // a multiple of the strip's width
  std::int64_t end_column = 0;

  bool writes() const { return v.data != nullptr; }
  // Asked as "steps > 1": of "steps == 1" compilers make an unconditional division, dozens of
  // cycles a row.
  bool Starts(std::int64_t r) const { return !(steps > 1) || r % steps == 0; }
  /// Is the memory read at row r: the last of a token, or the first where it is read before?
  bool Reads(std::int64_t r) const {
    return !(steps > 1) || r % steps == (read_before ? 0 : steps - 1);
  }
  std::int64_t Token(std::int64_t r) const { return steps > 1 ? r / steps : r; }
};

/// The numbers of query head `query`.
inline Rows QueryRows(const Memory& memory, std::int64_t query) {
  Rows rows = memory.q;
  rows.data = static_cast<std::byte*>(rows.data) +
              query * memory.q_head_stride * static_cast<std::int64_t>(SizeOf(rows.dtype));
  return rows;
}

constexpr std::int64_t RoundUp(std::int64_t x, std::int64_t unit) {
  return (x + unit - 1) / unit * unit;
}

/// Numbers of T in a cache line: arrays are padded to lines, so that they are whole vectors.
template <class T>
inline constexpr std::int64_t kLine = kAlignment / sizeof(T);

/// Pairs of a chunk's rows, a row and itself among them.
inline constexpr std::int64_t kPairs = kChunk * (kChunk + 1) / 2;

inline bool IsDirect(std::int64_t rows) { return rows <= kDirectRows; }

/// Rows of the memory's arrays in scratch: padded, twice as many where it is paired.
template <class T>
std::int64_t StateRows(const Options& options, std::int64_t key_dim) {
  return RoundUp((options.paired() ? 2 : 1) * key_dim, kLine<T>);
}

/// How many memories can take turns, whose strips share the second-level cache.
template <class T>
std::int64_t MostTogether(const Options& options, const Sizes& sizes) {
  constexpr std::int64_t kBytes = 512 << 10;
  if (sizes.tokens * options.steps <= kSliceRows) return 1;
  const std::int64_t columns = RoundUp(sizes.value_dim, kLine<T>);
  const std::int64_t numbers = StateRows<T>(options, sizes.key_dim) * columns;
  return std::clamp<std::int64_t>(kBytes / (numbers * sizeof(T)), 1, kMostInterleaved);
}

/// Are keys and queries what the inputs hold, but for their length?
template <class T>
bool RowsAreInputs(const Options& options, const Memory& memory) {
  const bool own_keys = options.key != Key::kInput || options.erase != Erase::kKey ||
                        options.preconditioned || options.correction != 0;
  const bool mapped = options.features.map != rows::Map::kNone || options.intercept;
  // Rows that meet decays per channel are taken in whole vectors.
  const bool vectors = !options.by_channel() ||
                       (!options.phase && !options.normalise_qk && memory.key_dim % kLine<T> == 0 &&
                        memory.log_decay.dtype == DTypeOf<T>());
  // bfloat16 becomes columns of float as it is read, if nothing else is wanted of it.
  const bool widens =
      DTypeOf<T>() == DType::kFloat32 && !options.by_channel() && !options.normalise_qk;
  auto lies = [&](const Rows& rows) {
    return rows.dtype == DTypeOf<T>() || (widens && rows.dtype == DType::kBFloat16);
  };
  return !own_keys && !mapped && vectors && !options.step_reads_norm() && memory.writes() &&
         memory.steps == 1 && lies(memory.k) && (!memory.q || lies(memory.q));
}

/// And is nothing done with them but products with the memory, with each other and with decays?
/// Then they, and decays per channel, need not be gathered.
template <class T>
bool RowsLie(const Options& options, const Memory& memory) {
  return RowsAreInputs<T>(options, memory) && !options.momentum && !options.bonus &&
         options.denominator == Denominator::kNone;
}

/// What a memory keeps beside its strips, from chunk to chunk.
template <class T>
struct Running {
  T* sum;
  T* curvature;
  T owed;  // the memory is this times what the strips hold
  double maximum;
  std::int64_t position;  // of the sequence's first token
};

/// The rows of one chunk as they act on the memory: row i at [i stride]. Padded with zeros; null
/// where the recipe has none.
template <class T>
struct Gathered {
  std::int64_t stride;
  T* write;                   // w
  T* erase;                   // r; = write for a plain delta rule
  T* value;                   // the key of values that are written apart
  std::int64_t query_stride;  // between the queries of one memory
  T* query;                   // [query][row]; behind them those of the second of a pair
  T* bonus;                   // one row
  T* raw;                     // a row before its features, and what they need
  T* factors;                 // decay per channel
  T* cosines;                 // of the phase
  T* sines;
  T* products;  // [2][row]: keys, as decay and phase turn them
  T* sums;      // [1 + query][kPairs]: of pairs under decays of channels, by lanes
  // One number a row:
  T step[kChunk];   // b
  T decay[kChunk];  // a: from row to row
  T seen[kChunk];   // h: from the row before to the erasure
  T momentum[kChunk];
  T log_scale[kChunk];  // the maximum after the row
  bool saved[kChunk];   // is it that of the past?
  T first_scale;        // and before the first
};

/// What products in bfloat16 have beside that (chunked/bf16_products-inl.h), in pairs.
struct Narrowed {
  std::uint32_t* strips = nullptr;  // [columns / W][state rows / 2][W]; null: there are none
  std::uint32_t* reads = nullptr;   // [chunk][1 + query][state rows / 2][kChunk]
  std::uint32_t* writes = nullptr;  // [chunk][2][state rows][kChunk / 2]
};

/// The arrays of a worker's scratch, in elements of T. One for all targets: rows are padded to
/// lines.
template <class T>
struct Scratch {
  T* strips;        // the memory, strip by strip: [columns / W][state rows][W]
  T* keys;          // [chunk][3][state rows][kChunk]: erase, write and value keys as columns
  T* queries;       // [chunk][query][state rows][kChunk]
  T* unscaled;      // [1 + queries][key rows][kChunk]: columns before they are stacked
  T* coefficients;  // [chunk][CoefficientCount]
  T* turns;         // [chunk][5][key rows]: how the memory's rows decay or turn; what is forgotten
  T* values;        // [block row][columns]: converted values, where not read where they lie
  T* outputs;       // [query][block row][columns]
  T* errors;        // [3][kChunk][W] of a strip: as solved, as written, values
  T* early;         // [query][W]: answers from a memory that is then forgotten
  T* bonuses;       // [query][kChunk]: weights of the rows' own values
  T* zeros;         // [key rows]
  T* units;         // [1 + query][kChunk]: what normalises keys and queries that were not gathered
  Gathered<T> gathered;
  Narrowed narrowed;
  Running<T> carried;
  T* resting;            // `carried`, between the turns of a memory
  std::int64_t own = 0;  // numbers of what belongs to one memory, not to all that take turns
  bool direct;           // is every sequence so short that the state is updated where it lies?
  std::size_t bytes;

  static std::int64_t CoefficientCount(std::int64_t queries) {
    // lower, lower of values, scores and scores of values; read a query; step, decay, to_end
    return (2 + 2 * queries) * kChunk * kChunk + (queries + 3) * kChunk;
  }

  Scratch(const Options& options, const Sizes& sizes, std::byte* memory)
      : direct(!sizes.saved && IsDirect(sizes.tokens * options.steps)) {
    const bool chunked = !direct;
    const std::int64_t chunks = chunked ? kBlockChunks : 0;
    const std::int64_t block = chunked ? kBlockRows : 1;
    const std::int64_t chunk = chunked ? kChunk : 1;
    const std::int64_t key_rows = RoundUp(sizes.key_dim, kLine<T>);
    const std::int64_t state_rows = StateRows<T>(options, sizes.key_dim);
    const std::int64_t columns = RoundUp(sizes.value_dim, kLine<T>);
    const bool apart = options.separate_value_key();
    const bool own_erase = apart || options.erase != Erase::kKey || options.preconditioned;
    std::int64_t used = 0;
    auto take = [&](std::int64_t count) {
      T* start = memory == nullptr ? nullptr : reinterpret_cast<T*>(memory) + used;
      used += RoundUp(count, kLine<T>);
      return count == 0 ? nullptr : start;
    };
    strips = take(state_rows * (chunked ? columns : kLine<T>));
    const auto take_pairs = [&](std::int64_t count) {
      return reinterpret_cast<std::uint32_t*>(take(sizes.bf16_products ? count / 2 : 0));
    };
    narrowed.strips = take_pairs(state_rows * columns);
    carried.sum = take(options.denominator != Denominator::kNone ? key_rows : 0);
    carried.curvature = take(options.preconditioned ? key_rows : 0);
    resting = take(sizeof(Running<T>) / sizeof(T));
    own = used;
    used *= MostTogether<T>(options, sizes);
    keys = take(chunks * 3 * state_rows * kChunk);
    queries = take(chunks * sizes.queries * state_rows * kChunk);
    narrowed.reads = take_pairs(chunks * (1 + sizes.queries) * state_rows * kChunk);
    narrowed.writes = take_pairs(chunks * 2 * state_rows * kChunk);
    unscaled = take(options.momentum ? (1 + sizes.queries) * key_rows * kChunk : 0);
    coefficients = take(std::max<std::int64_t>(chunks, 1) * CoefficientCount(sizes.queries));
    turns = take(std::max<std::int64_t>(chunks, 1) * 5 * key_rows);
    values = take(block * columns);
    outputs = take(block * sizes.queries * columns);
    errors = take(3 * kChunk * 2 * kLine<T>);
    early = take(sizes.queries * 2 * kLine<T>);
    bonuses = take(options.bonus ? sizes.queries * kChunk : 0);
    zeros = take(key_rows);
    units = take(options.normalise_qk ? (1 + sizes.queries) * kChunk : 0);
    gathered.stride = key_rows;
    gathered.write = take(chunk * key_rows);
    gathered.erase = own_erase ? take(chunk * key_rows) : gathered.write;
    gathered.value = take(apart ? chunk * key_rows : 0);
    gathered.query_stride = chunk * key_rows;
    gathered.query = take((options.paired() ? 2 : 1) * sizes.queries * chunk * key_rows);
    const bool maps = options.features.map != rows::Map::kNone;
    gathered.raw = take(maps ? 3 * RoundUp(sizes.input_dim, kLine<T>) + key_rows : 0);
    gathered.bonus = take(options.bonus ? key_rows : 0);
    gathered.factors = take(options.by_channel() ? chunk * key_rows : 0);
    gathered.cosines = take(options.phase ? chunk * key_rows : 0);
    gathered.sines = take(options.phase ? chunk * key_rows : 0);
    gathered.products = take(options.by_channel() ? 2 * chunk * key_rows : 0);
    const bool pairs = options.by_channel() && chunked;
    // Whole vectors of pairs.
    const std::int64_t all = (1 + sizes.queries) * kPairs + kLine<T>;
    gathered.sums = take(pairs ? all * kLine<T> : 0);
    bytes = static_cast<std::size_t>(used) * sizeof(T);
  }

  /// The same for the memory with this place among those that take turns.
  Scratch At(std::int64_t place) const {
    Scratch moved = *this;
    for (T** array :
         {&moved.strips, &moved.carried.sum, &moved.carried.curvature, &moved.resting}) {
      if (*array != nullptr) *array += place * own;
    }
    if (moved.narrowed.strips != nullptr) moved.narrowed.strips += place * own;
    return moved;
  }
};

}  // namespace ttr::fast_weights
