// The backward pass: blocks of a memory become tasks of workers.

#include "src/engines/kernel_regression/backward.h"

#include "src/engines/kernel_regression/gradient.h"
#include "src/engines/kernel_regression/memory_run.h"

namespace ttr::kernel_regression {
namespace {

template <class T>
std::size_t BytesOfSolutionsAs(const common::VisibleRange& visible, const Sizes& sizes) {
  const std::int64_t rows = std::max(sizes.tokens, sizes.queried) * sizes.queries;
  return common::ScratchBytesOf<Solutions<T>>(visible, rows, sizes.queries, sizes.pairs());
}

/// What a memory takes: weights, factor, solutions.
struct Bytes {
  std::size_t weights, factor, solutions, worker;

  /// `shift`: pairs more that every query is taken to see.
  Bytes(const Options& options, const Sizes& sizes, std::int64_t shift = 0)
      : weights(BytesOfWeights(sizes)), factor(BytesOfFactor(sizes, sizes.pairs())) {
    common::VisibleRange visible;
    visible.held = sizes.held + shift;
    visible.tokens = sizes.tokens;
    visible.causal = options.causal;
    visible.before = options.read_before;
    const bool wide = sizes.dtype == DType::kFloat64;
    solutions = wide ? BytesOfSolutionsAs<double>(visible, sizes)
                     : BytesOfSolutionsAs<float>(visible, sizes);
    worker = wide ? common::ScratchBytesOf<GradientScratch<double>>(sizes.pairs(), sizes.key_dim,
                                                                    sizes.value_dim)
                  : common::ScratchBytesOf<GradientScratch<float>>(sizes.pairs(), sizes.key_dim,
                                                                   sizes.value_dim);
  }

  RoomBytes room() const { return {weights + factor + solutions, worker}; }
};

/// A call without the pairs of a state.
Sizes WithoutState(Sizes sizes) {
  sizes.held = 0;
  return sizes;
}

/// One call.
class Pass {
 public:
  Pass(const Work& work, const TensorView& dy, const common::FinalPairGradients& final,
       const common::PairGradientTensors& gradients)
      : work_(work), dy_(dy), final_(final), gradients_(gradients) {}

  MemoryGradient GradientOf(std::int64_t item) const {
    const common::Sequence sequence = work_.sequences[item / work_.heads.memories];
    return common::PairGradientsOf(dy_, final_, gradients_, work_.heads, sequence, item);
  }

  template <class Each>
  void RunMemory(const GradientTask& of, const Each& each) const {
    const Memory& m = of.task.memory;
    const DType dtype = work_.sizes.dtype;
    if (m.weighted) WeighPairs(m);
    MakeFactor(of.task, dtype, each);
    Memory finite = m;
    finite.rows = FiniteQueries(of.task, dtype);
    const Task task{of.task.options, finite, of.task.room, of.task.factor, of.task.scratch};
    Differentiate({task, of.gradient, of.solutions}, each);
    if (finite.rows < m.rows) SpreadNonfinite(of, finite.rows, dtype);
  }

 private:
  template <class Each>
  void Differentiate(const GradientTask& of, const Each& each) const {
    const Memory& m = of.task.memory;
    const DType dtype = work_.sizes.dtype;
    if (SeenPairs(m) > of.task.progress().good) return DifferentiateByMinimumNorm(of, dtype);
    const Extent extent(of.task.room);
    const std::int64_t blocks = common::CeilDiv(m.all(), extent.block);
    const auto run = [&](std::int64_t count, auto step) {
      each(count, [&](std::int64_t item, std::byte* own) {
        const Task task = With(of.task, own);
        step({task, of.gradient, of.solutions}, count - 1 - item, dtype);
      });
    };
    run(common::CeilDiv(m.rows, kBlock), SolveQueries);
    run(blocks, FillSlopes);
    run(blocks, SumPairs);
    FinishSums(of, dtype);
  }

  const Work& work_;
  const TensorView& dy_;
  const common::FinalPairGradients& final_;
  const common::PairGradientTensors& gradients_;
};

}  // namespace

std::size_t BackwardScratchBytes(const Options& options, const Sizes& sizes, int threads) {
  // Some of the pairs may be those of a state: then queries see whole blocks earlier.
  const std::int64_t shift = Extent(sizes.pairs()).block - 1;
  return SharedScratchBytes(threads, Bytes(options, sizes, shift).room());
}

void Backward(const Options& options, const Call& call, const TensorView& dy,
              const common::FinalPairGradients& final, const common::PairGradientTensors& gradients,
              Executor& executor, std::span<std::byte> scratch) {
  const Work work(options, call);
  if (work.memories() == 0) return;
  const Shares shares(work,
                      common::ThreadsFor(executor, FlopsOf(work) >= common::kFlopsWorthThreads));
  const Bytes bytes(options, work.sizes);
  const common::WorkerScratch room =
      shares.Claim(scratch, bytes.room(), Bytes(options, WithoutState(work.sizes)).room());
  const Pass pass(work, dy, final, gradients);
  shares.ForMemories(work, executor, room, bytes.worker,
                     [&](std::int64_t item, std::byte* memory, std::byte* own, const auto& each) {
                       const Memory m = work.MemoryOf(item, memory);
                       const Task task{.options = options,
                                       .memory = m,
                                       .room = work.sizes.pairs(),
                                       .factor = memory + bytes.weights,
                                       .scratch = own};
                       task.Restart();
                       const MemoryGradient gradient = pass.GradientOf(item);
                       pass.RunMemory({task, gradient, memory + bytes.weights + bytes.factor},
                                      each);
                     });
}

}  // namespace ttr::kernel_regression
