/// What is done with one memory: what the glue hands to the kernels, and how these divide their
/// scratch.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "src/engines/common/block_offsets.h"
#include "src/engines/common/queries.h"
#include "src/engines/common/row_views.h"
#include "src/engines/common/scratch_layout.h"
#include "src/engines/kernel_smoother/kernel_smoother.h"
#include "src/linalg/block.h"
#include "src/simd/rows.h"

namespace ttr::kernel_smoother {

using common::HeadRows;
using common::Range;
using common::ScratchLayout;
using linalg::Block;
using linalg::kUnit;
using simd::Rows;

/// Queries of a block, over which pairs are brought into the form that products want; a query head
/// and token each is one.
inline constexpr std::int64_t kQueries = 128;
/// The most rows that register tiles take together (linalg's kTileRows).
inline constexpr std::int64_t kStrip = 8;
/// Pairs of a block. Keys, values, queries and outputs stay in the second-level cache together.
constexpr std::int64_t PairsOfBlock(std::int64_t key_dim, std::int64_t value_dim) {
  const std::int64_t channels = std::max<std::int64_t>(key_dim, value_dim);
  return channels <= 128 ? 256 : channels <= 256 ? 128 : 64;
}

/// One memory, one sequence.
using Memory = common::QueriedPairs;

/// Numbers of queries that are saved beside their outputs, in the type of the arithmetic; absent
/// where nothing is.
struct SavedQueries {
  void* logs = nullptr;   ///< [query]: of the sum of weights over its reference; of an
                          ///< unnormalised one what its scores lack
  void* means = nullptr;  ///< [query][channel]
  void* dots = nullptr;   ///< [query]: dy . y
  void* hits = nullptr;   ///< [query]: 1 where a hit has taken all weight
  HeadRows dy{};
};

/// Queries first .. first + count of a memory.
struct Task {
  const Options& options;
  const Memory& memory;
  std::int64_t first = 0, count = 0;
  std::byte* scratch = nullptr;
  SavedQueries saved{};
};

/// [channel]: the sides of two boxes.
template <class T>
struct BoxRoom {
  T *query_low, *query_high, *key_low, *key_high;
};

/// A worker's scratch.
template <class T>
struct Scratch {
  std::int64_t pairs;  // of a block
  Block<T> q;          // [query][channel]
  Block<T> y;          // [query][channel]: sums of values over exp(top)
  Block<T> rows;       // [pair][channel]: keys
  Block<T> kt;         // [channel][pair]
  Block<T> v;          // [pair][channel]
  Block<T> scores;     // [query of a strip][pair]
  common::OffsetRoom<T> offsets;
  T* row;                   // [channel]: a value that is not finite
  BoxRoom<T> boxes;         // of queries and keys
  std::int64_t* nonfinite;  // [pair]: which are
  T* tops;                  // [query]
  T* sums;                  // [query]
  T* squares;               // [query]: of squared weights over exp(2 top), where they are asked for
  T* hits;                  // [query]: 1 where a key at distance 0 has taken all weight

  Scratch(std::int64_t key_dim, std::int64_t value_dim, ScratchLayout& layout)
      : pairs(PairsOfBlock(key_dim, value_dim)) {
    const std::int64_t dk = linalg::RoundUp(key_dim, kUnit), dv = linalg::RoundUp(value_dim, kUnit);
    const auto block = [&](std::int64_t count, std::int64_t columns) {
      const std::int64_t stride = linalg::StrideOf<T>(columns);
      return Block<T>{layout.Take<T>(count * stride), stride};
    };
    q = block(kQueries, dk);
    y = block(kQueries, dv);
    rows = block(pairs, dk);
    kt = block(dk, pairs);
    v = block(pairs, dv);
    scores = block(kStrip, pairs);
    offsets = {pairs, layout};
    row = layout.Take<T>(dv);
    layout.Take(dk, {&boxes.query_low, &boxes.query_high, &boxes.key_low, &boxes.key_high});
    nonfinite = layout.Take<std::int64_t>(pairs);
    layout.Take(kQueries, {&tops, &sums, &squares, &hits});
  }
};

/// Fills what pairs weigh, and from what queries count it, from the state and the call.
void WeighPairs(const Memory& memory);

/// The outputs of a task; `dtype` is that of the arithmetic.
void ComputeOutputs(const Task& task, DType dtype);

/// Writes the pairs of some tokens of a call into the state, and with the last of them the weights
/// of all. Ranges of tokens come in order.
void WritePairs(const Memory& memory, const Range& tokens, DType dtype);

}  // namespace ttr::kernel_smoother
