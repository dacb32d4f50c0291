// The forward pass: memories become tasks of workers.

#include "src/engines/network/backward.h"
#include "src/engines/network/network.h"
#include "src/engines/network/saved.h"
#include "src/engines/network/shares.h"
#include "src/engines/network/task.h"
#include "src/engines/network/work.h"

namespace ttr::network {
namespace {

/// Scratch depends on what a memory has beside its weights, which the largest has all of.
Options Largest() {
  Options options;
  options.momentum = true;
  options.mini_batch = 2;
  options.adapt = Adapt::kAdam;
  return options;
}

std::size_t BytesOfWorker(const Options& options, const Sizes& sizes) {
  return common::ScratchBytesOf<Scratch>(sizes.dtype, options, sizes.shape);
}

}  // namespace

std::size_t ScratchBytes(const Sizes& sizes, int threads) {
  return common::WorkerScratch::Bytes(threads, BytesOfWorker(Largest(), sizes));
}

std::size_t SavedBytes(const Options& options, const Sizes& sizes, std::int64_t tokens,
                       std::int64_t sequences) {
  const Levels levels = LevelsOf(options, sizes.shape, sizes.tokens, sizes.dtype);
  const SavedWeights weights{.memory = {},
                             .bytes = CheckpointBytes(options, sizes.shape, sizes.dtype),
                             .spacing = levels.pieces[0],
                             .heads = sizes.heads,
                             .options = options};
  return weights.Bytes(tokens, sequences);
}

void Forward(const Options& options, const Call& call, Executor& executor,
             std::span<std::byte> scratch) {
  const Work work(options, call);
  const Saved saved(work);
  if (work.memories() == 0) return;
  const double flops = FlopsPerToken(work.sizes.shape) *
                       static_cast<double>(work.sequences.tokens()) *
                       static_cast<double>(work.heads.memories);
  const int threads = common::ThreadsFor(executor, flops >= common::kFlopsWorthThreads);
  const Shares shares(work, threads);
  const common::WorkerScratch room("network", scratch, shares.workers,
                                   BytesOfWorker(options, work.sizes));
  shares.ForMemories(work, executor, room, [&](std::int64_t item, std::byte* own, Team& team) {
    Run({.options = options,
         .shape = work.sizes.shape,
         .team = team,
         .memory = work.MemoryOf(item),
         .scratch = own,
         .saved = saved.Of(work, item),
         .spacing = saved.weights.spacing},
        work.sizes.dtype);
  });
}

}  // namespace ttr::network
