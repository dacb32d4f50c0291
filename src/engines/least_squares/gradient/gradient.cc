#include "src/engines/least_squares/gradient.h"

#include "src/engines/least_squares/gradient/scratch.h"
#include "src/engines/least_squares/qr/gradient.h"
#include "src/engines/least_squares/work.h"

namespace ttr::least_squares {
namespace {

/// The options whose gradient is taken. With a factor of the chunk it is that of the converged
/// problem, which needs no steps.
Options Differentiated(Options options) {
  if (options.iteration.preconditioner == Preconditioner::kChunkFactor) options.iteration = {};
  return options;
}

std::size_t BytesOfWorker(const Options& options, const Sizes& sizes) {
  if (options.rotates) return RotatedGradientBytes(options, sizes);
  return sizes.state == DType::kFloat64
             ? common::ScratchBytesOf<GradientScratch<double>>(options, sizes)
             : common::ScratchBytesOf<GradientScratch<float>>(options, sizes);
}

GradientMemory MemoryOf(const Work& work, const BackwardCall& call, std::int64_t item) {
  const common::Task task = common::Task::Of(item, work.heads.memories, 1);
  const std::int64_t n = task.sequence, h = task.head;
  const common::Sequence sequence = work.sequences[n];
  const auto rows = [&](const TensorView& view, std::int64_t head) {
    return common::RowsOf(view, sequence, head);
  };
  const Gradients& gradients = call.gradients;
  GradientMemory m;
  m.memory = work.MemoryOf(item);
  m.dy = rows(call.dy, work.heads.OutputOf(h));
  m.dy_head_stride = call.dy.stride(2);
  m.dq = rows(gradients.q, work.heads.OutputOf(h));
  if (gradients.q.defined()) m.dq_head_stride = gradients.q.stride(2);
  m.dk = rows(gradients.k, h);
  m.dv = rows(gradients.v, h);
  m.dlog_decay = rows(gradients.log_decay, h);
  m.dimportance = rows(gradients.importance, h);
  m.dstep = rows(gradients.step, h);
  m.dmomentum = rows(gradients.momentum, h);
  m.da = common::StateOf(call.da, n, h);
  m.db = common::StateOf(call.db, n, h);
  m.da_initial = common::StateOf(gradients.a, n, h);
  m.db_initial = common::StateOf(gradients.b, n, h);
  m.drss = common::StateOf(call.drss, n, h);
  m.drss_initial = common::StateOf(gradients.rss, n, h);
  m.dridge = static_cast<double*>(common::StateOf(gradients.ridge, n, h).data);
  return m;
}

}  // namespace

std::size_t BackwardScratchBytes(const Options& options, const Sizes& sizes, int threads) {
  return common::WorkerScratch::Bytes(threads, BytesOfWorker(Differentiated(options), sizes));
}

void Backward(const Options& given, const BackwardCall& call, Executor& executor,
              std::span<std::byte> scratch) {
  const Options options = Differentiated(given);
  const Work work(call.forward, call.dy);
  if (work.items() == 0) return;
  const auto run = options.rotates                       ? RunRotatedGradient
                   : work.sizes.state == DType::kFloat64 ? RunGradientDouble
                                                         : RunGradientFloat;
  const common::WorkerScratch workers("least_squares", scratch,
                                      common::WorkersOf(work.Threads(executor), work.items()),
                                      BytesOfWorker(options, work.sizes));
  workers.Run(executor, work.items(), [&](std::int64_t item, std::byte* own) {
    run(options, MemoryOf(work, call, item), work.sizes, own);
  });
}

}  // namespace ttr::least_squares
