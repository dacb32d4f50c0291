/// What the backward pass does with one memory, and how it divides its scratch.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "src/engines/common/pair_gradients.h"
#include "src/engines/local_polynomial/task.h"

namespace ttr::local_polynomial {

/// What is known of kQueries queries once they are fitted, in lanes as FitScratch has it.
template <class T>
struct FitRecord {
  T* centres;             // [vector][channel][lane]
  T *means, *u, *s;       // [vector][monomial][lane]
  T *twice, *normal;      // [vector][monomial][lane]: s2 and n of singular systems
  T *totals, *dots;       // [query]: the mean of dy . v, ridge u . s
  T *tops, *sums, *hits;  // [query]
  T* singular;            // [query]: 1 where s2 and n count

  FitRecord(std::int64_t monomials, std::int64_t key_dim, ScratchLayout& layout) {
    const std::int64_t wide = linalg::RoundUp(monomials, linalg::kPanelRows);
    layout.Take(key_dim * kQueries, {&centres});
    layout.Take(wide * kQueries, {&means, &u, &s, &twice, &normal});
    layout.Take(kQueries, {&totals, &dots, &tops, &sums, &hits, &singular});
  }
};

/// Gradients of one memory, and sums over queries or pairs on the way to them.
struct MemoryGradient : common::PairGradients {
  std::byte* records = nullptr;  ///< of groups of kQueries
  std::size_t record_bytes = 0;  ///< from one to the next
  double* pair_sums = nullptr;   ///< [tokens]: of ds, of the call's pairs
  double* width_sums = nullptr;  ///< [query]: of ds times the slope by the bandwidth
  double* ridge_sums = nullptr;  ///< [query]
};

/// Queries first .. first + count, or the pairs of the block from `first` on.
struct GradientTask {
  const Options& options;
  const Memory& memory;
  const Monomials& monomials;
  const MemoryGradient& gradient;
  std::int64_t first = 0, count = 0;
  std::byte* scratch = nullptr;
};

/// A worker's scratch of the backward pass.
template <class T>
struct GradientScratch {
  WeightScratch<T> weights;
  FitScratch<T> fit;
  Block<T> means;     // [query][channel]
  Block<T> dy;        // [query][channel]
  Block<T> dq;        // [query][channel]
  Block<T> v, vt;     // [pair][channel] and its transpose
  Block<T> rows;      // [query][pair]: dy . v, ds, ds times a slope
  Block<T> a, ds, e;  // [pair][query]
  Block<T> dk, dv;    // [pair][channel]
  T* adjoint;         // [monomial][lane]
  T* ds_sums;         // [pair]
  T* e_sums;          // [pair]
  T *row, *spare;     // [channel]

  GradientScratch(std::int64_t monomials, std::int64_t key_dim, std::int64_t value_dim,
                  ScratchLayout& layout)
      : weights(key_dim, layout), fit(monomials, key_dim, 2, layout) {
    const std::int64_t dk_wide = linalg::RoundUp(key_dim, kUnit);
    const std::int64_t dv_wide = linalg::RoundUp(value_dim, kUnit);
    weights.x = TakeBlock<T>(layout, kQueries, kPairs);
    weights.marks = layout.Take<T>(kPairs);
    means = TakeBlock<T>(layout, kQueries, dk_wide);
    dy = TakeBlock<T>(layout, kQueries, dv_wide);
    dq = TakeBlock<T>(layout, kQueries, dk_wide);
    v = TakeBlock<T>(layout, kPairs, dv_wide);
    vt = TakeBlock<T>(layout, dv_wide, kPairs);
    rows = TakeBlock<T>(layout, kQueries, kPairs);
    a = TakeBlock<T>(layout, kPairs, kQueries);
    ds = TakeBlock<T>(layout, kPairs, kQueries);
    e = TakeBlock<T>(layout, kPairs, kQueries);
    dk = TakeBlock<T>(layout, kPairs, dk_wide);
    dv = TakeBlock<T>(layout, kPairs, dv_wide);
    adjoint = layout.Take<T>(linalg::RoundUp(monomials, kUnit) * linalg::kMostSystems<T>);
    layout.Take(kPairs, {&ds_sums, &e_sums});
    layout.Take(std::max(dk_wide, dv_wide), {&row, &spare});
  }
};

/// Fits some queries again, with the systems of their gradients, leaves a record of them, and
/// stores their gradients.
void DifferentiateQueries(const GradientTask& task, DType dtype);
/// The gradients of a block of pairs, once all records are there.
void DifferentiatePairs(const GradientTask& task, DType dtype);
/// Gradients of decays, importance, the bandwidth and the ridge, once all sums are there.
void FinishGradient(const GradientTask& task);

}  // namespace ttr::local_polynomial
