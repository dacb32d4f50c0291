/// What is done with one memory: what the glue tells the kernels, and how these divide their
/// scratch.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "src/engines/common/queries.h"
#include "src/engines/common/scratch_layout.h"
#include "src/engines/local_polynomial/local_polynomial.h"
#include "src/linalg/block.h"
#include "src/linalg/interleaved.h"

namespace ttr::local_polynomial {

using common::Range;
using common::ScratchLayout;
using linalg::Block;
using linalg::kUnit;

/// Queries that are answered together; a query head and token each is one.
inline constexpr std::int64_t kQueries = 2 * kUnit;
/// Rows that whole register tiles take (linalg's kTileRows at most).
inline constexpr std::int64_t kStrip = 8;
/// Pairs of a block, of which scores are kept.
inline constexpr std::int64_t kPairs = 128;
/// Pairs whose monomials lie in the second-level cache together.
constexpr std::int64_t DepthOf(std::int64_t monomials) { return monomials <= 64 ? 32 : 16; }

/// One memory, one sequence.
struct Memory : common::QueriedPairs {
  double ridge = 0;
};

/// Queries first .. first + count of a memory, kQueries at most.
struct Task {
  const Options& options;
  const Memory& memory;
  const Monomials& monomials;
  std::int64_t first = 0, count = 0;
  std::byte* scratch = nullptr;
};

/// What weighing pairs around queries takes.
template <class T>
struct WeightScratch {
  Block<T> q;       // [query][channel], as they are fitted
  Block<T> scaled;  // as they are compared
  Block<T> k;       // [pair][channel]
  Block<T> kt;      // [channel][pair]
  Block<T> scores;  // [query][pair]
  Block<T> p;       // [pair][query]: shares
  T* offsets;       // [pair]
  T *tops, *sums;   // [query]
  T* hits;          // [query]: 1 where a key at distance 0 has taken all weight
  Block<T> x;       // [query][pair]: what scores come from, where slopes are wanted
  /// [pair], where slopes are wanted: 1 of those whose importance is 0. Such a pair has a slope,
  /// though it takes no part: it is weighed as if its importance were 1.
  T* marks = nullptr;

  WeightScratch(std::int64_t key_dim, ScratchLayout& layout);
};

/// What fitting them takes. Numbers of one query are `lanes` apart, those of as many queries as a
/// vector has lanes side by side: a part of the kQueries.
template <class T>
struct FitScratch {
  std::int64_t wide;       // monomials, in whole panels
  std::int64_t depth;      // pairs of a step
  T* centres;              // [part][channel][lane]: from which keys are counted
  T* means;                // [part][monomial][lane]
  T* h;                    // [part]: the systems, in panels
  T* sides;                // [right-hand side][part][monomial][lane]
  T* totals;               // [part][lane]: means of numbers that are fitted
  T* inverses;             // [monomial][lane]
  T* one;                  // [monomial][lane]: of one pair
  T *rows, *columns;       // [panel][pair][4][lane]: times minus the share, and as they are
  T *regular, *cancelled;  // [query]
  // Where all queries count keys from one centre:
  T* centre = nullptr;    // [channel]
  Block<T> k;             // [pair][channel]: keys less that
  T* products = nullptr;  // [pair][16]: of four channels and four
  Block<T> numbers;       // [pair][query]: times their shares, for the second system

  FitScratch(std::int64_t monomials, std::int64_t key_dim, std::int64_t sides_count,
             ScratchLayout& layout);
};

template <class T>
Block<T> TakeBlock(ScratchLayout& layout, std::int64_t rows, std::int64_t columns) {
  const std::int64_t stride = linalg::StrideOf<T>(columns);
  return {layout.Take<T>(rows * stride), stride};
}

template <class T>
WeightScratch<T>::WeightScratch(std::int64_t key_dim, ScratchLayout& layout) {
  const std::int64_t dk = linalg::RoundUp(key_dim, kUnit);
  q = TakeBlock<T>(layout, kQueries, dk);
  scaled = TakeBlock<T>(layout, kQueries, dk);
  k = TakeBlock<T>(layout, kPairs, dk);
  kt = TakeBlock<T>(layout, dk, kPairs);
  scores = TakeBlock<T>(layout, kQueries, kPairs);
  p = TakeBlock<T>(layout, kPairs, kQueries);
  layout.Take(kPairs, {&offsets});
  layout.Take(kQueries, {&tops, &sums, &hits});
}

template <class T>
FitScratch<T>::FitScratch(std::int64_t monomials, std::int64_t key_dim, std::int64_t sides_count,
                          ScratchLayout& layout)
    : wide(linalg::RoundUp(monomials, linalg::kPanelRows)), depth(DepthOf(monomials)) {
  constexpr std::int64_t kMost = linalg::kMostSystems<T>;
  layout.Take(key_dim * kQueries, {&centres});
  layout.Take(wide * kQueries, {&means});
  h = layout.Take<T>(linalg::VectorsBefore(linalg::PanelsOf(monomials)) * kQueries);
  sides = layout.Take<T>(sides_count * wide * kQueries);
  totals = layout.Take<T>(kQueries);
  layout.Take(wide * kMost, {&inverses, &one});
  layout.Take(depth * wide * kMost, {&rows, &columns});
  layout.Take(kQueries, {&regular, &cancelled});
  if (monomials != key_dim) return;
  centre = layout.Take<T>(linalg::RoundUp(key_dim, kUnit));
  k = TakeBlock<T>(layout, kPairs, linalg::RoundUp(key_dim, kUnit));
  products = layout.Take<T>(kPairs * linalg::kPanelRows * linalg::kPanelRows);
  if (sides_count > 1) numbers = TakeBlock<T>(layout, kPairs, kQueries);
}

/// Of a worker.
template <class T>
struct Scratch {
  WeightScratch<T> weights;
  FitScratch<T> fit;
  Block<T> v;         // [pair][channel]
  Block<T> y;         // [query][channel]
  Block<T> means;     // [query][channel]: of keys, where they are what is fitted
  Block<T> e;         // [pair][query]: what a value counts in an answer
  T* row;             // [channel]: a value that is not finite
  std::int64_t* odd;  // [pair]: which are

  Scratch(std::int64_t monomials, std::int64_t key_dim, std::int64_t value_dim,
          ScratchLayout& layout)
      : weights(key_dim, layout), fit(monomials, key_dim, 1, layout) {
    const std::int64_t dk = linalg::RoundUp(key_dim, kUnit), dv = linalg::RoundUp(value_dim, kUnit);
    v = TakeBlock<T>(layout, kPairs, dv);
    y = TakeBlock<T>(layout, kQueries, dv);
    means = TakeBlock<T>(layout, kQueries, dk);
    e = TakeBlock<T>(layout, kPairs, kQueries);
    row = layout.Take<T>(dv);
    odd = layout.Take<std::int64_t>(kPairs);
  }
};

/// Fills weights.offsets, totals and forgotten from the state and the call.
void WeighPairs(const Memory& memory);

/// Answers the queries of a task; `dtype` is that of the arithmetic.
void Answer(const Task& task, DType dtype);

/// Writes the pairs of some tokens of a call into the state, and with the last of them the weights
/// of all. Ranges of tokens come in order.
void WritePairs(const Memory& memory, const Range& tokens, DType dtype);
/// Writes a single token's pair, and the weights of all.
void WritePair(const Memory& memory, DType dtype);

}  // namespace ttr::local_polynomial
