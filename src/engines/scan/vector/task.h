/// What is done with one vector memory: what the glue hands to the kernels, and how these divide
/// their scratch.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "src/engines/common/scratch_layout.h"
#include "src/engines/scan/saved_states.h"
#include "src/engines/scan/scan.h"
#include "src/simd/rows.h"

namespace ttr::scan {

using common::kLine;
using common::RoundUp;
using common::ScratchLayout;
using simd::Rows;

/// Channels of a vector that are taken at a time, so that converted rows stay in the first-level
/// cache; a multiple of every vector.
inline constexpr std::int64_t kPiece = 512;

/// Real and imaginary parts, the latter null in a real memory, and the numbers from one state to
/// the next.
struct VectorStates {
  void* re = nullptr;
  void* im = nullptr;
  std::int64_t stride = 0;
};

/// One memory, one sequence, a range of channels (row pointers stand at the first of them).
struct Vector {
  Rows v, v_im, log_decay, phase, y;  // log_decay: of each channel
  Rows gate, importance;              // one number a token
  double decay_factor = 1;
  VectorStates state;  // stride: from before a token to after it; 0: the state is updated
  VectorStates saved;  // the state before token kCheckpoint; null: none is saved
  std::int64_t tokens = 0;
  std::int64_t channels = 0;

  bool complex() const { return state.im != nullptr; }
};

/// Gradients of the same. Absent ones are not computed.
struct VectorGradient {
  Rows dy, dv, dv_im, dlog_decay, dphase;
  Rows dgate, dimportance;  // one number a token
  void* dre = nullptr;      // contiguous, of the state's dtype
  void* dim = nullptr;
};

/// What is done with one memory. The gradient is absent forwards.
struct VectorTask {
  const Options& options;
  const Sizes& sizes;
  Vector memory;
  VectorGradient gradient{};
  std::byte* scratch = nullptr;
};

/// A worker's scratch: a piece of every row that is not used in place.
template <class T>
struct VectorScratch {
  T *v, *v_im, *log_decay, *phase, *re, *im;
  T* y;  // a piece, or the whole row where there is a norm

  VectorScratch(const Sizes& sizes, ScratchLayout& layout) {
    layout.LeaveGaps();
    const std::int64_t channels = RoundUp(sizes.value_dim, kLine<T>);
    const std::int64_t piece = std::min(kPiece, channels);
    layout.Take(piece, {&v, &v_im, &log_decay, &phase, &re, &im});
    y = layout.Take<T>(sizes.whole_rows ? channels : piece);
  }
};

/// A worker's scratch of the backward pass.
template <class T>
struct VectorGradientScratch {
  std::int64_t stride;     // between states: an odd number of lines
  T *saved_re, *saved_im;  // [block][stride], where Forward saved none: as Vector::saved
  T *re, *im;              // [kCheckpoint][stride]: before every token
  T *dy, *dv, *dv_im, *dlog_decay, *dphase, *dre, *dim;  // pieces
  T *old_re, *old_im;
  VectorScratch<T> forward;

  /// `tokens`: for which states are to be saved.
  VectorGradientScratch(const Sizes& sizes, std::int64_t tokens, bool complex,
                        ScratchLayout& layout)
      : stride(common::OddLines<T>(sizes.value_dim)), forward(sizes, layout) {
    const std::int64_t parts = complex ? 1 : 0;
    saved_re = layout.Take<T>(BlocksOf(tokens) * stride);
    re = layout.Take<T>(kCheckpoint * stride);
    saved_im = layout.Take<T>(parts * BlocksOf(tokens) * stride);
    im = layout.Take<T>(parts * kCheckpoint * stride);
    const std::int64_t piece = std::min(kPiece, RoundUp(sizes.value_dim, kLine<T>));
    layout.Take(piece, {&dy, &dv, &dv_im, &dlog_decay, &dphase, &dre, &dim, &old_re, &old_im});
  }
};

/// One memory through one sequence, and back; VectorTask::scratch, at a multiple of 64, has the
/// bytes of VectorScratch or VectorGradientScratch.
void ScanVector(const VectorTask& task);
void ScanVectorBackward(const VectorTask& task);

}  // namespace ttr::scan
