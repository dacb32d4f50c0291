/// How the gradient of memories with momentum divides its scratch.
#pragma once

#include <cstddef>
#include <cstdint>

#include "src/engines/fast_weights/gradient_layout.h"
#include "src/engines/fast_weights/gradient_momentum.h"

namespace ttr::fast_weights::gradient {

/// The arrays of the scratch, in elements of T. A pair of memories is kept transposed, a few of
/// their columns: [2][keys / W][kMomentumColumns][W], so that key channels are lanes, W of them.
template <class T>
struct MomentumScratch {
  std::int64_t keys, part, pair;  // part: from the first memory of a pair to the second
  T* checkpoints;                 // [block][pair]: the memories at the beginning of each block
  T* memories;                    // [kMomentumBlock + 1][pair]: before and after the block's tokens
  T* adjoint;                     // [pair]: dL/dM, dL/dN
  T* seen;                        // [kMomentumBlock][kMomentumColumns]: r M, and behind it
  T* errors;                      // [kMomentumBlock][kMomentumColumns]: v - h r M
  std::size_t bytes;

  MomentumScratch(const MomentumSizes& sizes, std::byte* memory) {
    keys = RoundUp(sizes.key_dim, kTokens);
    // A line more: memories that lie a power of two apart would share the sets of a cache.
    part = kMomentumColumns * keys + kTokens;
    pair = 2 * part;
    std::int64_t used = 0;
    auto take = [&](std::int64_t count) {
      T* start = memory == nullptr ? nullptr : reinterpret_cast<T*>(memory) + used;
      used += RoundUp(count, kTokens);
      return start;
    };
    checkpoints = take((sizes.tokens / kMomentumBlock + 1) * pair);
    memories = take((kMomentumBlock + 1) * pair);
    adjoint = take(pair);
    seen = take(kMomentumBlock * kMomentumColumns);
    errors = take(kMomentumBlock * kMomentumColumns);
    bytes = static_cast<std::size_t>(used) * sizeof(T);
  }
};

/// A token's place: its number, that within its block, and the first of the value columns.
struct MomentumToken {
  std::int64_t t, i, column;
};

}  // namespace ttr::fast_weights::gradient
