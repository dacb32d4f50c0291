/// How the gradient of paired memories divides its scratch.
#pragma once

#include <cstddef>
#include <cstdint>

#include "src/engines/fast_weights/gradient_layout.h"
#include "src/engines/fast_weights/gradient_paired.h"

namespace ttr::fast_weights::gradient {

/// The arrays of the scratch, in elements of T. A pair of memories is kept transposed, a few of
/// their columns: [2][keys / W][kPairedColumns][W], so that key channels are lanes, W of them.
template <class T>
struct PairedScratch {
  std::int64_t keys, part, pair;  // part: from the first memory of a pair to the second
  T* checkpoints;                 // [block][pair]: the memories at the beginning of each block
  T* memories;                    // [kPairedBlock + 1][pair]: before and after the block's tokens
  T* adjoint;                     // [pair]: dL/dM, dL/dN
  T* seen;                        // [kPairedBlock][kPairedColumns]: r M, and behind it
  T* errors;                      // [kPairedBlock][kPairedColumns]: v - h r M
  std::size_t bytes;

  PairedScratch(const PairedSizes& sizes, std::byte* memory) {
    keys = RoundUp(sizes.key_dim, kTokens);
    // A line more: memories that lie a power of two apart would share the sets of a cache.
    part = kPairedColumns * keys + kTokens;
    pair = 2 * part;
    std::int64_t used = 0;
    auto take = [&](std::int64_t count) {
      T* start = memory == nullptr ? nullptr : reinterpret_cast<T*>(memory) + used;
      used += RoundUp(count, kTokens);
      return start;
    };
    checkpoints = take((sizes.tokens / kPairedBlock + 1) * pair);
    memories = take((kPairedBlock + 1) * pair);
    adjoint = take(pair);
    seen = take(kPairedBlock * kPairedColumns);
    errors = take(kPairedBlock * kPairedColumns);
    bytes = static_cast<std::size_t>(used) * sizeof(T);
  }
};

/// A token's place: its number, that within its block, and the first of the value columns.
struct PairedToken {
  std::int64_t t, i, column;
};

}  // namespace ttr::fast_weights::gradient
