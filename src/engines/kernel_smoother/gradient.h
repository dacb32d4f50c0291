/// What the backward pass does with one memory, and how it divides its scratch.
#pragma once

#include <cstddef>
#include <cstdint>

#include "src/engines/common/pair_gradients.h"
#include "src/engines/kernel_smoother/task.h"

namespace ttr::kernel_smoother {

/// Numbers of the queries of a memory, in the type of the arithmetic.
struct QuerySums {
  void* logs = nullptr;  ///< [query]: as in SavedQueries
  void* dots = nullptr;  ///< [query]: dy . y
  void* hits = nullptr;  ///< [query]: as in Scratch
};

/// Gradients of one memory: rows as in Gradients, sums over queries in double.
struct MemoryGradient : common::PairGradients {
  QuerySums sums{};
  void* queries = nullptr;       ///< [query][channel]: sums for dq, where one task does all
  double* pair_sums = nullptr;   ///< [tokens]: of ds, of the call's pairs
  double* query_sums = nullptr;  ///< [query]: of ds
  double* width_sums = nullptr;  ///< [query]: of ds times the slope by the bandwidth
};

/// Which products a task takes: all of a whole memory, those of a block of queries, or those of a
/// block of pairs. Sums and their order are the same.
enum class Products : std::uint8_t { kWhole, kQueryBlock, kPairBlock };

struct GradientTask {
  const Options& options;
  const Memory& memory;
  const MemoryGradient& gradient;
  Products products = Products::kWhole;
  std::int64_t first = 0;  ///< query, or pair, of the block
  std::byte* scratch = nullptr;
};

/// What queries add up for the pairs of a block.
template <class T>
struct PairSums {
  Block<T> dk, dv;  // [pair][channel]
  T *e, *ds;        // [pair]
};

/// A worker's scratch of the backward pass.
template <class T>
struct GradientScratch {
  std::int64_t pairs;
  Block<T> q, dy;           // [query][channel]
  Block<T> dq;              // [query][channel], then the sum of e
  Block<T> k, v;            // [pair][channel]
  Block<T> kt, vt;          // [channel][pair]
  Block<T> scores, slopes;  // [query of a strip][pair]
  Block<T> p, e;            // [query][pair]
  common::OffsetRoom<T> offsets;
  PairSums<T> sums;
  T* marks;          // [pair]
  T* ds;             // [pair]: of one query
  T* idle;           // [query]: 1 where dy is zero
  T *row, *spare;    // [channel]
  BoxRoom<T> boxes;  // of queries and keys

  GradientScratch(std::int64_t key_dim, std::int64_t value_dim, ScratchLayout& layout)
      : pairs(PairsOfBlock(key_dim, value_dim)) {
    const std::int64_t dk_wide = linalg::RoundUp(key_dim, kUnit);
    const std::int64_t dv_wide = linalg::RoundUp(value_dim, kUnit);
    const auto block = [&](std::int64_t count, std::int64_t width) {
      const std::int64_t stride = linalg::StrideOf<T>(width);
      return Block<T>{layout.Take<T>(count * stride), stride};
    };
    q = block(kQueries, dk_wide);
    dy = block(kQueries, dv_wide);
    dq = block(kQueries, dk_wide + kUnit);
    k = block(pairs, dk_wide);
    v = block(pairs, dv_wide);
    kt = block(dk_wide, pairs);
    vt = block(dv_wide, pairs);
    sums.dk = block(pairs, dk_wide);
    sums.dv = block(pairs, dv_wide);
    scores = block(kStrip, pairs);
    slopes = block(kStrip, pairs);
    p = block(kQueries, pairs);
    e = block(kQueries, pairs);
    offsets = {pairs, layout};
    layout.Take(pairs, {&marks, &ds, &sums.e, &sums.ds});
    idle = layout.Take<T>(kQueries);
    layout.Take(dk_wide > dv_wide ? dk_wide : dv_wide, {&row, &spare});
    layout.Take(dk_wide, {&boxes.query_low, &boxes.query_high, &boxes.key_low, &boxes.key_high});
  }
};

/// logs and dots of a block of queries, from the means that the forward pass saved.
void TakeSums(const GradientTask& task, const void* means, DType dtype);
/// The gradients of a task.
void Differentiate(const GradientTask& task, DType dtype);
/// Gradients of decays, importance and the bandwidth, once all sums over queries are there.
void FinishWeights(const GradientTask& task);

}  // namespace ttr::kernel_smoother
