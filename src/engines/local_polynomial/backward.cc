// The backward pass: which gradients are taken by whom.

#include "src/engines/local_polynomial/backward.h"

#include <algorithm>

#include "src/engines/local_polynomial/gradient.h"
#include "src/engines/local_polynomial/work.h"

namespace ttr::local_polynomial {
namespace {

std::int64_t CountOf(const Sizes& sizes) { return MonomialsOf(sizes.key_dim, sizes.degree); }

template <class T>
std::size_t BytesOfWorkerAs(const Sizes& sizes) {
  return common::ScratchBytesOf<GradientScratch<T>>(CountOf(sizes), sizes.key_dim, sizes.value_dim);
}

std::size_t BytesOfWorker(const Sizes& sizes) {
  return sizes.dtype == DType::kFloat64 ? BytesOfWorkerAs<double>(sizes)
                                        : BytesOfWorkerAs<float>(sizes);
}

std::size_t BytesOfRecord(const Sizes& sizes) {
  return sizes.dtype == DType::kFloat64
             ? common::ScratchBytesOf<FitRecord<double>>(CountOf(sizes), sizes.key_dim)
             : common::ScratchBytesOf<FitRecord<float>>(CountOf(sizes), sizes.key_dim);
}

/// Records and sums of one memory.
void TakeSumsOf(const Sizes& sizes, ScratchLayout& layout, MemoryGradient& g) {
  const std::int64_t rows = sizes.tokens * sizes.queries;
  g.record_bytes = BytesOfRecord(sizes);
  g.records =
      layout.TakeBytes(common::CeilDiv(rows, kQueries) * static_cast<std::int64_t>(g.record_bytes));
  layout.Take(rows, {&g.width_sums, &g.ridge_sums});
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
    // The last tokens see most pairs, the first pairs are seen by most tokens: they come first.
    room_.Run(executor_, work_.tasks(), [&](std::int64_t item, std::byte* own) {
      const std::int64_t first = (work_.blocks - 1 - item / memories) * kQueries;
      const Memory memory = MemoryOf(item % memories);
      if (first >= memory.rows) return;
      const std::int64_t count = std::min(kQueries, memory.rows - first);
      Differentiate(memory, item % memories, first, count, own, DifferentiateQueries);
    });
    const std::int64_t held = work_.call.state_k.defined() ? work_.call.state_k.size(1) : 0;
    const std::int64_t blocks = common::CeilDiv(work_.sizes.tokens + held, kPairs);
    room_.Run(executor_, memories * blocks, [&](std::int64_t item, std::byte* own) {
      const std::int64_t first = item / memories * kPairs;
      const Memory memory = MemoryOf(item % memories);
      if (first >= memory.all()) return;
      const std::int64_t count = std::min(kPairs, memory.all() - first);
      Differentiate(memory, item % memories, first, count, own, DifferentiatePairs);
    });
    room_.Run(executor_, memories, [&](std::int64_t item, std::byte*) {
      const Memory memory = MemoryOf(item);
      const MemoryGradient gradient = GradientOf(item);
      FinishGradient({.options = work_.options,
                      .memory = memory,
                      .monomials = work_.monomials,
                      .gradient = gradient});
    });
  }

 private:
  Memory MemoryOf(std::int64_t item) const { return work_.MemoryOf(item, room_.shared()); }

  template <class Part>
  void Differentiate(const Memory& memory, std::int64_t item, std::int64_t first,
                     std::int64_t count, std::byte* own, const Part& part) const {
    const MemoryGradient gradient = GradientOf(item);
    part({.options = work_.options,
          .memory = memory,
          .monomials = work_.monomials,
          .gradient = gradient,
          .first = first,
          .count = count,
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
  const std::int64_t most = work.memories() * (work.blocks + 1);
  const common::WorkerScratch room("local_polynomial", scratch,
                                   common::WorkersOf(executor.threads(), most),
                                   BytesOfWorker(work.sizes), BytesOfShared(work.sizes));
  Pass(work, dy, final, gradients, executor, room).Run();
}

}  // namespace ttr::local_polynomial
