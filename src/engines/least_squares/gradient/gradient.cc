#include "src/engines/least_squares/gradient.h"

#include "src/engines/least_squares/gradient/scratch.h"
#include "src/engines/least_squares/work.h"

namespace ttr::least_squares {
namespace {

/// What the gradient is that of: the converged problem, where a factor is at hand without steps.
Options Differentiated(Options options) {
  if (options.iteration.preconditioner == Preconditioner::kChunkFactor) options.iteration = {};
  return options;
}

std::size_t BytesOfWorker(const Options& options, const Sizes& sizes) {
  return sizes.state == DType::kFloat64 ? GradientScratch<double>(options, sizes, nullptr).bytes
                                        : GradientScratch<float>(options, sizes, nullptr).bytes;
}

/// The state of memory h of sequence n, row by row.
Rows StateRows(const TensorView& view, std::int64_t n, std::int64_t h) {
  if (!view.defined()) return {};
  return {simd::KeptOf(view, n, h), view.dtype(), view.stride(2)};
}

GradientMemory MemoryOf(const Work& work, const BackwardCall& call, std::int64_t item) {
  const std::int64_t n = item / work.heads;
  const std::int64_t h = item % work.heads;
  const Work::Sequence sequence = work.SequenceOf(n);
  const auto rows = [&](const TensorView& view, std::int64_t head) {
    return simd::RowsOf(view, sequence.batch, sequence.first, head);
  };
  const Gradients& gradients = call.gradients;
  GradientMemory m;
  m.memory = work.MemoryOf(item);
  m.dy = rows(call.dy, h * work.sizes.queries);
  m.dy_head_stride = call.dy.stride(2);
  m.dq = rows(gradients.q, h * work.sizes.queries);
  if (gradients.q.defined()) m.dq_head_stride = gradients.q.stride(2);
  m.dk = rows(gradients.k, h);
  m.dv = rows(gradients.v, h);
  m.dlog_decay = rows(gradients.log_decay, h);
  m.dimportance = rows(gradients.importance, h);
  m.da = StateRows(call.da, n, h);
  m.db = StateRows(call.db, n, h);
  m.da_initial = StateRows(gradients.a, n, h);
  m.db_initial = StateRows(gradients.b, n, h);
  m.dridge = static_cast<double*>(simd::KeptOf(gradients.ridge, n, h));
  return m;
}

}  // namespace

std::size_t BackwardScratchBytes(const Options& options, const Sizes& sizes, int threads) {
  return static_cast<std::size_t>(threads) * BytesOfWorker(Differentiated(options), sizes) +
         kAlignment;
}

void Backward(const Options& given, const BackwardCall& call, Executor& executor,
              std::span<std::byte> scratch) {
  const Options options = Differentiated(given);
  const Work work(call.forward, call.dy);
  const std::int64_t items = work.sequences * work.heads;
  if (items == 0) return;
  const auto run = work.sizes.state == DType::kFloat64 ? RunGradientDouble : RunGradientFloat;
  RunItems(executor, work.Threads(executor), items, BytesOfWorker(options, work.sizes), scratch,
           [&](std::int64_t item, std::byte* own) {
             run(options, MemoryOf(work, call, item), work.sizes, own);
           });
}

}  // namespace ttr::least_squares
