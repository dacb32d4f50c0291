/// A copy of a state that shares no memory with it.
#pragma once

#include "ttr/state.h"

namespace ttr {

/// A copy of the whole state; entries bound to other memory are copied, too.
inline State CopyOfAll(const State& state) {
  State copy;
  for (const State::Entry& entry : state.entries()) {
    copy.Set(entry.name, Tensor::Copy(entry.view));
  }
  return copy;
}

}  // namespace ttr
