/// The sizes of one call and its memories.
#pragma once

#include <cstddef>
#include <cstdint>

#include "src/engines/common/tasks.h"
#include "src/engines/local_polynomial/task.h"

namespace ttr::local_polynomial {

struct Work {
  const Options& options;
  const Call& call;
  common::Sequences sequences;
  common::Heads heads;
  Sizes sizes;
  Monomials monomials;
  std::int64_t blocks;  // of queries, of the longest sequence

  Work(const Options& options, const Call& call);

  std::int64_t memories() const { return sequences.count() * heads.memories; }
  std::int64_t tasks() const { return call.q.defined() ? memories() * blocks : 0; }
  bool writes() const { return call.state_k.defined() && call.k.defined(); }
  /// Flops of all fits, nearly.
  double flops() const;

  /// Memory `item`, with weights at `shared` (BytesOfWeights() a memory), or without.
  Memory MemoryOf(std::int64_t item, std::byte* shared) const;
};

/// Bytes of one memory's weights.
std::size_t BytesOfWeights(const Sizes& sizes);

}  // namespace ttr::local_polynomial
