// The forward pass: blocks of queries become tasks of workers.

#include <algorithm>

#include "src/engines/local_polynomial/local_polynomial.h"
#include "src/engines/local_polynomial/work.h"

namespace ttr::local_polynomial {
namespace {

std::size_t BytesOfWorker(const Sizes& sizes) {
  return common::ScratchBytesOf<Scratch>(sizes.dtype, MonomialsOf(sizes.key_dim, sizes.degree),
                                         sizes.key_dim, sizes.value_dim);
}

std::size_t BytesOfShared(const Sizes& sizes) {
  return static_cast<std::size_t>(sizes.sequences * sizes.heads) * BytesOfWeights(sizes);
}

/// Writes the pairs of all memories into their states, which are not read any more.
void WriteAll(const Work& work, Executor& executor, const common::WorkerScratch& room) {
  // A token's pair finds its place without the weights of others.
  const bool one = !work.sequences.packed() && work.sequences.length() == 1;
  room.Run(executor, work.memories(), [&](std::int64_t item, std::byte*) {
    const Memory memory = work.MemoryOf(item, room.shared());
    if (one) {
      WritePair(memory, work.sizes.dtype);
    } else {
      WritePairs(memory, {0, memory.visible.tokens}, work.sizes.dtype);
    }
  });
}

void RunCall(const Work& work, Executor& executor, std::span<std::byte> scratch, bool writes) {
  const std::int64_t memories = work.memories();
  if (memories == 0 || work.sequences.tokens() == 0) return;
  const int threads = common::ThreadsFor(executor, work.flops() >= common::kFlopsWorthThreads);
  const common::WorkerScratch room("local_polynomial", scratch,
                                   common::WorkersOf(threads, std::max(work.tasks(), memories)),
                                   BytesOfWorker(work.sizes), BytesOfShared(work.sizes));
  if (work.sizes.weighted) {
    room.Run(executor, memories, [&](std::int64_t item, std::byte*) {
      WeighPairs(work.MemoryOf(item, room.shared()));
    });
  }
  // The last tokens see most pairs: they come first.
  room.Run(executor, work.tasks(), [&](std::int64_t item, std::byte* own) {
    const Memory memory = work.MemoryOf(item % memories, room.shared());
    const std::int64_t first = (work.blocks - 1 - item / memories) * kQueries;
    if (first >= memory.rows) return;
    Predict({.options = work.options,
             .memory = memory,
             .monomials = work.monomials,
             .first = first,
             .count = std::min(kQueries, memory.rows - first),
             .scratch = own},
            work.sizes.dtype);
  });
  if (writes && work.writes()) WriteAll(work, executor, room);
}

}  // namespace

std::size_t ScratchBytes(const Sizes& sizes, int threads) {
  return common::WorkerScratch::Bytes(threads, BytesOfWorker(sizes), BytesOfShared(sizes));
}

void Forward(const Options& options, const Call& call, Executor& executor,
             std::span<std::byte> scratch) {
  RunCall({options, call}, executor, scratch, true);
}

void Predict(const Options& options, const Call& call, Executor& executor,
             std::span<std::byte> scratch) {
  RunCall({options, call}, executor, scratch, false);
}

}  // namespace ttr::local_polynomial
