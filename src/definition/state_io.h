/// Between a State (tensors over all memories) and the Arrays of single memories.
#pragma once

#include <vector>

#include "src/definition/memory.h"

namespace ttr::definition {

/// What `state` holds for memory `head` of sequence `sequence`; nothing where it is empty.
Arrays LoadArrays(const Recipe& recipe, const State& state, std::int64_t sequence,
                  std::int64_t head);

/// Puts the arrays of all memories (index sequence * heads + head) into `state`: into the tensors
/// that are there where they have room, else into new ones of `dtype`. Memories of different
/// lengths are padded to the longest; `state.length` has their lengths.
void StoreArrays(const Recipe& recipe, const std::vector<Arrays>& memories, std::int64_t heads,
                 DType dtype, State& state);

}  // namespace ttr::definition
