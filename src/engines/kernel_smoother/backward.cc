// The backward pass: which gradients are taken by whom.

#include "src/engines/kernel_smoother/backward.h"

#include <algorithm>

#include "src/engines/kernel_smoother/gradient.h"
#include "src/engines/kernel_smoother/saved.h"
#include "src/engines/kernel_smoother/work.h"

namespace ttr::kernel_smoother {
namespace {

template <class T>
std::size_t BytesOfWorkerAs(const Sizes& sizes) {
  return std::max(common::ScratchBytesOf<Scratch<T>>(sizes.key_dim, sizes.value_dim),
                  common::ScratchBytesOf<GradientScratch<T>>(sizes.key_dim, sizes.value_dim));
}

std::size_t BytesOfWorker(const Sizes& sizes) {
  return sizes.dtype == DType::kFloat64 ? BytesOfWorkerAs<double>(sizes)
                                        : BytesOfWorkerAs<float>(sizes);
}

std::int64_t QueryStride(const Sizes& sizes) {
  const std::int64_t width = linalg::RoundUp(sizes.key_dim, kUnit) + kUnit;
  return sizes.dtype == DType::kFloat64 ? linalg::StrideOf<double>(width)
                                        : linalg::StrideOf<float>(width);
}

/// Sums of one memory, whole blocks of queries.
void TakeSumsOf(const Sizes& sizes, ScratchLayout& layout, MemoryGradient& g) {
  const std::int64_t rows = common::RoundUp(sizes.tokens * sizes.queries, kQueries);
  const auto size = static_cast<std::int64_t>(SizeOf(sizes.dtype));
  g.sums.logs = layout.TakeBytes(rows * size);
  g.sums.dots = layout.TakeBytes(rows * size);
  g.sums.hits = layout.TakeBytes(rows * size);
  g.queries = layout.TakeBytes(rows * QueryStride(sizes) * size);
  layout.Take(rows, {&g.query_sums, &g.width_sums});
  g.pair_sums = layout.Take<double>(sizes.tokens);
}

std::size_t BytesOfSums(const Sizes& sizes) {
  ScratchLayout counter(nullptr);
  MemoryGradient g;
  TakeSumsOf(sizes, counter, g);
  return counter.bytes();
}

std::size_t BytesOfShared(const Sizes& sizes) {
  return static_cast<std::size_t>(sizes.sequences * sizes.heads) *
         (BytesOfWeights(sizes) + BytesOfSums(sizes));
}

/// One call.
class Pass {
 public:
  Pass(const Work& work, const TensorView& dy, const common::FinalPairGradients& final,
       const common::PairGradientTensors& gradients, Executor& executor,
       const common::WorkerScratch& room)
      : work_(work),
        dy_(dy),
        final_(final),
        gradients_(gradients),
        executor_(executor),
        room_(room) {}

  void Run() const {
    const std::int64_t memories = work_.memories();
    if (work_.sizes.weighted) {
      room_.Run(executor_, memories,
                [&](std::int64_t item, std::byte*) { WeighPairs(MemoryOf(item)); });
    }
    room_.Run(executor_, work_.tasks(), [&](std::int64_t item, std::byte* own) {
      Sum(item % memories, item / memories * kQueries, own);
    });
    // A memory is one task where these employ all threads, else each of its blocks is one: the
    // same sums, for two products more.
    if (memories >= room_.workers()) {
      room_.Run(executor_, memories, [&](std::int64_t item, std::byte* own) {
        Differentiate(item, Part::kWhole, 0, own);
      });
    } else {
      RunBlocks();
    }
    room_.Run(executor_, memories, [&](std::int64_t item, std::byte*) {
      const Memory memory = MemoryOf(item);
      const MemoryGradient gradient = GradientOf(item);
      FinishWeights({.options = work_.options, .memory = memory, .gradient = gradient});
    });
  }

 private:
  Memory MemoryOf(std::int64_t item) const { return work_.MemoryOf(item, room_.shared()); }

  void RunBlocks() const {
    const std::int64_t memories = work_.memories();
    const std::int64_t pairs = PairsOfBlock(work_.sizes.key_dim, work_.sizes.value_dim);
    const std::int64_t held = work_.call.state_k.defined() ? work_.call.state_k.size(1) : 0;
    const std::int64_t pair_blocks = common::CeilDiv(work_.sizes.tokens + held, pairs);
    room_.Run(executor_, memories * (pair_blocks + work_.blocks),
              [&](std::int64_t item, std::byte* own) {
                const std::int64_t memory = item % memories, block = item / memories;
                if (block < pair_blocks) {
                  Differentiate(memory, Part::kPairBlock, block * pairs, own);
                } else {
                  Differentiate(memory, Part::kQueryBlock, (block - pair_blocks) * kQueries, own);
                }
              });
  }

  void Sum(std::int64_t item, std::int64_t first, std::byte* own) const {
    Memory memory = MemoryOf(item);
    if (first >= memory.rows) return;
    const MemoryGradient gradient = GradientOf(item);
    const Saved saved(work_);
    if (saved) {
      TakeSums({.options = work_.options,
                .memory = memory,
                .gradient = gradient,
                .first = first,
                .scratch = own},
               saved.Means(item), work_.sizes.dtype);
      return;
    }
    memory.y = memory.status = {};
    ComputeOutputs({.options = work_.options,
                    .memory = memory,
                    .first = first,
                    .count = std::min(kQueries, memory.rows - first),
                    .scratch = own,
                    .saved = {.logs = gradient.sums.logs,
                              .dots = gradient.sums.dots,
                              .hits = gradient.sums.hits,
                              .dy = gradient.dy}},
                   work_.sizes.dtype);
  }

  void Differentiate(std::int64_t item, Part part, std::int64_t first, std::byte* own) const {
    const Memory memory = MemoryOf(item);
    const std::int64_t end =
        part == Part::kQueryBlock ? memory.rows : memory.sight.held + memory.sight.tokens;
    if (part != Part::kWhole && first >= end) return;
    const MemoryGradient gradient = GradientOf(item);
    kernel_smoother::Differentiate({.options = work_.options,
                                    .memory = memory,
                                    .gradient = gradient,
                                    .part = part,
                                    .first = first,
                                    .scratch = own},
                                   work_.sizes.dtype);
  }

  MemoryGradient GradientOf(std::int64_t item) const {
    const common::Sequence sequence = work_.sequences[item / work_.heads.memories];
    MemoryGradient g{common::PairGradientsOf(dy_, final_, gradients_, work_.heads, sequence, item)};
    g.final_place.window = work_.options.window;
    const std::size_t weights =
        static_cast<std::size_t>(work_.memories()) * BytesOfWeights(work_.sizes);
    ScratchLayout layout(room_.shared() + weights +
                         static_cast<std::size_t>(item) * BytesOfSums(work_.sizes));
    TakeSumsOf(work_.sizes, layout, g);
    if (const Saved saved(work_); saved) g.sums.logs = saved.Logs(item);
    return g;
  }

  const Work& work_;
  const TensorView& dy_;
  const common::FinalPairGradients& final_;
  const common::PairGradientTensors& gradients_;
  Executor& executor_;
  const common::WorkerScratch& room_;
};

}  // namespace

std::size_t BackwardScratchBytes(const Sizes& sizes, int threads) {
  return common::WorkerScratch::Bytes(threads, BytesOfWorker(sizes), BytesOfShared(sizes));
}

void Backward(const Options& options, const Call& call, const TensorView& dy,
              const common::FinalPairGradients& final, const common::PairGradientTensors& gradients,
              Executor& executor, std::span<std::byte> scratch) {
  const Work work(options, call);
  if (work.memories() == 0) return;
  const std::int64_t most = work.memories() * (2 * work.blocks + 1);
  const common::WorkerScratch room("kernel_smoother", scratch,
                                   common::WorkersOf(executor.threads(), most),
                                   BytesOfWorker(work.sizes), BytesOfShared(work.sizes));
  Pass(work, dy, final, gradients, executor, room).Run();
}

}  // namespace ttr::kernel_smoother
