// The backward pass: memories become tasks of workers.

#include "src/engines/network/backward.h"

#include "src/engines/network/gradient.h"
#include "src/engines/network/saved.h"
#include "src/engines/network/shares.h"
#include "src/engines/network/work.h"

namespace ttr::network {
namespace {

std::size_t BytesOfWorker(const Options& options, const Sizes& sizes, bool saved) {
  const Levels levels = LevelsOf(options, sizes.shape, sizes.tokens, sizes.dtype);
  return common::ScratchBytesOf<GradientScratch>(sizes.dtype, options, sizes.shape, levels,
                                                 sizes.tokens, saved);
}

MemoryGradients GradientsOf(const Work& work, const Gradients& gradients,
                            const StateParameters& final, std::int64_t item) {
  const auto task = common::Task::Of(item, work.heads.memories, 1);
  const common::Sequence sequence = work.sequences[task.sequence];
  const std::int64_t h = task.head;
  const auto rows = [&](const TensorView& view) { return common::RowsOf(view, sequence, h); };
  const auto constant = [&](const TensorView& view) {
    return common::StateOf(view, task.sequence, h);
  };
  MemoryGradients g;
  g.q = common::HeadRowsOf(gradients.q, sequence, work.heads.OutputOf(h));
  g.k = rows(gradients.k);
  g.v = rows(gradients.v);
  g.step = rows(gradients.step);
  g.momentum = rows(gradients.momentum);
  g.weight_decay = rows(gradients.weight_decay);
  g.ln_weight = constant(gradients.ln_weight);
  g.ln_bias = constant(gradients.ln_bias);
  g.row_bias = constant(gradients.row_bias);
  g.final = &final;
  g.initial = &gradients.initial;
  return g;
}

}  // namespace

std::size_t BackwardScratchBytes(const Options& options, const Sizes& sizes, int threads) {
  return common::WorkerScratch::Bytes(threads, BytesOfWorker(options, sizes, false));
}

void Backward(const Options& options, const Call& call, const StateParameters& final,
              const Gradients& gradients, Executor& executor, std::span<std::byte> scratch) {
  const Work work(options, call);
  const Saved saved(work);
  if (work.memories() == 0) return;
  Sizes sizes = work.sizes;
  sizes.tokens = work.sequences.length();
  const Levels levels = saved.levels;
  const Shares shares(work, executor.threads());
  const common::WorkerScratch room("network", scratch, shares.workers,
                                   BytesOfWorker(options, sizes, !call.saved.empty()));
  shares.ForMemories(work, executor, room, [&](std::int64_t item, std::byte* own, Team& team) {
    RunBack({.options = options,
             .shape = work.sizes.shape,
             .team = team,
             .memory = work.MemoryOf(item),
             .gradients = GradientsOf(work, gradients, final, item),
             .levels = levels,
             .longest = sizes.tokens,
             .saved = saved.Of(work, item),
             .scratch = own},
            sizes.dtype);
  });
}

}  // namespace ttr::network
