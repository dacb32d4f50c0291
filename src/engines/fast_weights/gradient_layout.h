/// How the gradient's kernels divide their scratch.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "src/engines/fast_weights/gradient.h"

namespace ttr::fast_weights::gradient {

/// Tokens of a chunk: one AVX-512 vector of float, because the products that contract over keys
/// have tokens as lanes.
inline constexpr int kTokens = 16;

constexpr std::int64_t RoundUp(std::int64_t x, std::int64_t unit) {
  return (x + unit - 1) / unit * unit;
}

inline constexpr int kHalf = kTokens / 2;

/// Up to so many bytes the memory is kept at every chunk: what stays in the caches is had sooner
/// than computed again.
inline constexpr std::int64_t kCachedMemories = std::int64_t{1} << 21;

/// A small matrix of a chunk: [reading token][writing token].
inline constexpr std::int64_t kSquare = kTokens * kTokens;

/// Tokens first .. first + tokens of the sequence.
struct Chunk {
  std::int64_t first;
  std::int64_t at;      // the first token's place in its block
  std::int64_t tokens;  // <= kTokens
  bool forget;          // nothing before it reaches it
};

/// The chunks of a block, and the memory before each of them.
template <class T>
struct Replay {
  std::int64_t count;
  Chunk chunks[kGradientBlock];
  const T* memories[kGradientBlock];
  T* next[kGradientBlock];  // where the memory behind a chunk is wanted; null: it is not
};

/// The arrays of the scratch, in elements of T. `reads` are the queries and, last, the erasure;
/// `writes` the innovations and the second write. Rows of keys and of values have the strides
/// `keys` and `values`. A memory is kept transposed, in strips of key channels W wide:
/// [keys / W][values][W], so that key channels are lanes; with momentum, its last update stands
/// behind it in the same way.
template <class T>
struct Scratch {
  std::int64_t keys, values, reads, writes;
  std::int64_t parts, matrix, state;  // memories: 1, with momentum 2; numbers of one, and of all
  std::int64_t write_stride, update_stride;  // a line more: many rows are read side by side
  std::int64_t interval;  // tokens between checkpoints: kTokens or kGradientBlock

  Replay<T>* replay;
  T* checkpoints;     // [interval][state]: the memory at the beginning of each interval
  T* memories;        // [3][state]: at the beginnings of further chunks of an interval
  T* adjoint;         // dL/dM: one for each of the memories that take turns
  T* errors;          // [T][values]: e = v - r M~, what the erasing memory steps along
  T* erase_products;  // [write][T][kTokens]: r_i . w_j; with the decay between, if of channels
  T* write_rows;      // [write or part][block token][write_stride]: decayed to their chunk's end
  T* updates;         // [block token][update_stride]: u
  T* read_rows;       // [read][kTokens][keys]: where channels decay, since the chunk's beginning
  T* plain_reads;     // [read][kTokens][keys]: copies
  T* plain_writes;    // [write][kTokens][keys]
  T* plain_values;    // [kTokens][values]: of second values of a chunk that is not full
  T* read_grads;      // [read][kTokens][values]: dL/dy, and for the erasure dL/d(r M~)
  T* decayed_grads;   // [part][read][kTokens][values]: the same times a decay that is a number
  T* write_columns;   // [keys][kTokens]
  T* update_columns;  // [write][values][kTokens]
  T* columns;         // [max(keys, values)][kTokens]
  T* part_columns;    // [values][kTokens]: what is read of the last update
  T* part_tile;       // a tile of its rows
  T* update_grads;    // [write][kTokens][values]: dL/du
  T* products;        // [read][write][kSquare]: q_i . w_j
  T* scores;          // [read][write][kSquare]: with the decay between
  T* score_grads;     // [read][write][kSquare]
  T* prefixes;        // [kTokens + 1][keys]: products of the decays since the beginning
  T* key_grads;       // [read, write][kTokens][keys]
  T* tallies;         // [part][read + write + 1][kTokens][kTokens]: sums by lanes
  std::int64_t intervals;
  std::size_t bytes;

  /// The decayed row of a write, or with momentum of a part, at place `at` of the block.
  T* WriteRow(std::int64_t write, std::int64_t at) const {
    return write_rows + (write * (kGradientBlock + kTokens) + at) * write_stride;
  }
  T* DecayedGrads(std::int64_t part, std::int64_t read) const {
    return decayed_grads + (part * reads + read) * kTokens * values;
  }
  T* Tallies(std::int64_t part, std::int64_t index) const {
    return tallies + (part * (reads + writes + 1) + index) * kSquare;
  }

  Scratch(const GradientSizes& sizes, std::byte* memory) {
    const std::int64_t tokens = sizes.tokens;
    const bool channels = sizes.decay == GradientDecay::kChannel;
    keys = RoundUp(sizes.key_dim, kTokens);
    values = RoundUp(sizes.value_dim, kTokens);
    parts = sizes.momentum ? 2 : 1;
    matrix = keys * values;
    state = parts * matrix;
    write_stride = keys + kTokens;
    update_stride = values + kTokens;
    reads = sizes.queries + (sizes.erase ? 1 : 0);
    writes = sizes.second_write ? 2 : 1;
    const std::int64_t all = (tokens / kTokens + 1) * state * static_cast<std::int64_t>(sizeof(T));
    interval = all <= kCachedMemories && !sizes.saved ? kTokens : kGradientBlock;
    intervals = sizes.saved ? 0 : tokens / interval + 1;
    // A chunk that is not full reads, and does not use, rows behind its last.
    const std::int64_t block_rows = kGradientBlock + kTokens;
    std::int64_t used = 0;
    auto take = [&](std::int64_t count) {
      T* start = memory == nullptr ? nullptr : reinterpret_cast<T*>(memory) + used;
      used += RoundUp(count, kTokens);
      return start;
    };
    constexpr auto kReplay = static_cast<std::int64_t>(sizeof(Replay<T>) / sizeof(T)) + 1;
    replay = reinterpret_cast<Replay<T>*>(take(kReplay));
    checkpoints = take(intervals * state);
    memories = take(3 * state);
    adjoint = take(sizes.together * state) + sizes.place * state;
    const bool computes = sizes.erase && !sizes.saved;
    errors = take(computes ? tokens * values : 0);
    erase_products = take(computes ? writes * tokens * kTokens : 0);
    write_rows = take(std::max(writes, parts) * block_rows * write_stride);
    updates = take(block_rows * update_stride);
    read_rows = take(channels ? reads * kTokens * keys : 0);
    plain_reads = take(reads * kTokens * keys);
    plain_writes = take(writes * kTokens * keys);
    plain_values = take(kTokens * values);
    read_grads = take(reads * kTokens * values);
    const bool scalar = sizes.decay == GradientDecay::kScalar;
    decayed_grads = take(scalar ? parts * reads * kTokens * values : 0);
    write_columns = take(keys * kTokens);
    update_columns = take(writes * values * kTokens);
    columns = take(std::max(keys, values) * kTokens);
    part_columns = take(parts > 1 ? values * kTokens : 0);
    part_tile = take(parts > 1 ? kSquare : 0);
    update_grads = take(writes * kTokens * values);
    products = take(reads * writes * kSquare);
    scores = take(reads * writes * kSquare);
    score_grads = take(reads * writes * kSquare);
    prefixes = take(channels ? (kTokens + 1) * keys : 0);
    key_grads = take(channels ? (reads + writes) * kTokens * keys : 0);
    tallies = take(parts * (reads + writes + 1) * kSquare);
    bytes = static_cast<std::size_t>(used) * sizeof(T);
  }
};

}  // namespace ttr::fast_weights::gradient
