/// A chunk's share of the scratch, as its names say (chunked/scalar_decay-inl.h has the equations).
#pragma once

#include <cstdint>

#include "src/engines/fast_weights/layout.h"
#include "src/engines/fast_weights/scratch.h"

namespace ttr::fast_weights {

/// Rows of keys and queries as columns [state rows][kChunk]. Null where a few tokens are decoded.
template <class T>
struct ChunkColumns {
  T* erase = nullptr;    // r
  T* write = nullptr;    // w; the same array for a plain delta rule
  T* value = nullptr;    // separate value keys
  T* queries = nullptr;  // [query]
};

/// The columns as pairs for products in bfloat16. Columns that read pair two rows of the state;
/// columns that write pair two tokens. Where tiles multiply, `tiles` holds what reads. Null where
/// there are none.
struct ChunkPairs {
  std::uint32_t *erase = nullptr, *queries = nullptr;
  std::uint32_t *write = nullptr, *value = nullptr;
  std::uint32_t* tiles = nullptr;
};

/// The prepared arrays of one chunk.
template <class T>
struct Prepared {
  ChunkColumns<T> columns;
  ChunkPairs pairs;
  T* lower;
  T* lower_value;   // `lower` against separate value keys
  T* scores;        // [query]
  T* score_values;  // [query]
  T* read;          // [query]
  T* step;          // b_i; 0 beyond the last row
  T* decay;         // h_i c_{i-1}
  T* to_end;        // D_nj b_j, n the last row
  T* row_decay;     // c_n of every row of the memory; of a pair, with rotation:
  T* rotation[4];   // first = [0] first + [1] second, second = [2] first + [3] second
  T* forgotten;     // not 0 for channels that the chunk begins by forgetting

  Prepared(const Options& options, const Memory& memory, const Scratch<T>& scratch,
           std::int64_t index) {
    const PreparedScratch<T>& from = scratch.prepared;
    const std::int64_t queries = memory.dims.queries;
    const std::int64_t rows = StateRows<T>(options, memory.dims.key_dim) * kChunk;
    const bool own_erase = options.erase != Erase::kKey || options.preconditioned ||
                           options.paired() || options.by_channel();
    if (from.keys != nullptr) {
      columns.write = from.keys + 3 * index * rows;
      columns.erase = own_erase ? columns.write + rows : columns.write;
      columns.value = columns.write + 2 * rows;
      columns.queries = from.queries + index * queries * rows;
    }
    if (scratch.bf16.products == Bf16Products::kTiles) {
      pairs.tiles = scratch.bf16.reads + index * TileNumbers(1 + queries, rows / kChunk);
    } else if (scratch.bf16.products == Bf16Products::kPairs) {
      pairs.erase = scratch.bf16.reads + index * (1 + queries) * rows / 2;
      pairs.queries = pairs.erase + rows / 2;
      pairs.write = scratch.bf16.writes + index * rows;
      pairs.value = pairs.write + rows / 2;
    }
    constexpr std::int64_t kSquare = kChunk * kChunk;
    lower = from.coefficients + index * Scratch<T>::CoefficientCount(queries);
    lower_value = lower + kSquare;
    scores = lower_value + kSquare;
    score_values = scores + queries * kSquare;
    read = score_values + queries * kSquare;
    step = read + queries * kChunk;
    decay = step + kChunk;
    to_end = decay + kChunk;
    const std::int64_t key_rows = RoundUp(memory.dims.key_dim, kLine<T>);
    for (int i = 0; i < 4; ++i) rotation[i] = from.transitions + (5 * index + i) * key_rows;
    row_decay = rotation[0];
    forgotten = from.transitions + (5 * index + 4) * key_rows;
  }
};

}  // namespace ttr::fast_weights
