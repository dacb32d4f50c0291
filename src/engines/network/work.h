/// The sizes of one call and its memories.
#pragma once

#include <cstdint>

#include "src/engines/common/sequences.h"
#include "src/engines/common/tasks.h"
#include "src/engines/network/task.h"

namespace ttr::network {

struct Work {
  const Options& options;
  const Call& call;
  common::Sequences sequences;
  common::Heads heads;
  Sizes sizes;

  Work(const Options& options, const Call& call);

  std::int64_t memories() const { return sequences.count() * heads.memories; }
  Memory MemoryOf(std::int64_t item) const;
};

/// Flops at the key, at the query, for the gradient and for the update: 8 a weight.
double FlopsPerToken(const Shape& shape);

}  // namespace ttr::network
