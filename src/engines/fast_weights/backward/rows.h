/// A block of one memory's rows, for the backward pass: what gather-inl.h makes of chunks, beside
/// its gradients; and what goes on from block to block.
///
/// R rows of a block (tokens times steps), D key channels, V value columns (one more where outputs
/// are divided by the sum of weights, which is the memory of the value 1). Where channels rotate,
/// rows have twice the channels (rotation-inl.h).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "src/engines/common/scratch_layout.h"
#include "src/engines/fast_weights/adjoint/gradient.h"
#include "src/engines/fast_weights/layout.h"
#include "src/engines/fast_weights/row_io.h"

namespace ttr::fast_weights {

using common::ScratchLayout;

/// Where the gradients of one memory's inputs and initial state go, and those of its final state
/// come from. Rows as in Memory, which it stands beside; parameters of features are added to.
struct GradientMemory {
  Operands<Rows> inputs;
  StateOperands<Rows> entries;     // of the initial state
  StateOperands<Rows> final;       // dL/d of the final state; absent: 0
  std::int64_t q_head_stride = 0;  // in elements, between the queries of one memory
  // Do other heads, or for constants other sequences, come before, whose gradients are added to?
  bool add_q = false, add_k = false, add_v = false, add_constants = false;
};

/// Sizes of the arrays.
struct BlockShape {
  std::int64_t rows;  // a block has room for
  std::int64_t key_stride, value_stride, value_dim, queries;
  std::int64_t state;  // numbers of all memories

  BlockShape(const Options& options, const Sizes& sizes);
};

/// A block's rows and numbers, or their gradients; null where the options have none.
template <class T>
struct RowArrays {
  T *key, *write, *erase;  // key: after features; its gradient where a value is written along it
  T *query, *value;        // query: [query][row][key]
  T* gates;                // their gradients are those of their logarithms
  T *step, *decay, *erase_decay, *momentum, *bonus;
};

/// How far channels have rotated.
template <class T>
struct RotationArrays {
  T *cosines, *sines;  // [row][key]: of the frames behind the rows
  T* frame;            // behind the row gathered last: cosines, then sines
  // dL/dp of a phase behind the row that comes next, going backwards; and of one before the block.
  T *d_angle, *d_angle_before;
};

/// What goes on from row to row beside the memory.
template <class T>
struct RunningArrays {
  T *maxima, *curvature;  // [rows + 1]: before the first row, and after each
  T* from_past;           // [rows]: is the maximum that of the past? 1 or 0
  double* block_maxima;   // [block + 1]: before each block, and after the last
  T* block_curvatures;    // [block + 1]: likewise
  T* d_curvature;
  T d_maximum = 0;        // of the maximum after the row that comes next, going backwards
  T d_first_maximum = 0;  // of the maximum before all rows, by their first decay or output
};

/// Arrays of memories that are not causal (whole.h).
template <class T>
struct WholeArrays {
  T* memory;  // [D][value]
  T* y;       // [query][row][value]
  // What multiplies the rows of every block, [block][plane][key], planes a real and an imaginary
  // one where there are phases; and sums over the rows so far.
  T *factors, *sums;

  WholeArrays(const Options& options, const BlockShape& shape, std::int64_t blocks,
              ScratchLayout& layout);
};

/// Which rows are read or written in place, as the caller has them?
struct InPlace {
  bool keys = false;  // and queries
  bool value = false, dy = false;
  bool d_value = false, d_query = false, d_key = false;
};

/// Which gradients are written past the caches?
struct Streams {
  bool query = false, key = false, value = false;
};

template <class T>
struct BackwardRows : BlockShape, RowArrays<T> {
  std::int64_t first = 0, count = 0;  // the rows that it holds

  RowArrays<T> d;
  T* d_phase;
  T* dy;  // [query][row][value]
  RotationArrays<T> rotation;
  RunningArrays<T> running;
  WholeArrays<T> whole;
  T* d_bonus_row;
  T *d_initial, *d_final;  // [D][value]: extended by the sum; with momentum, two each

  InPlace in_place;
  Streams streams;
  bool folds_scale;  // do the gradients of outputs carry the queries' scale, not the queries?

  T* row;               // rows of inputs, keys and values for the moment
  std::byte* gradient;  // scratch of gradient.h

  BackwardRows(const Options& options, const Sizes& sizes, ScratchLayout& layout);

  /// From a memory to the second of a pair, as d_initial has it.
  std::int64_t second(const Options& options) const {
    return (options.phase ? key_stride / 2 : key_stride) * value_stride;
  }

  /// What multiplies the gradients of outputs that are neither divided nor normalised.
  T OutputFactor(const Options& options) const {
    return static_cast<T>(folds_scale ? options.gain * options.scale : options.gain);
  }
};

/// A memory [D][value] from rows of any type, its sum as one column more where there is one.
template <class T>
void ReadMemory(const Memory& memory, const Rows& state, const Rows& sum, BackwardRows<T>& rows,
                T* to) {
  const std::int64_t stride = rows.value_stride;
  std::fill_n(to, memory.dims.key_dim * stride, T(0));
  for (std::int64_t d = 0; state && d < memory.dims.key_dim; ++d) {
    ReadRow(state, d, memory.dims.value_dim, to + d * stride);
  }
  if (!sum || rows.value_dim == memory.dims.value_dim) return;
  ReadRow(sum, 0, memory.dims.key_dim, rows.row);
  for (std::int64_t d = 0; d < memory.dims.key_dim; ++d)
    to[d * stride + memory.dims.value_dim] = rows.row[d];
}

/// Are the erasing rows those that are written, so that they have one gradient?
bool JoinsErasure(const Options& options);

/// Does the gradient need values? An erasing memory has its errors.
bool NeedsValues(const Options& options);

GradientSizes GradientSizesOf(const Options& options, const Sizes& sizes);

/// Which gradients are scattered: those of inputs that write, of queries, or of both.
enum class Side { kBoth, kWrites, kQueries };

enum class WholePass;

/// Functions between inputs and a block's rows, on the chosen target.
template <class T>
struct BackwardKernels {
  /// The rows first .. first + count of the sequence into the block; values and queries where they
  /// are wanted. Blocks come in order before they are come back to: what a row leaves to the next
  /// one is stored for each.
  void (*gather)(const Options&, const Memory&, bool values, bool queries, BackwardRows<T>&);
  /// dL/dy of the block (which stands at memory.y), through norms and denominators, into rows.dy.
  void (*gather_outputs)(const Options&, const Memory&, BackwardRows<T>&);
  /// From gradients of the block's rows to those of inputs; and of what is there before all rows.
  void (*scatter)(const Options&, const Memory&, const GradientMemory&, Side, BackwardRows<T>&);
  void (*whole)(WholePass, const Options&, BackwardRows<T>&);
};

template <class T>
BackwardKernels<T> ChosenKernels();
template <>
BackwardKernels<float> ChosenKernels();
template <>
BackwardKernels<double> ChosenKernels();

/// Finds rows.in_place and rows.streams of a memory: rows that the gradient's kernels read or write
/// in place, of which nothing is gathered or scattered.
template <class T>
void FindInPlace(const Options& options, const Memory& memory, const GradientMemory& out,
                 BackwardRows<T>& rows);

/// Points a call on the block of `rows` to the caller's rows, where they are used in place.
template <class T>
void PointInPlace(const Options& options, const Memory& memory, const GradientMemory& out,
                  const BackwardRows<T>& rows, GradientCall<T>& call);

/// How many memories can be differentiated in time slices, where the caller gave what the forward
/// pass saved: 1 where more than the gradient of the memory goes on from block to block.
std::int64_t MostTogetherBackward(const Options& options, const Sizes& sizes);

/// The gradients of one memory's time slice. A sequence's last slice comes first; `next` is only
/// fetched towards the caches: the memory whose slice is after this one, or one without rows.
template <class T>
void DifferentiateMemory(const Options& options, const Memory& memory, const Memory& next,
                         const GradientMemory& out, const Sizes& sizes, BackwardRows<T>& rows);

}  // namespace ttr::fast_weights
