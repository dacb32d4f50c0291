/// The backward pass of engines that keep pairs: what they share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "src/engines/common/pair_gradients.h"
#include "src/engines/common/tasks.h"

namespace ttr::common {

/// Gradients that a backward pass is given, and those that it is asked for.
struct PairPassTensors {
  const TensorView& dy;
  const FinalPairGradients& final;
  const PairGradientTensors& gradients;
};

/// One call, on scratch that holds the weights of all memories, then their sums. `Engine` says what
/// these take:
///
///     struct Backwards {
///       using Work = kernel_smoother::Work;
///       using Gradient = MemoryGradient;  // a PairGradients, with sums
///       static std::size_t WeightBytes(const Sizes& sizes);  // of one memory
///       static std::size_t WorkerBytes(const Sizes& sizes);
///       static void TakeSums(const Sizes& sizes, ScratchLayout& layout, Gradient& gradient);
///     };
template <class Engine>
class PairPass {
 public:
  using Work = typename Engine::Work;
  using Sizes = decltype(Work::sizes);
  using Gradient = typename Engine::Gradient;

  static std::size_t ScratchBytes(const Sizes& sizes, int threads) {
    return WorkerScratch::Bytes(threads, Engine::WorkerBytes(sizes), SharedBytes(sizes));
  }

  /// A call of `tasks` at the most in one go.
  PairPass(std::string_view op, const Work& work, const PairPassTensors& tensors,
           Executor& executor, std::span<std::byte> scratch, std::int64_t tasks)
      : work_(work),
        tensors_(tensors),
        executor_(executor),
        room_(op, scratch, WorkersOf(executor.threads(), tasks), Engine::WorkerBytes(work.sizes),
              SharedBytes(work.sizes)) {}

  const Work& work() const { return work_; }
  int workers() const { return room_.workers(); }

  /// run(item, scratch of a worker) for all items.
  template <class RunItem>
  void Run(std::int64_t items, const RunItem& run) const {
    room_.Run(executor_, items, run);
  }

  auto MemoryOf(std::int64_t item) const { return work_.MemoryOf(item, room_.shared()); }

  Gradient GradientOf(std::int64_t item) const {
    const Sequence sequence = work_.sequences[item / work_.heads.memories];
    Gradient gradient{PairGradientsOf(tensors_.dy, tensors_.final, tensors_.gradients, work_.heads,
                                      sequence, item)};
    gradient.final_place.window = work_.options.window;
    const std::size_t weights =
        static_cast<std::size_t>(work_.memories()) * Engine::WeightBytes(work_.sizes);
    ScratchLayout layout(room_.shared() + weights +
                         static_cast<std::size_t>(item) * SumBytes(work_.sizes));
    Engine::TakeSums(work_.sizes, layout, gradient);
    return gradient;
  }

  /// Pairs of a memory, at the most.
  std::int64_t MostPairs() const {
    const TensorView& held = work_.call.state_k;
    return work_.sizes.tokens + (held.defined() ? held.size(1) : 0);
  }

 private:
  static std::size_t SumBytes(const Sizes& sizes) {
    ScratchLayout counter(nullptr);
    Gradient gradient;
    Engine::TakeSums(sizes, counter, gradient);
    return counter.bytes();
  }
  static std::size_t SharedBytes(const Sizes& sizes) {
    return static_cast<std::size_t>(sizes.sequences * sizes.heads) *
           (Engine::WeightBytes(sizes) + SumBytes(sizes));
  }

  const Work& work_;
  PairPassTensors tensors_;
  Executor& executor_;
  WorkerScratch room_;
};

}  // namespace ttr::common
