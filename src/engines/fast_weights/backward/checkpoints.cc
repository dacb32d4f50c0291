// The forward pass that precedes a backward one.

#include "src/engines/fast_weights/backward/checkpoints.h"

#include <algorithm>
#include <cstring>

#include "src/engines/fast_weights/kernel.h"

namespace ttr::fast_weights {
namespace {

/// Sizes for the scratch of a single memory, which is not interleaved with others however long it
/// is.
Sizes SizesOfOne(Sizes sizes) {
  sizes.tokens = 1;
  sizes.saved = true;
  return sizes;
}

/// Drops the queries where they do not decide how keys are read: the errors have the same bits.
template <class T>
void DropQueries(const Options& options, Memory& memory) {
  if (options.normalise_qk) return;
  Memory without = memory;
  without.inputs.q = {};
  if (RowsAreInputs<T>(options, memory) == RowsAreInputs<T>(options, without)) memory = without;
}

}  // namespace

template <class T>
Checkpoints<T>::Checkpoints(const Options& options, const Sizes& sizes, ScratchLayout& layout)
    : saved_layout_(options, sizes, 1, sizes.tokens, false),
      scratch_(options, SizesOfOne(sizes), layout) {
  const std::int64_t state = sizes.key_dim * sizes.value_dim;
  state_ = layout.Take<T>(state);
  second_ = layout.Take<T>(options.paired() ? state : 0);
  output_ = layout.Take<T>(sizes.value_dim);
  shared_ = layout.TakeBytes(SharedBytes(options, sizes));
  saved_ = layout.Take<T>(saved_layout_.Numbers(1));
}

template <class T>
void Checkpoints<T>::CopyState(const Work& work, Memory& memory) {
  auto copy = [&](Rows& state, T* to) {
    if (!state) return;
    const T* const from = static_cast<const T*>(state.data);
    for (std::int64_t row = 0; row < memory.dims.key_dim; ++row) {
      std::copy_n(from + row * state.stride, memory.dims.value_dim,
                  to + row * memory.dims.value_dim);
    }
    state.data = to;
    state.stride = memory.dims.value_dim;
  };
  copy(memory.entries.state, state_);
  copy(memory.entries.second, second_);
  std::byte* at = shared_;
  work.ForShared(memory, [&](Rows& rows, std::size_t count) {
    if (rows) rows.data = std::memcpy(at, rows.data, count);
    at += RoundUp(static_cast<std::int64_t>(count), sizeof(double));
  });
}

template <class T>
void Checkpoints<T>::Find(const Work& work, Memory& memory) {
  memory.saved.states = saved_ + saved_layout_.StatesOf(0, 0, 0);
  if (saved_layout_.errors) memory.saved.errors = saved_ + saved_layout_.ErrorsOf(1, 0, 0);
  if (saved_layout_.outputs > 0) memory.saved.outputs = saved_ + saved_layout_.OutputsOf(1, 0, 0);
  if (saved_layout_.sums > 0) memory.saved.sums = saved_ + saved_layout_.SumsOf(1, 0, 0);
  Memory forward = memory;
  CopyState(work, forward);
  forward.status = {};
  forward.y_head_stride = 0;
  if (saved_layout_.outputs > 0) {
    forward.y = {output_, DTypeOf<T>(), 0};
  } else {
    forward.y = {};
    DropQueries<T>(work.options, forward);
  }
  ChosenKernel<T>()(work.options, forward, Memory{}, scratch_);
}

template class Checkpoints<float>;
template class Checkpoints<double>;

}  // namespace ttr::fast_weights
