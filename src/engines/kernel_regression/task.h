/// One memory, and how its factor lies in memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "src/engines/common/queries.h"
#include "src/engines/common/row_views.h"
#include "src/engines/common/scratch_layout.h"
#include "src/engines/kernel_regression/kernel_regression.h"
#include "src/linalg/block.h"
#include "src/simd/rows.h"

namespace ttr::kernel_regression {

using common::HeadRows;
using common::ScratchLayout;
using linalg::Block;
using linalg::kUnit;
using simd::Rows;

/// One memory, one sequence.
struct Memory : common::QueriedPairs {
  double ridge = 0;
};

/// Pairs of a block: a block of the factor times another one stays in the second-level cache.
inline constexpr std::int64_t kBlock = 128;
/// Columns that lie together, row by row: a cache line.
template <class T>
inline constexpr std::int64_t kPanel = common::kLine<T>;

/// How pairs are cut into blocks. Blocks of few pairs are no larger than those.
struct Extent {
  std::int64_t block, blocks;

  explicit Extent(std::int64_t pairs)
      : block(std::min(kBlock, linalg::RoundUp(std::max<std::int64_t>(pairs, 1), kUnit))),
        blocks(common::CeilDiv(pairs, block)) {}

  std::int64_t rows() const { return block * blocks; }
  /// Numbers of the upper triangle, whole blocks, in the columns of blocks before block j.
  std::int64_t Before(std::int64_t j) const { return block * block * (j * (j + 1) / 2); }
};

inline constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max();

/// The state of a factor: how far it goes, and for which ridge and bandwidth.
struct Progress {
  std::int64_t done = 0;       ///< pairs in whole panels that are factored, which stay as they are
  std::int64_t good = 0;       ///< leading pairs whose factor is right
  std::int64_t nonfinite = 0;  ///< the first pair that is not finite
  double least = 0;            ///< the least share of a diagonal that a pivot of `done` has
  double ridge = 0;            ///< with which it was made
  double bandwidth = 0;
};

/// U = L^T of A = U^T U by column blocks: panels of columns, each with all rows down to the end of
/// its block. New pairs add panels, and no number moves.
template <class T>
struct Factor {
  Extent extent;
  Progress* progress;
  T* corners;     // linalg::UpperFactor
  T* gains;       // [pair]: log (D R), under the linear kernel D R; of no weight -inf, or 0
  T* diagonal;    // [pair]: of A
  T* inverse;     // [pair]: D^2
  Block<T> keys;  // [pair][channel]
  Block<T> e;     // [pair][channel]: D R V, then E
  T* u;
  std::int64_t* nonfinite_keys;    // [block]: the first pair that is not finite
  std::int64_t* nonfinite_values;  // [block]: is there a value that is not finite?
  std::int64_t* nonfinite_from;    // [channel]: the first pair whose value is not finite

  Factor(std::int64_t pairs, std::int64_t key_dim, std::int64_t value_dim, ScratchLayout& layout)
      : extent(pairs) {
    const std::int64_t rows = extent.rows();
    progress = layout.Take<Progress>(1);  // first: Task::progress()
    const auto block = [&](std::int64_t channels) {
      const std::int64_t stride = linalg::StrideOf<T>(linalg::RoundUp(channels, kUnit));
      return Block<T>{layout.Take<T>(rows * stride), stride};
    };
    corners = layout.Take<T>(rows * linalg::kCornerNumbers);
    layout.Take(rows, {&gains, &diagonal, &inverse});
    keys = block(key_dim);
    e = block(value_dim);
    u = layout.Take<T>(extent.Before(extent.blocks));
    layout.Take(extent.blocks, {&nonfinite_keys, &nonfinite_values});
    nonfinite_from = layout.Take<std::int64_t>(value_dim);
  }

  /// Rows from `row` on of panel h.
  Block<T> Panel(std::int64_t h, std::int64_t row) const {
    const std::int64_t column = h * kPanel<T>, b = column / extent.block;
    const std::int64_t height = (b + 1) * extent.block;
    return {u + extent.Before(b) + (column - b * extent.block) * height + row * kPanel<T>,
            kPanel<T>};
  }
};

/// A worker's scratch.
template <class T>
struct Scratch {
  Block<T> q;   // [query][channel]
  Block<T> kt;  // [channel][column of a block]
  Block<T> y;   // [query][channel]
  T* z;         // panels of columns, as those of a factor
  T* row;       // [channel]

  Scratch(std::int64_t pairs, std::int64_t key_dim, std::int64_t value_dim, ScratchLayout& layout) {
    const Extent extent(pairs);
    const std::int64_t dk = linalg::RoundUp(key_dim, kUnit), dv = linalg::RoundUp(value_dim, kUnit);
    const auto block = [&](std::int64_t rows, std::int64_t columns) {
      const std::int64_t stride = linalg::StrideOf<T>(columns);
      return Block<T>{layout.Take<T>(rows * stride), stride};
    };
    q = block(kBlock, dk);
    kt = block(dk, kBlock);
    y = block(kBlock, dv);
    z = layout.Take<T>(extent.rows() * kBlock);
    row = layout.Take<T>(std::max(dk, dv));
  }
};

/// The work on one memory.
struct Task {
  const Options& options;
  const Memory& memory;
  std::int64_t room = 0;         ///< pairs that the factor has room for
  std::byte* factor = nullptr;   ///< memory of Factor
  std::byte* scratch = nullptr;  ///< of Scratch

  Progress& progress() const { return *reinterpret_cast<Progress*>(factor); }
  /// Nothing of the factor is there yet.
  void Restart() const { progress() = {.ridge = memory.ridge, .bandwidth = memory.bandwidth}; }
  /// Has the factor another ridge or bandwidth?
  bool IsStale() const {
    return progress().ridge != memory.ridge || progress().bandwidth != memory.bandwidth;
  }
};

/// Keys, gains and values of a block of pairs.
void LoadBlock(const Task& task, std::int64_t block, DType dtype);
/// Gathers where any block has found a number that is not finite.
void FindNonfinite(const Task& task, DType dtype);
/// A in a block of columns.
void FillColumns(const Task& task, std::int64_t block, DType dtype);
/// The factor of a block on the diagonal, once the rows before it are there; false where a pivot
/// may be rounding, after which no more is factored.
bool FactorDiagonal(const Task& task, std::int64_t block, DType dtype);
/// Rows of that block in a later block of columns, or in E (`columns` = number of blocks).
void SolveRows(const Task& task, std::int64_t block, std::int64_t columns, DType dtype);
/// Answers queries first .. first + kBlock of the memory whose prefix has a factor.
void Retrieve(const Task& task, std::int64_t first, DType dtype);
/// Answers the queries of the other prefixes, with least norm, and writes their status.
void RetrieveByMinimumNorm(const Task& task, DType dtype);
/// Writes the pairs of the call into the state, and their weights.
void WritePairs(const Task& task, DType dtype);
void WeighPairs(const Memory& memory);

}  // namespace ttr::kernel_regression
