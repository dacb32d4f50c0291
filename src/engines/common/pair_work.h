/// The sizes of one call on kept pairs, and its memories.
#pragma once

#include <cstddef>
#include <cstdint>

#include "src/engines/common/queries.h"
#include "src/engines/common/sequences.h"

namespace ttr::common {

template <class Options, class Call, class Sizes, class Memory>
struct PairWork {
  const Options& options;
  const Call& call;
  Sequences sequences;
  Heads heads;
  Sizes sizes;
  std::int64_t blocks;  // of queries, of the longest sequence

  /// `constants`: have an entry a memory, if they are there. A task takes `block` queries.
  PairWork(const Options& o, const Call& c, const TensorView& constants, std::int64_t block)
      : options(o),
        call(c),
        sequences(c.sequences()),
        heads(c.memory_heads(constants), c.q),
        sizes{c.sizes(sequences, heads)},
        blocks(CeilDiv(sequences.longest() * heads.queries, block)) {}

  std::int64_t memories() const { return sequences.count() * heads.memories; }
  std::int64_t tasks() const { return call.q.defined() ? memories() * blocks : 0; }
  bool writes() const { return call.state_k.defined() && call.k.defined(); }

  /// Memory `item`, with weights at `shared` (BytesOfWeights() a memory), or without.
  Memory MemoryOf(std::int64_t item, std::byte* shared) const {
    const std::int64_t n = item / heads.memories, h = item % heads.memories;
    Memory m{QueriedPairsOf(options, call, heads, sequences[n], n, h)};
    m.place.window = m.visible.window = options.window;
    const std::size_t before = static_cast<std::size_t>(item) * BytesOfWeights(sizes);
    PointToWeights(sizes, shared != nullptr ? shared + before : nullptr, m);
    return m;
  }
};

}  // namespace ttr::common
