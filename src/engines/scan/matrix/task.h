/// What is done with one matrix memory: what the glue hands to the kernels, and how these divide
/// their scratch.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "src/engines/common/row_views.h"
#include "src/engines/common/scratch_layout.h"
#include "src/engines/scan/saved_states.h"
#include "src/engines/scan/scan.h"
#include "src/simd/rows.h"

namespace ttr::scan {

using common::HeadRows;
using common::kLine;
using common::RoundUp;
using common::ScratchLayout;
using simd::Rows;

/// Tokens for which a strip of a matrix stays in registers, and the bytes of a strip's rows.
inline constexpr std::int64_t kBlockTokens = kCheckpoint;
inline constexpr std::int64_t kStripBytes = 256;

/// Columns of a matrix that make one task of the backward pass. Sums over columns are taken within
/// a task, then over tasks, so this may not depend on the number of threads.
inline constexpr std::int64_t kGroup = 256;

/// Key rows that are taken back together.
inline constexpr int kGroupRows = 4;

/// Key rows of matrices: the first one, and numbers to the next row and to the next matrix.
struct MatrixStates {
  void* data = nullptr;
  std::int64_t row_stride = 0;
  std::int64_t stride = 0;
};

/// One memory, one sequence, a range of value columns (row pointers, a and the state stand at the
/// first of them).
struct Matrix {
  HeadRows q, y;  // of the queries that read this memory
  Rows k, v, dt;
  Rows importance;  // one number a token
  Rows a;           // one row a column
  MatrixStates state;
  MatrixStates saved;  // the state before token kCheckpoint; null: none is saved
  std::int64_t tokens = 0;
  std::int64_t key_dim = 1;
  std::int64_t columns = 0;
  std::int64_t queries = 1;
};

/// Gradients of a matrix memory from a group of columns: sums over these, in the state's dtype.
/// `token` counts from the sequence's first.
struct MatrixGradient {
  HeadRows dy;
  Rows dv, ddt;
  Rows dimportance;    // [token]
  void* dk = nullptr;  // [token][key_dim]
  void* dq = nullptr;  // [token][key_dim], queries `dq_stride` numbers apart
  std::int64_t dq_stride = 0;
  void* da = nullptr;  // [columns][key_dim]
  MatrixStates dstate;
};

/// What is done with one memory, while the first part of the `next` one is fetched if it has
/// tokens. The gradient is absent forwards.
struct MatrixTask {
  const Options& options;
  const Sizes& sizes;
  Matrix memory;
  Matrix next{};
  MatrixGradient gradient{};
  std::byte* scratch = nullptr;
};

/// Does a column have more rates, of so many bytes each, than a line holds? Then those of its
/// neighbours, and with them rows of the state, are met in leaps that hardware does not foresee.
constexpr bool RatesFillLines(std::int64_t key_dim, std::size_t bytes) {
  return key_dim * static_cast<std::int64_t>(bytes) > common::kLineBytes;
}

/// A worker's scratch, one for all targets.
template <class T>
struct MatrixScratch {
  static constexpr std::int64_t kStrip = kStripBytes / sizeof(T);
  // Rows of a strip are an odd number of lines apart: all tokens of one vector of columns have
  // their place in the first-level cache.
  static constexpr std::int64_t kRow = kStrip + kLine<T>;
  T* rates;    // [columns / lanes][key_dim][lanes]: a, times its unit
  T* k;        // [token][key_dim]
  T* q;        // [query][token][key_dim]
  T *v, *dt;   // [token][strip]
  T* y;        // [query][token][columns, or a strip of them]
  T* state;    // [key_dim][line]: columns that do not fill a vector
  T* a_rows;   // [line][key_dim]: converted
  T* weights;  // [token]

  MatrixScratch(const Sizes& sizes, ScratchLayout& layout) {
    layout.LeaveGaps();
    const std::int64_t columns = RoundUp(sizes.value_dim, kStrip);
    rates = layout.Take<T>(columns * sizes.key_dim);
    k = layout.Take<T>(kBlockTokens * sizes.key_dim);
    q = layout.Take<T>(sizes.queries * kBlockTokens * sizes.key_dim);
    layout.Take(kBlockTokens * kRow, {&v, &dt});
    y = layout.Take<T>(sizes.queries * kBlockTokens * OutputRow(sizes.whole_rows, columns));
    layout.Take(sizes.key_dim * kLine<T>, {&state, &a_rows});
    weights = layout.Take<T>(kBlockTokens);
  }

  /// Numbers from one token's outputs to the next one's.
  static std::int64_t OutputRow(bool whole_rows, std::int64_t columns) {
    return whole_rows ? RoundUp(columns, kStrip) + kRow - kStrip : kRow;
  }
};

/// A worker's scratch of the backward pass; columns are those of a group.
template <class T>
struct MatrixGradientScratch {
  static constexpr std::int64_t kStrip = MatrixScratch<T>::kStrip;
  static constexpr std::int64_t kRow = MatrixScratch<T>::kRow;
  std::int64_t columns;  // of a group, whole strips
  T* saved;              // [block][key_dim][columns]; of one block, where Forward saved states
  T* states;             // [token][row][lanes]: before every token, of a group of key rows and one
                         // vector of columns
  T* factors;            // [token][row][lanes]: decays
  T* dstate;             // [key_dim][columns]
  T* da;                 // [columns / lanes][key_dim][lanes]
  T *dk, *dq;   // [group of rows][token][row][lanes], dq with [query] in front: sums over vectors
  T *dv, *ddt;  // [token][strip]
  T* dy;        // [query][token][strip], scaled
  T* dimportance;  // [token]
  MatrixScratch<T> forward;

  /// `tokens`: for which states are to be saved.
  MatrixGradientScratch(const Sizes& sizes, std::int64_t tokens, ScratchLayout& layout)
      : columns(std::min(kGroup, RoundUp(sizes.value_dim, kStrip))),
        forward(OfGroup(sizes, columns), layout) {
    const std::int64_t matrix = sizes.key_dim * columns;
    const std::int64_t sums = kCheckpoint * sizes.key_dim * kLine<T>;
    saved = layout.Take<T>(std::max<std::int64_t>(BlocksOf(tokens), 1) * matrix);
    layout.Take(kCheckpoint * kGroupRows * kLine<T>, {&states, &factors});
    layout.Take(matrix, {&dstate, &da});
    dk = layout.Take<T>(sums);
    dq = layout.Take<T>(sizes.queries * sums);
    layout.Take(kCheckpoint * kRow, {&dv, &ddt});
    dy = layout.Take<T>(sizes.queries * kCheckpoint * kRow);
    dimportance = layout.Take<T>(kCheckpoint);
  }

 private:
  static Sizes OfGroup(Sizes sizes, std::int64_t group_columns) {
    sizes.value_dim = group_columns;
    return sizes;
  }
};

/// One memory through one sequence, and back; MatrixTask::scratch, at a multiple of 64, has the
/// bytes of MatrixScratch or MatrixGradientScratch.
void ScanMatrix(const MatrixTask& task);
void ScanMatrixBackward(const MatrixTask& task);

/// Stores the gradient of one row of keys or queries, or of another input, from its `total` over
/// all tasks. `input`: the row, where its gradient goes through x / sqrt(|x|^2 + 1e-6); or absent.
/// `room`: 2 count numbers.
void StoreGradient(const Rows& input, const Rows& gradient, std::int64_t count, double* total,
                   double* room);

}  // namespace ttr::scan
