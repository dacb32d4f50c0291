/// How the gradient's kernels divide their scratch.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "src/engines/common/scratch_layout.h"
#include "src/engines/fast_weights/adjoint/gradient.h"

namespace ttr::fast_weights::gradient {

/// Tokens of a chunk: one AVX-512 vector of float, because the products that contract over keys
/// have tokens as lanes.
inline constexpr int kTokens = 16;

inline constexpr int kHalf = kTokens / 2;

/// A small matrix of a chunk: [reading token][writing token].
inline constexpr std::int64_t kSquare = kTokens * kTokens;

/// Tokens of the sequence.
struct Chunk {
  std::int64_t first;   // of the sequence
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
  T* next[kGradientBlock];  // where the memory behind a chunk goes; null: it is not computed
};

/// Sizes of the arrays of a scratch. Reads are the queries and, last, the erasure; writes the
/// innovations and the second write; planes the memory and, with momentum, its last update.
struct Shape {
  std::int64_t keys, values;  // strides of rows
  std::int64_t reads, writes, planes;
  std::int64_t matrix, state;                // numbers of one plane, and of all
  std::int64_t write_stride, update_stride;  // a line more: many rows are read side by side

  explicit Shape(const GradientSizes& sizes)
      : keys(RoundUp(sizes.key_dim, kTokens)),
        values(RoundUp(sizes.value_dim, kTokens)),
        reads(sizes.queries + (sizes.erase ? 1 : 0)),
        writes(sizes.second_write ? 2 : 1),
        planes(sizes.momentum ? 2 : 1),
        matrix(keys * values),
        state(planes * matrix),
        write_stride(keys + kTokens),
        update_stride(values + kTokens) {}
};

/// Copies of a chunk's rows.
template <class T>
struct RowCopies {
  T* reads;          // [read][kTokens][keys]
  T* decayed_reads;  // reads, decayed since the chunk's beginning, where channels decay
  T* writes;         // [write][kTokens][keys]
  T* second_values;  // [kTokens][values], of a chunk that is not full
};

/// Gradients of a chunk's rows.
template <class T>
struct RowGradients {
  T* reads;          // [read][kTokens][values]: dL/dy, and for the erasure dL/d(r M~)
  T* decayed_reads;  // [plane][read][kTokens][values]: times a decay that is a number; else = reads
  T* updates;        // [write][kTokens][values]: dL/du
  T* keys;           // [read, write][kTokens][keys], where channels decay
};

/// Rows of a chunk as columns.
template <class T>
struct RowColumns {
  T* writes;        // [keys][kTokens], of one write
  T* updates;       // [write][values][kTokens]
  T* found;         // [values][kTokens]: what is read of a memory
  T* update_found;  // [values][kTokens]: what is read of the last update
};

/// Matrices of a chunk, [read][write][kSquare].
template <class T>
struct Squares {
  T* products;     // q_i . w_j
  T* scores;       // with the decay between
  T* score_grads;  // their gradients
};

/// The arrays of the scratch, in elements of T. A memory is transposed, in strips of key channels W
/// wide: [keys / W][values][W], so that key channels are lanes; with momentum, its last update
/// stands behind it in the same way.
template <class T>
struct Scratch : Shape {
  Replay<T>* replay;
  T* memories;    // [3][state]: before the block's second chunk, third, ...
  T* adjoint;     // dL/dM: one for each of the interleaved memories
  T* write_rows;  // [write or plane][block token][write_stride]: decayed to their chunk's end
  T* updates;     // [block token][update_stride]: u
  RowCopies<T> copies;
  RowGradients<T> grads;
  RowColumns<T> columns;
  Squares<T> squares;
  T* prefixes;     // [kTokens + 1][keys]: products of the decays since the beginning
  T* tallies;      // [plane][read + write + 1][kTokens][kTokens]: sums by lanes
  T* update_tile;  // a tile of what is read of the last update

  /// The decayed row of a write, or with momentum of a plane, at place `at` of the block.
  T* WriteRow(std::int64_t write, std::int64_t at) const {
    return write_rows + (write * (kGradientBlock + kTokens) + at) * write_stride;
  }
  T* DecayedGrads(std::int64_t plane, std::int64_t read) const {
    return grads.decayed_reads + (plane * reads + read) * kTokens * values;
  }
  T* Tallies(std::int64_t plane, std::int64_t index) const {
    return tallies + (plane * (reads + writes + 1) + index) * kSquare;
  }

  Scratch(const GradientSizes& sizes, std::int64_t place, common::ScratchLayout& layout)
      : Shape(sizes) {
    const bool channels = sizes.decay == GradientDecay::kChannel;
    const bool scalar = sizes.decay == GradientDecay::kScalar;
    // A chunk that is not full reads, and does not use, rows behind its last.
    const std::int64_t block_rows = kGradientBlock + kTokens;
    const auto take = [&](std::int64_t count) { return layout.Take<T>(count); };
    replay = layout.Take<Replay<T>>(1);
    memories = take(3 * state);
    adjoint = take(sizes.interleaved * state) + place * state;
    write_rows = take(std::max(writes, planes) * block_rows * write_stride);
    updates = take(block_rows * update_stride);
    copies.decayed_reads = take(channels ? reads * kTokens * keys : 0);
    copies.reads = take(reads * kTokens * keys);
    copies.writes = take(writes * kTokens * keys);
    copies.second_values = take(kTokens * values);
    grads.reads = take(reads * kTokens * values);
    grads.decayed_reads = scalar ? take(planes * reads * kTokens * values) : grads.reads;
    columns.writes = take(keys * kTokens);
    columns.updates = take(writes * values * kTokens);
    columns.found = take(values * kTokens);
    columns.update_found = take(planes > 1 ? values * kTokens : 0);
    update_tile = take(planes > 1 ? kSquare : 0);
    grads.updates = take(writes * kTokens * values);
    squares.products = take(reads * writes * kSquare);
    squares.scores = take(reads * writes * kSquare);
    squares.score_grads = take(reads * writes * kSquare);
    prefixes = take(channels ? (kTokens + 1) * keys : 0);
    grads.keys = take(channels ? (reads + writes) * kTokens * keys : 0);
    tallies = take(planes * (reads + writes + 1) * kSquare);
  }
};

}  // namespace ttr::fast_weights::gradient
