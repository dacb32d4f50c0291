/// What is done with one memory: what the glue hands to the kernels, and how these divide their
/// scratch.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "src/engines/common/block_offsets.h"
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

/// Queries that are fitted together: one for each query head and token.
inline constexpr std::int64_t kQueries = 2 * kUnit;
/// Rows that whole register tiles take (linalg's kTileRows at most).
inline constexpr std::int64_t kStrip = 8;
/// Pairs of a block, of which scores are kept.
inline constexpr std::int64_t kPairs = 128;
/// The share of its diagonal that a pivot must leave. A Cholesky factor rounds at the square of the
/// condition of the rows, which pivots only bound. Systems that leave less are solved by orthogonal
/// factors. A ridge keeps the rest of the pivots from being smaller still; monomials of higher
/// degrees depend on each other.
constexpr double LeastPivot(std::int64_t degree, double ridge) {
  if (ridge < 1e-6) return degree == 1 ? 0.1 : 0.3;
  return degree == 1 ? 1e-3 : 1e-2;
}
/// Pairs whose monomials lie in the second-level cache together.
constexpr std::int64_t DepthOf(std::int64_t monomials) { return monomials <= 64 ? 32 : 16; }

/// How a query is fitted: by a system of its pairs, of monomials that are counted from a centre of
/// several queries, or of its own.
enum class FitMethod : std::uint8_t { kNone, kDual, kShared, kOwn };
using FitMethods = std::array<FitMethod, kQueries>;

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

/// Scratch for weighing pairs around queries.
template <class T>
struct WeightScratch {
  Block<T> q;       // [query][channel], as they are fitted
  Block<T> scaled;  // as they are compared
  Block<T> k;       // [pair][channel]
  Block<T> kt;      // [channel][pair]
  Block<T> scores;  // [query][pair]
  Block<T> p;       // [pair][query]: shares
  common::OffsetRoom<T> offsets;
  T *tops, *sums;      // [query]
  T* hits;             // [query]: 1 where a key at distance 0 has taken all weight
  std::int64_t* near;  // [query]: pairs that have weight, at most
  Block<T> x;          // [query][pair]: what scores come from, where slopes are wanted
  /// [pair], where slopes are wanted: 1 of those whose importance is 0. Such a pair has a slope,
  /// though it takes no part: it is weighed as if its importance were 1.
  T* marks = nullptr;

  WeightScratch(std::int64_t key_dim, ScratchLayout& layout);
};

/// Scratch for fitting queries of few pairs: [query][pair], `most` of each.
template <class T>
struct DualScratch {
  std::int64_t most;
  std::int64_t *counts, *pairs;
  T *shares, *numbers, *e;
  Block<T> x, xt;               // rows of one query
  Block<T> products;            // of those rows
  T* sides;                     // [right-hand side][pair][lane]
  T *heaviest, *mean, *origin;  // [monomial]

  DualScratch(std::int64_t monomials, std::int64_t sides_count, ScratchLayout& layout);
};

/// Channels from which on conjugate gradients are tried, and pairs whose shares are kept for them.
inline constexpr std::int64_t kLeastChannels = 64, kKeptPairs = 8192;

/// Scratch of conjugate gradients, in degree 1.
template <class T>
struct ConjugateScratch {
  Block<T> shares;          // [pair][query]
  Block<T> means, squares;  // [channel][query]
  Block<T> residual, direction, image, solution;
  Block<T> products;          // [pair][channel]
  Block<T> weighed;           // [pair][query]
  T *along, *left, *allowed;  // [query]
  T* keys;                    // [channel]: the sum of all

  ConjugateScratch(std::int64_t channels, ScratchLayout& layout);
};

/// Results of queries that are fitted, as FitScratch has them.
template <class T>
struct FitResults {
  T *centres, *means, *sides, *totals, *regular;

  FitResults(std::int64_t wide, std::int64_t key_dim, std::int64_t sides_count,
             ScratchLayout& layout) {
    centres = layout.Take<T>(key_dim * kQueries);
    means = layout.Take<T>(wide * kQueries);
    sides = layout.Take<T>(sides_count * wide * kQueries);
    layout.Take(kQueries, {&totals, &regular});
  }
};

/// Keys as all queries count them from one centre, and products of them.
template <class T>
struct CentredKeys {
  T* centre = nullptr;    // [channel]
  Block<T> k;             // [pair][channel]: keys less the centre
  T* products = nullptr;  // [pair][16]: of four channels and four
  Block<T> numbers;       // [pair][query]: times their shares, for the second system
};

/// Scratch for fitting queries. Numbers of one query are `lanes` apart. Those of as many queries as
/// a vector has lanes lie side by side, a vector of queries.
template <class T>
struct FitScratch {
  std::int64_t wide;       // monomials, in whole panels
  std::int64_t depth;      // pairs of a step
  T* centres;              // [vector][channel][lane]: from which keys are counted
  T* means;                // [vector][monomial][lane]
  T* h;                    // [vector]: the systems, in panels
  T* sides;                // [right-hand side][vector][monomial][lane]
  T* totals;               // [vector][lane]: means of numbers that are fitted
  T* inverses;             // [monomial][lane]
  T* one;                  // [monomial][lane]: of one pair
  T *rows, *columns;       // [panel][pair][4][lane]: times minus the share, and as they are
  T *regular, *cancelled;  // [query]
  DualScratch<T> dual;
  ConjugateScratch<T> conjugate;
  FitResults<T> kept;        // of queries whose method has ended, while others go on
  Block<T> by_other_method;  // [pair][query]: what a value counts, by another method
  CentredKeys<T> centred;    // where all queries count from one centre

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
  offsets = {kPairs, layout};
  layout.Take(kQueries, {&tops, &sums, &hits});
  near = layout.Take<std::int64_t>(kQueries);
}

template <class T>
DualScratch<T>::DualScratch(std::int64_t monomials, std::int64_t sides_count, ScratchLayout& layout)
    : most(monomials) {
  const std::int64_t wide = linalg::RoundUp(monomials, kUnit);
  layout.Take(kQueries, {&counts});
  layout.Take(kQueries * most, {&pairs});
  layout.Take(kQueries * most, {&shares, &numbers, &e});
  for (Block<T>* block : {&x, &xt, &products}) *block = TakeBlock<T>(layout, wide, wide);
  sides = layout.Take<T>(sides_count * wide * linalg::kMostSystems<T>);
  layout.Take(wide, {&heaviest, &mean, &origin});
}

template <class T>
ConjugateScratch<T>::ConjugateScratch(std::int64_t channels, ScratchLayout& layout) {
  if (channels < kLeastChannels) return;
  const std::int64_t wide = linalg::RoundUp(channels, kUnit);
  shares = {layout.Take<T>(kKeptPairs * kQueries), kQueries};
  for (Block<T>* block : {&means, &squares, &residual, &direction, &image, &solution}) {
    *block = TakeBlock<T>(layout, wide, kQueries);
  }
  products = TakeBlock<T>(layout, kPairs, wide);
  weighed = TakeBlock<T>(layout, kPairs, kQueries);
  layout.Take(kQueries, {&along, &left, &allowed});
  keys = layout.Take<T>(wide);
}

template <class T>
FitScratch<T>::FitScratch(std::int64_t monomials, std::int64_t key_dim, std::int64_t sides_count,
                          ScratchLayout& layout)
    : wide(linalg::RoundUp(monomials, linalg::kPanelRows)),
      depth(DepthOf(monomials)),
      dual(monomials, sides_count, layout),
      conjugate(monomials == key_dim ? key_dim : 0, layout),
      kept(wide, key_dim, sides_count, layout),
      by_other_method(TakeBlock<T>(layout, kPairs, kQueries)) {
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
  centred.centre = layout.Take<T>(linalg::RoundUp(key_dim, kUnit));
  centred.k = TakeBlock<T>(layout, kPairs, linalg::RoundUp(key_dim, kUnit));
  centred.products = layout.Take<T>(kPairs * linalg::kPanelRows * linalg::kPanelRows);
  if (sides_count > 1) centred.numbers = TakeBlock<T>(layout, kPairs, kQueries);
}

/// A worker's scratch.
template <class T>
struct Scratch {
  WeightScratch<T> weights;
  FitScratch<T> fit;
  Block<T> v;                // [pair][channel]
  Block<T> y;                // [query][channel]
  Block<T> means;            // [query][channel]: of keys, where they are what is fitted
  Block<T> e;                // [pair][query]: what a value counts in an output
  T* row;                    // [channel]: a value that is not finite
  std::int64_t* non_finite;  // [pair]: which are

  Scratch(std::int64_t monomials, std::int64_t key_dim, std::int64_t value_dim,
          ScratchLayout& layout)
      : weights(key_dim, layout), fit(monomials, key_dim, 1, layout) {
    const std::int64_t dk = linalg::RoundUp(key_dim, kUnit), dv = linalg::RoundUp(value_dim, kUnit);
    v = TakeBlock<T>(layout, kPairs, dv);
    y = TakeBlock<T>(layout, kQueries, dv);
    means = TakeBlock<T>(layout, kQueries, dk);
    e = TakeBlock<T>(layout, kPairs, kQueries);
    row = layout.Take<T>(dv);
    non_finite = layout.Take<std::int64_t>(kPairs);
  }
};

/// Fills what pairs weigh, and from what queries count it, from the state and the call.
void WeighPairs(const Memory& memory);

/// Fits around the queries of a task, and their outputs; `dtype` is that of the arithmetic.
void Predict(const Task& task, DType dtype);

/// Writes the pairs of some tokens of a call into the state, and with the last of them the weights
/// of all. Ranges of tokens come in order.
void WritePairs(const Memory& memory, const Range& tokens, DType dtype);
/// Writes a single token's pair, and the weights of all.
void WritePair(const Memory& memory, DType dtype);

}  // namespace ttr::local_polynomial
