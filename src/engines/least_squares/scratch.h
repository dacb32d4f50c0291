/// How long chunks are, and the memory of one worker.
#pragma once

#include <algorithm>
#include <cstdint>

#include "src/engines/common/scratch_layout.h"
#include "src/engines/least_squares/memory.h"
#include "src/linalg/block.h"

namespace ttr::least_squares {

using common::ScratchLayout;
using linalg::Block;
using linalg::Left;
using linalg::UpperFactor;

/// Rows `stride` numbers apart; rows of `columns` numbers, linalg::StrideOf apart.
template <class T>
Block<T> TakeStrided(ScratchLayout& layout, std::int64_t rows, std::int64_t stride) {
  return {layout.Take<T>(rows * stride), stride};
}
template <class T>
Block<T> TakeBlock(ScratchLayout& layout, std::int64_t rows, std::int64_t columns) {
  return TakeStrided<T>(layout, rows, linalg::StrideOf<T>(columns));
}
template <class T>
UpperFactor<T> TakeFactor(ScratchLayout& layout, const Block<T>& u, std::int64_t rows) {
  return {u, layout.Take<T>(rows * linalg::kCornerNumbers)};
}

/// Tokens that share the factor of their start. Longer chunks factor less often and solve larger
/// systems; a chunk longer than D would see directions twice.
inline std::int64_t ChunkTokens(std::int64_t key_dim) {
  return std::clamp<std::int64_t>(RoundUp(key_dim, kUnit), kUnit, 64);
}

/// Tokens whose systems are iterated together. A longer chunk writes A less often, and every
/// product with A_t has more keys to go through.
inline constexpr std::int64_t kTokensTogether = 16;
/// Tokens that share a factor. In a longer chunk the factor costs less, and its ridge is further
/// from what the last tokens should have.
inline constexpr std::int64_t kTokensOfFactor = 32;

inline std::int64_t ChunkTokens(const Options& options, std::int64_t key_dim) {
  if (!options.iterates()) return ChunkTokens(key_dim);
  return options.iteration.preconditioner == Preconditioner::kChunkFactor ? kTokensOfFactor
                                                                          : kTokensTogether;
}

/// The two factors of a chunk that is solved exactly (exact/prefixes-inl.h).
template <class T>
struct PrefixScratch {
  UpperFactor<T> memory;       // A, then U
  Block<T> keys, queries, wb;  // beside it: K^T, Q^T; then Wk, Wq, Wb
  UpperFactor<T> tokens;       // S, then L^T
  Block<T> errors, gains;      // beside it: E, P
  T* pivots = nullptr;         // two numbers for every pivot of one of them
  std::int64_t most_pivots = 0;
};

/// The scratch of one worker.
template <class T>
struct Scratch {
  std::int64_t keys_unit, values_unit, chunk, columns;  // D, Dv, tokens, queries: rounded up
  Block<T> a, b;                                        // A (its upper triangle) and B as they go
  Block<double> a_sum, b_sum;  // for T = float: the same in double, which they are rounded from
  double* saved;               // the memory as a chunk began that has to be done in parts
  Block<T> k, v, q;            // of the chunk, K and V times sqrt(w / c)
  Block<T> y;                  // outputs
  PrefixScratch<T> prefix;     // nothing where systems are iterated

  Scratch(const Options& options, const Sizes& sizes, ScratchLayout& layout) {
    keys_unit = RoundUp(sizes.key_dim, kUnit);
    values_unit = RoundUp(sizes.value_dim, kUnit);
    chunk = std::min(ChunkTokens(options, sizes.key_dim),
                     RoundUp(std::max<std::int64_t>(sizes.tokens, 1), kUnit));
    columns = RoundUp(chunk * sizes.queries, kUnit);
    a = TakeBlock<T>(layout, keys_unit, keys_unit);
    b = TakeBlock<T>(layout, keys_unit, values_unit);
    constexpr bool kSums = sizeof(T) == sizeof(float);
    a_sum = TakeStrided<double>(layout, kSums ? keys_unit : 0, a.stride);
    b_sum = TakeStrided<double>(layout, kSums ? keys_unit : 0, b.stride);
    saved = layout.Take<double>(SavedNumbers(sizes.key_dim, sizes.value_dim));
    k = TakeBlock<T>(layout, chunk, keys_unit);
    v = TakeBlock<T>(layout, chunk, values_unit);
    q = TakeBlock<T>(layout, columns, keys_unit);
    if (!options.iterates()) TakePrefix(layout);
    y = TakeBlock<T>(layout, columns, values_unit);
  }

 private:
  void TakePrefix(ScratchLayout& layout) {
    const std::int64_t queries_at = keys_unit + chunk, wb_at = queries_at + columns;
    const Block<T> first = TakeBlock<T>(layout, keys_unit, wb_at + values_unit + kUnit);
    const std::int64_t gains_at = chunk + values_unit;
    const Block<T> second = TakeBlock<T>(layout, chunk, gains_at + columns + kUnit);
    prefix.memory = TakeFactor(layout, first, keys_unit);
    prefix.tokens = TakeFactor(layout, second, chunk);
    prefix.most_pivots = std::max(keys_unit, chunk);
    prefix.pivots = layout.Take<T>(2 * prefix.most_pivots);
    if (first.data == nullptr) return;  // while bytes are counted
    prefix.keys = first.Columns(keys_unit);
    prefix.queries = first.Columns(queries_at);
    prefix.wb = first.Columns(wb_at);
    prefix.errors = second.Columns(chunk);
    prefix.gains = second.Columns(gains_at);
  }
};

}  // namespace ttr::least_squares
