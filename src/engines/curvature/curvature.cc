// Calls: a task is as many memories as can be taken together.

#include "src/engines/curvature/curvature.h"

#include <algorithm>

#include "src/engines/common/sequences.h"
#include "src/engines/common/tasks.h"
#include "src/engines/curvature/task.h"

namespace ttr::curvature {
namespace {

/// One call. Memories of a task have sequences of one length: those of different sequences are
/// together only where none are packed.
class Work {
 public:
  Work(const Options& options, const Call& call, int threads)
      : options_(options),
        call_(call),
        sequences_(call.cu_seqlens, call.k.size(0), call.k.size(1) / options.steps, call.slots),
        heads_(call.heads, {}),
        runs_(sequences_.packed() ? sequences_.count() : 1),
        of_run_(sequences_.packed() ? call.heads : sequences_.count() * call.heads),
        size_(std::clamp<std::int64_t>(common::CeilDiv(runs_ * of_run_, threads), 1, kTogether)),
        tasks_of_run_(common::CeilDiv(of_run_, size_)) {}

  std::int64_t tasks() const { return runs_ * tasks_of_run_; }
  Sizes sizes() const {
    return {options_.rank, call_.k.size(3), sequences_.longest() * options_.steps};
  }

  Task TaskOf(std::int64_t item, const Gradients* gradients, std::byte* scratch) const {
    const std::int64_t run = item / tasks_of_run_, first = (item - run * tasks_of_run_) * size_;
    Task task{.options = options_, .sizes = sizes(), .memories = {}, .scratch = scratch};
    task.count = std::min(size_, of_run_ - first);
    for (std::int64_t i = 0; i < task.count; ++i) {
      const std::int64_t memory = run * of_run_ + first + i;
      const std::int64_t n = memory / call_.heads, h = memory % call_.heads;
      const common::Sequence sequence = sequences_[n];
      task.rows = sequence.tokens * options_.steps;
      Memory& m = task.memories[static_cast<std::size_t>(i)];
      m.k = RowsOf(call_.k, sequence, heads_.Of(h, call_.k));
      m.importance = common::RowsOf(call_.importance, sequence, h);
      m.u = common::StateOf(call_.u, sequences_.StateRow(n), h);
      if (gradients == nullptr) {
        m.w = RowsOf(call_.w, sequence, h);
        continue;
      }
      m.dw = RowsOf(gradients->w, sequence, h);
      m.final_u = common::StateOf(gradients->final_u, n, h);
      m.dk = RowsOf(gradients->k, sequence, h);
      m.dimportance = common::RowsOf(gradients->importance, sequence, h);
      m.du = common::StateOf(gradients->u, n, h);
    }
    return task;
  }

 private:
  /// The rows of a tensor that has one for every step of a token.
  Rows RowsOf(const TensorView& view, const common::Sequence& sequence, std::int64_t h) const {
    return common::RowsOf(view, sequence.batch, sequence.first * options_.steps, h);
  }

  const Options& options_;
  const Call& call_;
  common::Sequences sequences_;
  common::Heads heads_;
  std::int64_t runs_, of_run_, size_, tasks_of_run_;
};

template <class OwnScratch, class RunTask>
void RunCall(const Options& options, const Call& call, const Gradients* gradients,
             Executor& executor, std::span<std::byte> scratch, const RunTask& run) {
  const auto n = static_cast<double>(options.rank + 1);
  const double flops = static_cast<double>(call.k.size(0) * call.k.size(1) * call.heads) * n * n *
                       static_cast<double>(call.k.size(3));
  const int threads = common::ThreadsFor(executor, flops >= common::kFlopsWorthThreads);
  const Work work(options, call, threads);
  if (work.tasks() == 0) return;
  const int workers = common::WorkersOf(threads, work.tasks());
  const common::WorkerScratch room("curvature", scratch, workers,
                                   common::ScratchBytesOf<OwnScratch>(work.sizes()));
  room.Run(executor, work.tasks(),
           [&](std::int64_t item, std::byte* own) { run(work.TaskOf(item, gradients, own)); });
}

}  // namespace

std::size_t ScratchBytes(const Sizes& sizes, int threads) {
  return common::WorkerScratch::Bytes(threads, common::ScratchBytesOf<Scratch>(sizes));
}
std::size_t BackwardScratchBytes(const Sizes& sizes, int threads) {
  return common::WorkerScratch::Bytes(threads, common::ScratchBytesOf<BackwardScratch>(sizes));
}

void Forward(const Options& options, const Call& call, Executor& executor,
             std::span<std::byte> scratch) {
  RunCall<Scratch>(options, call, nullptr, executor, scratch, RunForward);
}

void Backward(const Options& options, const Call& call, const Gradients& gradients,
              Executor& executor, std::span<std::byte> scratch) {
  RunCall<BackwardScratch>(options, call, &gradients, executor, scratch, RunBackward);
}

}  // namespace ttr::curvature
