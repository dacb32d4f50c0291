/// What the glue tells the gradient kernels about one memory, and how they divide their scratch.
#pragma once

#include <algorithm>
#include <cstdint>

#include "src/engines/scan/layout.h"

namespace ttr::scan {

/// Columns of a matrix that make one task. Sums over columns are taken within a task, then over
/// tasks, so this may not depend on the number of threads.
inline constexpr std::int64_t kGroup = 256;

/// Key rows that are taken back together.
inline constexpr int kGroupRows = 4;

/// Gradients of one vector memory, one sequence, a range of channels. Absent ones are not wanted.
struct VectorGradient {
  Rows dy, dv, dv_im, dlog_decay, dphase;
  Rows dgate, dimportance;  // one number a token
  void* dre = nullptr;      // contiguous, of the state's dtype
  void* dim = nullptr;
};

/// Gradients of one matrix memory, one sequence, a group of columns: sums over these columns, in
/// the state's dtype. `token` counts from the sequence's first.
struct MatrixGradient {
  Rows dy;  // of the first query
  std::int64_t dy_head_stride = 0;
  Rows dv, ddt;
  Rows dimportance;    // [token]
  void* dk = nullptr;  // [token][key_dim]
  void* dq = nullptr;  // [token][key_dim], queries `dq_stride` numbers apart
  std::int64_t dq_stride = 0;
  void* da = nullptr;  // [columns][key_dim]
  void* dstate = nullptr;
  std::int64_t dstate_stride = 0;
};

/// Of a worker on vector memories.
template <class T>
struct VectorGradientScratch {
  std::int64_t stride;     // between states: an odd number of lines
  T *saved_re, *saved_im;  // [checkpoint][stride], where Forward has kept none: as Vector::kept_re
  T *re, *im;              // [kCheckpoint][stride]: before every token
  T *dy, *dv, *dv_im, *dlog_decay, *dphase, *dre, *dim;  // pieces
  T *old_re, *old_im;
  std::byte* forward;  // VectorScratch
  std::size_t bytes;

  /// `tokens`: for which states are to be kept.
  VectorGradientScratch(const Sizes& sizes, std::int64_t tokens, bool complex, std::byte* memory) {
    Arena arena(memory);
    const std::int64_t line = kAlignment / sizeof(T);
    const std::int64_t channels = RoundUp(sizes.value_dim, line);
    stride = (channels / line | 1) * line;
    saved_re = arena.Take<T>(Checkpoints(tokens) * stride);
    re = arena.Take<T>(kCheckpoint * stride);
    saved_im = arena.Take<T>(complex ? Checkpoints(tokens) * stride : 0);
    im = arena.Take<T>(complex ? kCheckpoint * stride : 0);
    const std::int64_t piece = std::min(kPiece, channels);
    for (T** row : {&dy, &dv, &dv_im, &dlog_decay, &dphase, &dre, &dim, &old_re, &old_im}) {
      *row = arena.Take<T>(piece);
    }
    const std::size_t bytes_forward = VectorScratch<T>(sizes, nullptr).bytes;
    forward = arena.Take<std::byte>(static_cast<std::int64_t>(bytes_forward));
    bytes = arena.bytes();
  }
};

/// Of a worker on matrix memories; columns are those of a group.
template <class T>
struct MatrixGradientScratch {
  static constexpr std::int64_t kStrip = MatrixScratch<T>::kStrip;
  static constexpr std::int64_t kRow = MatrixScratch<T>::kRow;
  static constexpr std::int64_t kLine = kAlignment / sizeof(T);
  std::int64_t columns;  // of a group, whole strips
  T* saved;              // [checkpoint][key_dim][columns]; of one, where Forward has kept them
  T* states;             // [token][row][lanes]: before every token, of a group of key rows and one
                         // vector of columns
  T* factors;            // the same of the decays
  T* dstate;             // [key_dim][columns]
  T* da;                 // [columns / lanes][key_dim][lanes]
  T *dk, *dq;   // [group of rows][token][row][lanes], dq with [query] in front: sums over vectors
  T *dv, *ddt;  // [token][strip]
  T* dy;        // [query][token][strip], scaled
  T* dimportance;      // [token]
  std::byte* forward;  // MatrixScratch
  std::size_t bytes;

  /// `tokens`: for which states are to be kept.
  MatrixGradientScratch(const Sizes& sizes, std::int64_t tokens, std::byte* memory) {
    Arena arena(memory);
    columns = std::min(kGroup, RoundUp(sizes.value_dim, kStrip));
    Sizes group = sizes;
    group.value_dim = columns;
    saved = arena.Take<T>(std::max<std::int64_t>(Checkpoints(tokens), 1) * sizes.key_dim * columns);
    states = arena.Take<T>(kCheckpoint * kGroupRows * kLine);
    factors = arena.Take<T>(kCheckpoint * kGroupRows * kLine);
    dstate = arena.Take<T>(sizes.key_dim * columns);
    da = arena.Take<T>(sizes.key_dim * columns);
    dk = arena.Take<T>(kCheckpoint * sizes.key_dim * kLine);
    dq = arena.Take<T>(sizes.queries * kCheckpoint * sizes.key_dim * kLine);
    dv = arena.Take<T>(kCheckpoint * kRow);
    ddt = arena.Take<T>(kCheckpoint * kRow);
    dy = arena.Take<T>(sizes.queries * kCheckpoint * kRow);
    dimportance = arena.Take<T>(kCheckpoint);
    forward =
        arena.Take<std::byte>(static_cast<std::int64_t>(MatrixScratch<T>(group, nullptr).bytes));
    bytes = arena.bytes();
  }
};

}  // namespace ttr::scan
