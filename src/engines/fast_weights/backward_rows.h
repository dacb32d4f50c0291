/// A block of one memory's rows, for the backward pass: what operands/gather-inl.h makes of chunks,
/// beside its gradients; and what is kept from block to block.
///
/// R rows of a block (tokens times steps), D key channels, V value columns (one more where answers
/// are divided by the sum of weights, which is the memory of the value 1). Where channels turn,
/// rows have twice the channels (backward_turn-inl.h).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "src/engines/fast_weights/gradient.h"
#include "src/engines/fast_weights/layout.h"
#include "src/engines/fast_weights/row_io.h"

namespace ttr::fast_weights {

/// Where the gradients of one memory's inputs and initial state go, and those of its final state
/// come from. Rows as in Memory, which it stands beside; parameters of features are added to.
struct GradientMemory : Operands<Rows>, StateOperands<Rows> {
  StateOperands<Rows> final;       // dL/d of the final state; absent: 0
  std::int64_t q_head_stride = 0;  // in elements, between the queries of one memory
  // Do other heads, or for constants other sequences, come before, whose gradients are added to?
  bool add_q = false, add_k = false, add_v = false, add_constants = false;
};

template <class T>
struct BackwardRows {
  std::int64_t rows, key_stride, value_stride, value_dim, queries;  // rows: a block has room for
  std::int64_t state;                                               // numbers of all memories
  std::int64_t first = 0, count = 0;                                // those that it holds

  T *key, *write, *erase, *query, *value, *gates;  // key: after features
  T *cosines, *sines;                              // of the frames behind the rows
  T *step, *decay, *erase_decay, *momentum, *bonus;
  T *maxima, *curvature;  // [rows + 1]: before the first row, and after each
  T* saved;               // [rows]: is the maximum that of the past? 1 or 0
  T *y, *dy;              // [query][row][value]; y where Forward did not keep it
  T *d_write, *d_erase, *d_second, *d_query, *d_value, *d_log_decay, *d_phase;
  T *d_step, *d_decay, *d_erase_decay, *d_momentum, *d_bonus;

  double* block_maxima;  // [block + 1]: before each block, and after the last
  T* block_curvatures;   // the same
  T* frame;              // behind the row gathered last: cosines, then sines
  // Not causal (backward_whole.h): what multiplies the rows of every block, [block][parts][key],
  // parts a real and an imaginary one where there are phases; and sums over the rows so far.
  T *factors, *sums;
  T *turned, *turned_before;  // dL/dp of a phase behind the row that comes next, going backwards;
                              // and of one before the block
  T *d_bonus_row, *d_curvature;
  T d_maximum = 0;        // of the maximum after the row that comes next, going backwards
  T d_first_maximum = 0;  // of the maximum before all rows, by their first decay or answer

  T *initial, *d_initial, *d_final;  // [D][value]: extended by the sum; with momentum, two each
  // Are keys and queries, values and gradients of answers read, and those of values, queries and
  // keys written, where they lie?
  bool keys_lie = false, value_lies = false, dy_lies = false;
  bool d_value_lies = false, d_query_lies = false, d_key_lies = false;
  // Are gradients written past the caches?
  bool streams_query = false, streams_key = false, streams_value = false;
  bool folds_scale;  // do the gradients of answers carry the queries' scale, not the queries?

  T* row;               // rows of inputs, keys and values for the moment
  std::byte* gradient;  // scratch of gradient.h
  std::size_t bytes;

  BackwardRows(const Options& options, const Sizes& sizes, std::byte* memory);

  /// From a memory to the second of a pair, as `initial` has it.
  std::int64_t second(const Options& options) const {
    return (options.phase ? key_stride / 2 : key_stride) * value_stride;
  }

  /// What multiplies the gradients of answers that are neither divided nor normalised.
  T OutputFactor(const Options& options) const {
    return static_cast<T>(folds_scale ? options.gain * options.scale : options.gain);
  }
};

/// A memory [D][value] from rows of any type, its sum as one column more where there is one.
template <class T>
void ReadMemory(const Memory& memory, const Rows& state, const Rows& sum, BackwardRows<T>& rows,
                T* to) {
  const std::int64_t stride = rows.value_stride;
  std::fill_n(to, memory.key_dim * stride, T(0));
  for (std::int64_t d = 0; state && d < memory.key_dim; ++d) {
    ReadRow(state, d, memory.value_dim, to + d * stride);
  }
  if (!sum || rows.value_dim == memory.value_dim) return;
  ReadRow(sum, 0, memory.key_dim, rows.row);
  for (std::int64_t d = 0; d < memory.key_dim; ++d) to[d * stride + memory.value_dim] = rows.row[d];
}

/// Is what erases what is written, so that they have one gradient?
bool JoinsErasure(const Options& options);

GradientSizes GradientSizesOf(const Options& options, const Sizes& sizes);

/// The rows first .. first + count of the sequence into the block; values and queries where they
/// are wanted. Blocks come in order before they are come back to: what a row keeps for the next one
/// is kept for each.
void GatherBlock(const Options& options, const Memory& memory, bool values, bool queries,
                 BackwardRows<float>& rows);
void GatherBlock(const Options& options, const Memory& memory, bool values, bool queries,
                 BackwardRows<double>& rows);

/// dL/dy of the block (which stands at memory.y), through norms and denominators, into rows.dy.
void GatherOutputGradients(const Options& options, const Memory& memory, BackwardRows<float>& rows);
void GatherOutputGradients(const Options& options, const Memory& memory,
                           BackwardRows<double>& rows);

/// Whose gradients are scattered: of what writes, of queries, or of both.
enum class Side { kBoth, kWrites, kQueries };

/// From gradients of the block's rows to those of inputs; and of what is there before all rows.
void ScatterBlock(const Options& options, const Memory& memory, const GradientMemory& gradients,
                  Side side, BackwardRows<float>& rows);
void ScatterBlock(const Options& options, const Memory& memory, const GradientMemory& gradients,
                  Side side, BackwardRows<double>& rows);

/// How many memories can take turns going backwards, where the forward pass kept what they need: 1
/// where more is carried from block to block than the gradient of the memory.
std::int64_t MostTogetherBackward(const Options& options, const Sizes& sizes);

/// The gradients of one memory's turn. A sequence's last turn comes first; `next` is only fetched
/// towards the caches: the memory whose turn is after this one, or one without rows.
template <class T>
void DifferentiateMemory(const Options& options, const Memory& memory, const Memory& next,
                         const GradientMemory& out, const Sizes& sizes, BackwardRows<T>& rows);

}  // namespace ttr::fast_weights
