// The forward pass.

#include <algorithm>

#include "src/engines/kernel_regression/kernel_regression.h"
#include "src/engines/kernel_regression/memory_run.h"

namespace ttr::kernel_regression {
namespace {

/// A factor, where none goes from call to call, and weights; and a worker's scratch.
RoomBytes RoomFor(const Sizes& sizes, std::int64_t pairs, bool keeps) {
  return {(keeps ? 0 : BytesOfFactor(sizes, pairs)) + BytesOfWeights(sizes),
          BytesOfScratch(sizes, pairs)};
}

template <class Each>
void RunMemory(const Work& work, const Task& task, bool writes, const Each& each) {
  const Memory& m = task.memory;
  const DType dtype = work.sizes.dtype;
  if (m.weighted) WeighPairs(m);
  if (m.q && m.rows > 0) {
    MakeFactor(task, dtype, each);
    const std::int64_t blocks = common::CeilDiv(m.rows, kBlock);
    each(blocks, [&](std::int64_t item, std::byte* own) {
      // The last queries see most pairs: they come first.
      Retrieve(With(task, own), (blocks - 1 - item) * kBlock, dtype);
    });
    const Progress& progress = task.progress();
    if (progress.good < std::min(m.all(), progress.nonfinite)) RetrieveByMinimumNorm(task, dtype);
  }
  if (writes) WritePairs(task, dtype);
}

void RunCall(const Work& work, Executor& executor, std::span<std::byte> scratch, bool writes) {
  if (work.memories() == 0 || work.sequences.tokens() == 0) return;
  const Shares shares(work,
                      common::ThreadsFor(executor, FlopsOf(work) >= common::kFlopsWorthThreads));
  const std::size_t weights = BytesOfWeights(work.sizes);
  const bool keeps = work.call.factor.defined();
  const RoomBytes needed = RoomFor(work.sizes, work.Room(), keeps);
  const common::WorkerScratch room =
      shares.Claim(scratch, needed, RoomFor(work.sizes, work.sizes.tokens, keeps));
  shares.ForMemories(work, executor, room, needed.worker,
                     [&](std::int64_t item, std::byte* memory, std::byte* own, const auto& each) {
                       const Memory m = work.MemoryOf(item, memory);
                       const Task task{.options = work.options,
                                       .memory = m,
                                       .room = work.Room(),
                                       .factor = keeps ? work.FactorOf(item) : memory + weights,
                                       .scratch = own};
                       if (!keeps || task.IsStale()) task.Restart();
                       RunMemory(work, task, writes && work.writes(), each);
                     });
}

}  // namespace

std::size_t ScratchBytes(const Sizes& sizes, int threads) {
  return SharedScratchBytes(threads, RoomFor(sizes, sizes.pairs(), false));
}

std::int64_t FactorNumbers(const Sizes& sizes) {
  return static_cast<std::int64_t>(BytesOfFactor(sizes, sizes.held) / SizeOf(sizes.dtype));
}

void Forward(const Options& options, const Call& call, Executor& executor,
             std::span<std::byte> scratch) {
  RunCall({options, call}, executor, scratch, true);
}

void Retrieve(const Options& options, const Call& call, Executor& executor,
              std::span<std::byte> scratch) {
  RunCall({options, call}, executor, scratch, false);
}

}  // namespace ttr::kernel_regression
