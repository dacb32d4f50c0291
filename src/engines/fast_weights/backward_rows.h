/// One memory's whole sequence as rows, for the backward pass: what gather-inl.h makes of a chunk,
/// kept, beside its gradients.
///
/// R rows (tokens times steps), D key channels, V value columns (one more where answers are divided
/// by the sum of weights, which is the memory of the value 1).
#pragma once

#include <cstddef>
#include <cstdint>

#include "src/engines/fast_weights/gradient.h"
#include "src/engines/fast_weights/gradient_paired.h"
#include "src/engines/fast_weights/layout.h"

namespace ttr::fast_weights {

/// Where the gradients of one memory's inputs go, and those of its final state come from. Rows as
/// in Memory, which it stands beside.
struct GradientMemory {
  Rows q, k, v;                    // q: of the first of `queries` heads
  std::int64_t q_head_stride = 0;  // in elements
  Rows log_decay, phase, step, importance, erase_key, erase_gate, momentum, weight_decay;
  Rows bonus;                    // one row
  Rows state, second;            // key_dim rows
  Rows sum, maximum, curvature;  // one row each
  Rows dstate, dsecond, dsum, dmaximum, dcurvature;
  void* features_w = nullptr;  // in the arithmetic's type, added to
  void* features_b = nullptr;
  // Do other heads, or for constants other sequences, come before, whose gradients are added to?
  bool add_q = false, add_k = false, add_v = false, add_constants = false;
};

template <class T>
struct BackwardRows {
  std::int64_t rows, key_stride, value_stride, value_dim, queries;
  T *key, *write, *erase, *query, *value, *log_decay;  // key: after features
  T *phase, *step, *decay, *erase_decay, *momentum, *shrinkage, *bonus;
  T *log_weight_decay, *maxima;  // under a maximum of log-weights: log a; m, [rows + 1]
  T* curvature;                  // [rows + 1]
  T *y, *dy;                     // [query][row][value]
  T *d_write, *d_erase, *d_second, *d_query, *d_value, *d_log_decay, *d_phase;
  T *d_step, *d_decay, *d_erase_decay, *d_momentum, *d_bonus;
  T *d_bonus_row, *d_curvature;
  T *initial, *last, *d_initial, *d_final;  // [D][value]: extended by the sum
  T *initial_second, *last_second, *d_initial_second, *d_final_second;  // [D][value]
  T* row;  // rows of inputs, keys and values for the moment
  double final_maximum;
  T d_first_maximum;  // what the first answer adds to the gradient of the initial maximum
  bool* kept;         // [rows]: did the maximum come from the past?
  std::byte *gradient, *forward;  // scratch of those
  std::size_t bytes;

  BackwardRows(const Options& options, const Sizes& sizes, std::byte* memory);
};

/// Does the backward pass need the answers?
bool NeedsAnswers(const Options& options);

/// The options under which the gathered rows are a memory of their own.
Options PlainOptions(const Options& options);

GradientSizes GradientSizesOf(const Options& options, const Sizes& sizes);
PairedSizes PairedSizesOf(const Options& options, const Sizes& sizes);

template <class T>
void GatherRows(const Options& options, const Memory& memory, BackwardRows<T>& rows);

/// dL/dy (which stands at memory.y), through norms and denominators, into rows.dy.
template <class T>
void GatherOutputGradients(const Options& options, const Memory& memory, const Sizes& sizes,
                           BackwardRows<T>& rows);

/// From gradients of rows to those of inputs.
template <class T>
void ScatterGradients(const Options& options, const Memory& memory, const GradientMemory& gradients,
                      BackwardRows<T>& rows);

}  // namespace ttr::fast_weights
