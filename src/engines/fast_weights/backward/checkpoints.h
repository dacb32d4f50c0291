/// What a forward pass saves (saved.h), where the caller has given no memory for it: of one memory
/// at a time, found by the forward kernel on a copy of that memory's state. Gradients are the same
/// bits either way.
#pragma once

#include "src/engines/fast_weights/layout.h"
#include "src/engines/fast_weights/saved.h"
#include "src/engines/fast_weights/work.h"

namespace ttr::fast_weights {

template <class T>
class Checkpoints {
 public:
  Checkpoints(const Options& options, const Sizes& sizes, ScratchLayout& layout);

  /// Runs `memory` forwards, and points it to what is saved of it. Its own state stays as it is.
  void Find(const Work& work, Memory& memory);

 private:
  /// A copy of the state that the forward kernel may change.
  void CopyState(const Work& work, Memory& memory);

  SavedLayout saved_layout_;  // of a single memory
  Scratch<T> scratch_;
  T *state_, *second_;
  T* output_;          // one row, of which all are written one over another
  std::byte* shared_;  // what a memory has beside its columns
  T* saved_;
};

}  // namespace ttr::fast_weights
