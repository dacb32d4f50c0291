/// What the backward pass does with one memory, and how it divides its scratch.
#pragma once

#include <cstddef>
#include <cstdint>

#include "src/engines/common/pair_gradients.h"
#include "src/engines/kernel_regression/task.h"

namespace ttr::kernel_regression {

/// Gradients of one memory: rows as in Gradients.
using MemoryGradient = common::PairGradients;

/// The columns a_t and b_t of all queries: of a block of kBlock queries as many rows, in whole
/// blocks, as its last one sees.
inline std::int64_t RowsOfQueries(const common::VisibleRange& visible, std::int64_t queries,
                                  std::int64_t rows, std::int64_t block, const Extent& extent) {
  const std::int64_t last = std::min((block + 1) * kBlock, rows) - 1;
  return linalg::RoundUp(visible.End(last / queries), extent.block);
}

/// The columns of a block of queries.
template <class T>
struct SolutionBlock {
  T *a, *b;
};

template <class T>
struct Solutions {
  T *a, *b;
  double* products;  // [pair]: p
  double* widths;    // [block of pairs, then block of queries]: of the gradient of the bandwidth

  /// `rows`: queries of all tokens, `queries` of one.
  Solutions(const common::VisibleRange& visible, std::int64_t rows, std::int64_t queries,
            std::int64_t pairs, ScratchLayout& layout) {
    const Extent extent(pairs);
    const std::int64_t blocks = common::CeilDiv(rows, kBlock);
    std::int64_t numbers = 0;
    for (std::int64_t block = 0; block < blocks; ++block) {
      numbers += RowsOfQueries(visible, queries, rows, block, extent) * kBlock;
    }
    layout.Take(numbers, {&a, &b});
    products = layout.Take<double>(extent.rows());
    widths = layout.Take<double>(extent.blocks + blocks);
  }

  SolutionBlock<T> Of(const Memory& m, const Extent& extent, std::int64_t block) const {
    std::int64_t before = 0;
    for (std::int64_t i = 0; i < block; ++i) {
      before += RowsOfQueries(m.visible, m.queries, m.rows, i, extent) * kBlock;
    }
    return {a + before, b + before};
  }
};

/// A worker's scratch of the backward pass.
template <class T>
struct GradientScratch {
  Scratch<T> queries;
  Block<T> dyt;     // [channel][query]
  Block<T> at, bt;  // [query][pair of a block]
  Block<T> dk, dv;  // [row of a block][channel]
  Block<T> x, e;    // [row of a block][column of a panel]
  T* sums;          // [row of a block]
  T *row, *spare;   // [channel]

  GradientScratch(std::int64_t pairs, std::int64_t key_dim, std::int64_t value_dim,
                  ScratchLayout& layout)
      : queries(pairs, key_dim, value_dim, layout) {
    const std::int64_t wide_k = linalg::RoundUp(key_dim, kUnit);
    const std::int64_t wide_v = linalg::RoundUp(value_dim, kUnit);
    const auto block = [&](std::int64_t rows, std::int64_t columns) {
      const std::int64_t stride = linalg::StrideOf<T>(columns);
      return Block<T>{layout.Take<T>(rows * stride), stride};
    };
    dyt = block(wide_v, kBlock);
    at = block(kBlock, kBlock);
    bt = block(kBlock, kBlock);
    dk = block(kBlock, wide_k);
    dv = block(kBlock, wide_v);
    x = {layout.Take<T>(kBlock * kPanel<T>), kPanel<T>};
    e = {layout.Take<T>(kBlock * kPanel<T>), kPanel<T>};
    sums = layout.Take<T>(kBlock);
    layout.Take(std::max(wide_k, wide_v), {&row, &spare});
  }
};

struct GradientTask {
  const Task& task;  // its scratch that of GradientScratch
  const MemoryGradient& gradient;
  std::byte* solutions = nullptr;  ///< memory of Solutions
};

/// Pairs that any query sees.
inline std::int64_t SeenPairs(const Memory& m) {
  return m.rows > 0 ? m.visible.End((m.rows - 1) / m.queries) : 0;
}

/// Queries whose prefixes are finite: they come first.
template <class T>
std::int64_t FiniteQueries(const Task& task) {
  const Memory& m = task.memory;
  ScratchLayout layout(task.factor);
  const Factor<T> f(task.room, m.key_dim, m.value_dim, layout);
  std::int64_t pairs = f.progress->nonfinite;
  for (std::int64_t c = 0; c < m.value_dim; ++c) pairs = std::min(pairs, f.nonfinite_from[c]);
  std::int64_t rows = m.rows;
  while (rows > 0 && m.visible.End((rows - 1) / m.queries) > pairs) --rows;
  return rows;
}
inline std::int64_t FiniteQueries(const Task& task, DType dtype) {
  return dtype == DType::kFloat64 ? FiniteQueries<double>(task) : FiniteQueries<float>(task);
}

/// a, b and dq of a block of queries.
void SolveQueries(const GradientTask& task, std::int64_t block, DType dtype);
/// dA in a block of columns, times the kernel's slope, in the place of the factor's.
void FillSlopes(const GradientTask& task, std::int64_t block, DType dtype);
/// dk and dv of a block of pairs.
void SumPairs(const GradientTask& task, std::int64_t block, DType dtype);
/// All gradients of a memory, prefix by prefix.
void DifferentiateByMinimumNorm(const GradientTask& task, DType dtype);
/// Gradients of weights, ridge and bandwidth, once all blocks are there.
void FinishSums(const GradientTask& task, DType dtype);
/// Writes NaN into the gradients of all that queries from `first` on depend on, as their prefixes
/// are not finite.
void SpreadNonfinite(const GradientTask& task, std::int64_t first, DType dtype);

}  // namespace ttr::kernel_regression
