/// What the glue hands to the kernels about one memory. The kernels' scratch is scratch.h.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "src/engines/common/scratch_layout.h"
#include "src/engines/fast_weights/fast_weights.h"
#include "src/simd/caches.h"
#include "src/simd/prefetcher.h"
#include "src/simd/rows.h"

namespace ttr::fast_weights {

/// Rows (tokens, or the steps of a token) of a chunk. Longer chunks read and write the memory less
/// often and solve larger systems: per row 6 Dk Dv flops against kChunk (2 Dk + Dv) of Gram
/// matrices and substitution.
inline constexpr int kChunk = 8;

/// Chunks prepared at a time. All strips of the memory pass over a block before the next one is
/// fetched, so that every line of q, k, v and y comes and goes once. Longer blocks pass over the
/// strips less often; but rows of one head, which are often 2^n bytes apart, share few sets of the
/// second-level cache, and more of them evict each other before they are used.
inline constexpr int kBlockChunks = 2;
inline constexpr int kBlockRows = kChunk * kBlockChunks;

/// Rows of a block of the backward pass, which begins with a saved state: no chunk crosses a border
/// of blocks.
inline constexpr int kGradientBlock = 64;

/// Memories whose rows are side by side are interleaved in time slices of so many rows: a page of
/// an input holds a row of many heads, and what hardware prefetches behind one head's row is
/// another's.
inline constexpr std::int64_t kSliceRows = kBlockRows;
inline constexpr std::int64_t kMostInterleaved = 16;

/// Sequences up to this many rows update the state in place, row by row (decode/).
inline constexpr std::int64_t kDecodeRows = 3;

// Arrays are padded to lines, so that they are whole vectors.
using common::CeilDiv;
using common::kLine;
using common::kLineBytes;
using common::RoundUp;
using simd::Prefetcher;
using simd::Rows;

/// How large a memory and its rows are.
struct MemoryDims {
  std::int64_t input_dim = 1;    // of q and k
  std::int64_t key_dim = 1;      // of the state: the features of q and k, and an intercept
  std::int64_t feature_dim = 1;  // without it
  std::int64_t features = 0;     // rows of features_w
  std::int64_t value_dim = 1;
  std::int64_t queries = 1;  // heads that read the memory
  std::int64_t steps = 1;    // rows a token
  std::int64_t rows = 0;     // of the sequence
};

/// Which rows a call of the kernel runs, all of them or a time slice; and which columns.
struct MemoryExtent {
  std::int64_t from = 0, to = 0;
  std::int64_t place = 0;         // among the memories that are interleaved in time slices
  std::int64_t first_column = 0;  // a multiple of the strip's width
  std::int64_t end_column = 0;
};

/// What is saved of a memory for the backward pass (saved.h); null: nothing, or none of it.
struct SavedArrays {
  void* states = nullptr;
  void* errors = nullptr;
  void* outputs = nullptr;
  void* sums = nullptr;
};

/// The status of the first query head's outputs; null: not wanted.
struct StatusRows {
  std::int8_t* data = nullptr;
  std::int64_t stride = 0;  // from token to token
  std::int64_t head_stride = 0;
};

/// The write of the last token, which waits for the next one (decode/deferred_write.h).
struct DeferredRows {
  Rows keys;  // absent: a token's write is done with it
  void* values = nullptr;
};

/// Pairs that wait beside the state (decode/pending.h).
struct PendingPairRows {
  Rows keys;  // absent: none waits
  void* values = nullptr;
  std::int64_t pairs = 0;   // there is room for so many
  std::int64_t window = 0;  // a call that finds so many writes them while it reads,
  std::int64_t kept = 0;    // all but so many of the last
};

/// One memory, one sequence, a range of value columns: its inputs, its state and their sizes, and
/// what a call does with it. "Row" r belongs to token r / steps.
struct Memory {
  Operands<Rows> inputs;        // absent: not given, or not looked at in this call
  StateOperands<Rows> entries;  // of its state
  MemoryDims dims;
  MemoryExtent extent;
  SavedArrays saved;
  StatusRows status;
  DeferredRows deferred;
  PendingPairRows pending;
  Rows y;                          // as q, of the first of `queries` heads
  std::int64_t q_head_stride = 0;  // in elements, between the queries of one memory
  std::int64_t y_head_stride = 0;
  double decay_factor = 1;  // of kConstant
  bool read_before = false;

  bool writes() const { return inputs.v.data != nullptr; }
  /// Heads that read the memory in this call.
  std::int64_t readers() const { return inputs.q ? dims.queries : 0; }
  /// Heads whose outputs are computed in this call.
  std::int64_t outputs() const { return y ? dims.queries : 0; }
  // Asked as "steps > 1": of "steps == 1" compilers make an unconditional division, dozens of
  // cycles a row.
  bool Starts(std::int64_t r) const { return !(dims.steps > 1) || r % dims.steps == 0; }
  /// Is the memory read at row r: the last of a token, or the first where it is read before?
  bool Reads(std::int64_t r) const {
    return !(dims.steps > 1) || r % dims.steps == (read_before ? 0 : dims.steps - 1);
  }
  std::int64_t Token(std::int64_t r) const { return dims.steps > 1 ? r / dims.steps : r; }
};

/// The numbers of query head `query`.
inline Rows QueryRows(const Memory& memory, std::int64_t query) {
  Rows rows = memory.inputs.q;
  rows.data = static_cast<std::byte*>(rows.data) +
              query * memory.q_head_stride * static_cast<std::int64_t>(SizeOf(rows.dtype));
  return rows;
}

inline bool IsDecode(std::int64_t rows) { return rows <= kDecodeRows; }

/// Rows of the memory's arrays in scratch: padded, twice as many where it is paired.
template <class T>
std::int64_t StateRows(const Options& options, std::int64_t key_dim) {
  return RoundUp((options.paired() ? 2 : 1) * key_dim, kLine<T>);
}

/// How many memories can be interleaved: their strips share the second-level cache.
template <class T>
std::int64_t MostInterleaved(const Options& options, const Sizes& sizes) {
  if (sizes.tokens * options.steps <= kSliceRows) return 1;
  const std::int64_t columns = RoundUp(sizes.value_dim, kLine<T>);
  const std::int64_t numbers = StateRows<T>(options, sizes.key_dim) * columns;
  // With products in bfloat16 strips have a copy.
  const int copy = sizes.products == simd::Bf16Products::kFloat32 ? 0 : 2;
  const std::int64_t bytes = numbers * (static_cast<int>(sizeof(T)) + copy);
  return std::clamp<std::int64_t>(simd::TheCaches().in_turn / bytes, 1, kMostInterleaved);
}

/// Are keys and queries what the inputs hold, but for their length?
template <class T>
bool RowsAreInputs(const Options& options, const Memory& memory) {
  const bool own_keys = options.key != Key::kInput || options.erase != Erase::kKey ||
                        options.preconditioned || options.correction != 0;
  const bool mapped = options.features.map != rows::Map::kNone || options.intercept;
  // Rows that meet decays per channel are taken in whole vectors.
  const bool vectors = !options.by_channel() || (!options.phase && !options.normalise_qk &&
                                                 memory.dims.key_dim % kLine<T> == 0 &&
                                                 memory.inputs.log_decay.dtype == DTypeOf<T>());
  // bfloat16 becomes columns of float as it is read, if nothing else is wanted of it.
  const bool widens =
      DTypeOf<T>() == DType::kFloat32 && !options.by_channel() && !options.normalise_qk;
  auto fits = [&](const Rows& rows) {
    return rows.dtype == DTypeOf<T>() || (widens && rows.dtype == DType::kBFloat16);
  };
  return !own_keys && !mapped && vectors && !options.step_reads_norm() && memory.writes() &&
         memory.dims.steps == 1 && fits(memory.inputs.k) &&
         (!memory.inputs.q || fits(memory.inputs.q));
}

/// Are keys, queries and decays per channel used in place, without being gathered? They are where
/// only products with the memory, with each other and with decays are made of them.
template <class T>
bool KeysInPlace(const Options& options, const Memory& memory) {
  return RowsAreInputs<T>(options, memory) && !options.momentum && !options.bonus &&
         options.denominator == Denominator::kNone;
}

}  // namespace ttr::fast_weights
