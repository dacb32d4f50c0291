/// The sizes of one call and its memories.
#pragma once

#include <cstddef>
#include <cstdint>

#include "src/engines/common/sequences.h"
#include "src/engines/kernel_regression/task.h"

namespace ttr::kernel_regression {

struct Work {
  const Options& options;
  const Call& call;
  common::Sequences sequences;
  common::Heads heads;
  Sizes sizes;

  Work(const Options& options, const Call& call);

  std::int64_t memories() const { return sequences.count() * heads.memories; }
  bool writes() const { return call.state_k.defined() && call.k.defined(); }

  /// Memory `item`, with weights at `weights` (BytesOfWeights()), or without.
  Memory MemoryOf(std::int64_t item, std::byte* weights = nullptr) const;
  /// The factor that goes from call to call with memory `item`; null where none does.
  std::byte* FactorOf(std::int64_t item) const;
  /// Pairs that a factor has room for.
  std::int64_t Room() const;
};

/// Flops of a call.
double FlopsOf(const Work& work);

/// Bytes of one memory's factor, and of a worker's scratch beside it.
std::size_t BytesOfFactor(const Sizes& sizes, std::int64_t pairs);
std::size_t BytesOfScratch(const Sizes& sizes, std::int64_t pairs);

}  // namespace ttr::kernel_regression
