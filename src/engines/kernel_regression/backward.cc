// The backward pass: which blocks are taken by whom.

#include "src/engines/kernel_regression/backward.h"

#include "src/engines/kernel_regression/gradient.h"
#include "src/engines/kernel_regression/memory_run.h"

namespace ttr::kernel_regression {
namespace {

template <class T>
std::size_t BytesOfSolutionsAs(const common::Sight& sight, const Sizes& sizes) {
  return common::ScratchBytesOf<Solutions<T>>(sight, sizes.queries, sizes.pairs());
}

/// What a memory takes: weights, factor, solutions.
struct Bytes {
  std::size_t weights, factor, solutions, worker;

  Bytes(const Options& options, const Sizes& sizes)
      : weights(BytesOfWeights(sizes)), factor(BytesOfFactor(sizes, sizes.pairs())) {
    common::Sight sight;
    sight.held = sizes.held;
    sight.tokens = sizes.tokens;
    sight.causal = options.causal;
    sight.before = options.read_before;
    const bool wide = sizes.dtype == DType::kFloat64;
    solutions =
        wide ? BytesOfSolutionsAs<double>(sight, sizes) : BytesOfSolutionsAs<float>(sight, sizes);
    worker = wide ? common::ScratchBytesOf<GradientScratch<double>>(sizes.pairs(), sizes.key_dim,
                                                                    sizes.value_dim)
                  : common::ScratchBytesOf<GradientScratch<float>>(sizes.pairs(), sizes.key_dim,
                                                                   sizes.value_dim);
  }

  std::size_t memory() const { return weights + factor + solutions; }
};

/// One call.
class Pass {
 public:
  Pass(const Work& work, const TensorView& dy, const FinalGradients& final,
       const Gradients& gradients)
      : work_(work), dy_(dy), final_(final), gradients_(gradients) {}

  MemoryGradient GradientOf(std::int64_t item) const {
    const std::int64_t n = item / work_.heads.memories, h = item % work_.heads.memories;
    const common::Sequence sequence = work_.sequences[n];
    const auto rows = [&](const TensorView& view) { return common::RowsOf(view, sequence, h); };
    MemoryGradient g;
    const std::int64_t output = work_.heads.OutputOf(h);
    g.dy = common::HeadRowsOf(dy_, sequence, output);
    g.dq = common::HeadRowsOf(gradients_.q, sequence, output);
    g.dk = rows(gradients_.k);
    g.dv = rows(gradients_.v);
    g.dimportance = rows(gradients_.importance);
    g.dlog_importance = rows(gradients_.log_importance);
    if (gradients_.ridge.defined()) g.dridge = gradients_.ridge.as<double>() + item;
    if (gradients_.bandwidth.defined()) g.dbandwidth = gradients_.bandwidth.as<double>() + item;
    g.dstate_k = common::PairsOf(gradients_.state_k, n, h);
    g.dstate_v = common::PairsOf(gradients_.state_v, n, h);
    g.dstate_log_weight = common::PairsOf(gradients_.state_log_weight, n, h);
    g.final_k = common::PairsOf(final_.k, n, h);
    g.final_v = common::PairsOf(final_.v, n, h);
    g.final_log_weight = common::PairsOf(final_.log_weight, n, h);
    for (const TensorView* view : {&final_.k, &final_.v, &final_.log_weight}) {
      if (view->defined()) g.final_place = {view->size(1), 0};
    }
    return g;
  }

  template <class Each>
  void RunMemory(const GradientTask& of, const Each& each) const {
    const Memory& m = of.task.memory;
    const DType dtype = work_.sizes.dtype;
    if (m.weighted) WeighPairs(m);
    MakeFactor(of.task, dtype, each);
    if (!HasFactors(of.task, dtype)) return DifferentiateByMinimumNorm(of, dtype);
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

 private:
  const Work& work_;
  const TensorView& dy_;
  const FinalGradients& final_;
  const Gradients& gradients_;
};

}  // namespace

std::size_t BackwardScratchBytes(const Options& options, const Sizes& sizes, int threads) {
  const Bytes bytes(options, sizes);
  return SharedScratchBytes(threads, bytes.memory(), bytes.worker);
}

void Backward(const Options& options, const Call& call, const TensorView& dy,
              const FinalGradients& final, const Gradients& gradients, Executor& executor,
              std::span<std::byte> scratch) {
  const Work work(options, call);
  if (work.memories() == 0) return;
  const Shares shares(work,
                      common::ThreadsFor(executor, FlopsOf(work) >= common::kFlopsWorthThreads));
  const Bytes bytes(options, work.sizes);
  const common::WorkerScratch room = shares.Claim(scratch, bytes.memory(), bytes.worker);
  const Pass pass(work, dy, final, gradients);
  shares.ForMemories(work, executor, room, bytes.worker,
                     [&](std::int64_t item, std::byte* memory, std::byte* own, const auto& each) {
                       const Memory m = work.MemoryOf(item, memory);
                       const Task task{.options = options,
                                       .memory = m,
                                       .room = work.sizes.pairs(),
                                       .factor = memory + bytes.weights,
                                       .scratch = own};
                       task.progress() = {};
                       const MemoryGradient gradient = pass.GradientOf(item);
                       pass.RunMemory({task, gradient, memory + bytes.weights + bytes.factor},
                                      each);
                     });
}

}  // namespace ttr::kernel_regression
