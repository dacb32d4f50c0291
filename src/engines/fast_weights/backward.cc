// The backward pass: a call, memory by memory.

#include "src/engines/fast_weights/backward.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>

#include "src/engines/fast_weights/backward/checkpoints.h"
#include "src/engines/fast_weights/backward/rows.h"
#include "src/engines/fast_weights/saved.h"
#include "src/engines/fast_weights/work.h"

namespace ttr::fast_weights {
namespace {

/// What a worker has: the rows of a block, and where the caller gave nothing that a forward pass
/// saved, what a pass of its own saves of one memory.
template <class T>
struct Worker {
  BackwardRows<T> rows;
  std::optional<Checkpoints<T>> checkpoints;

  Worker(const Options& options, const Sizes& sizes, ScratchLayout& layout)
      : rows(options, sizes, layout) {
    if (options.causal && !sizes.saved) checkpoints.emplace(options, sizes, layout);
  }
};

std::size_t BytesOfWorker(const Options& options, const Sizes& sizes) {
  return common::ScratchBytesOf<Worker>(sizes.state, options, sizes);
}

/// What a call's heads share: memories first .. first + count of a group have inputs of their own.
struct Groups {
  std::int64_t count, heads;

  Groups(const Work& work, const Call& call) {
    const std::int64_t all = work.heads.memories;
    count = all;
    for (const TensorView* input : {&call.q, &call.k, &call.v}) {
      if (input->defined()) count = std::gcd(count, std::min(all, input->size(2)));
    }
    heads = all / count;
  }
};

GradientMemory GradientsOf(const Work& work, const BackwardCall& call, std::int64_t n,
                           std::int64_t h, bool first_in_group) {
  const Gradients& g = call.gradients;
  // A head that an earlier memory of the group reads, too, has its gradient there already.
  auto shared = [&](const TensorView& input) {
    return input.defined() && !first_in_group &&
           work.heads.Of(h, input) == work.heads.Of(h - 1, input) &&
           input.size(2) < work.heads.memories;
  };
  GradientMemory m;
  work.PointTo(g, n, h, m.inputs);
  work.PointTo(g, n, h, m.entries);
  work.PointTo(call.final, n, h, m.final);
  if (g.q.defined()) m.q_head_stride = g.q.stride(2);
  m.add_q = work.sizes.queries == 1 && shared(g.q);
  m.add_k = shared(g.k);
  m.add_v = shared(g.v);
  m.add_constants = n > 0;
  return m;
}

/// Memories first .. first + count of sequence n, from their last tokens on, in time slices of a
/// block.
template <class T>
void RunInSlices(const Work& work, const BackwardCall& call, std::int64_t n, std::int64_t first,
                 std::int64_t count, std::byte* scratch) {
  ScratchLayout layout(scratch);
  BackwardRows<T> rows(work.options, work.sizes, layout);
  std::array<Memory, kMostInterleaved> memories;
  std::array<GradientMemory, kMostInterleaved> gradients;
  // The rows before `to`, as many as are in its block.
  auto slice = [](Memory& memory, std::int64_t to) {
    memory.extent.to = to;
    memory.extent.from = to == 0 ? 0 : (to - 1) / kGradientBlock * kGradientBlock;
  };
  for (std::int64_t i = 0; i < count; ++i) {
    Memory& memory = memories[static_cast<std::size_t>(i)];
    memory = work.MemoryOf(n * work.heads.memories + first + i);
    memory.extent.place = i;
    slice(memory, memory.dims.rows);
    gradients[static_cast<std::size_t>(i)] = GradientsOf(work, call, n, first + i, true);
  }
  for (bool goes_on = true; goes_on;) {
    for (std::int64_t i = 0; i < count; ++i) {
      Memory& memory = memories[static_cast<std::size_t>(i)];
      const Memory& next = memories[static_cast<std::size_t>(i + 1 < count ? i + 1 : 0)];
      DifferentiateMemory(work.options, memory, next, gradients[static_cast<std::size_t>(i)],
                          work.sizes, rows);
      goes_on = memory.extent.from > 0;
      slice(memory, memory.extent.from);
    }
  }
}

/// One memory after the other, `count` of them from `first` on, which may share inputs.
template <class T>
void RunGroup(const Work& work, const BackwardCall& call, std::int64_t n, std::int64_t first,
              std::int64_t count, std::byte* scratch) {
  for (std::int64_t h = first; h < first + count; ++h) {
    ScratchLayout layout(scratch);
    Worker<T> worker(work.options, work.sizes, layout);
    Memory memory = work.MemoryOf(n * work.heads.memories + h);
    if (worker.checkpoints) worker.checkpoints->Find(work, memory);
    DifferentiateMemory(work.options, memory, Memory{}, GradientsOf(work, call, n, h, h == first),
                        work.sizes, worker.rows);
  }
}

}  // namespace

std::size_t BackwardScratchBytes(const Options& options, const Sizes& sizes, int threads) {
  // Memories are interleaved only where the caller gives what was saved.
  Sizes given = sizes;
  given.saved = options.causal;
  const std::size_t worker = std::max(BytesOfWorker(options, sizes), BytesOfWorker(options, given));
  const std::size_t bytes = common::WorkerScratch::Bytes(threads, worker);
  return options.causal ? bytes : std::max(bytes, ScratchBytes(options, sizes, threads));
}

void Backward(const Options& options, const BackwardCall& call, Executor& executor,
              std::span<std::byte> scratch) {
  Call forward = call.forward;
  forward.y = call.dy;  // read where the forward pass writes
  if (!options.causal) {
    forward.saved = {};
    Call writes = call.forward;
    writes.q = writes.y = writes.status = {};
    writes.saved = {};
    Forward(options, writes, executor, scratch);
  }
  Work work(options, forward);
  if (work.memories() == 0) return;
  work.sizes.saved = work.Saves();
  const Groups groups(work, forward);
  // Gradients of constants are sums over the sequences, in order.
  const Gradients& g = call.gradients;
  const bool constants = g.bonus.defined() || g.features_w.defined() || g.features_b.defined();
  const std::int64_t sequences = work.sequences.count(), heads = work.heads.memories;
  const std::int64_t items = (constants ? 1 : sequences) * groups.count;
  const int threads = work.Threads(executor);
  const common::WorkerScratch workers("fast_weights", scratch, common::WorkersOf(threads, items),
                                      BytesOfWorker(options, work.sizes));
  const bool wide = work.sizes.state == DType::kFloat64;
  const std::int64_t together =
      constants || groups.heads > 1
          ? 1
          : work.Together(workers.workers(), MostTogetherBackward(options, work.sizes));
  if (together > 1) {
    const std::int64_t slices = CeilDiv(heads, together);  // of a sequence
    const auto run = wide ? RunInSlices<double> : RunInSlices<float>;
    workers.Run(executor, sequences * slices, [&](std::int64_t item, std::byte* own) {
      const std::int64_t first = item % slices * together;
      run(work, call, item / slices, first, std::min(together, heads - first), own);
    });
    return;
  }
  const auto run = wide ? RunGroup<double> : RunGroup<float>;
  workers.Run(executor, items, [&](std::int64_t item, std::byte* own) {
    const std::int64_t first = item % groups.count * groups.heads;
    const std::int64_t begin = constants ? 0 : item / groups.count;
    const std::int64_t end = constants ? sequences : begin + 1;
    for (std::int64_t n = begin; n < end; ++n) run(work, call, n, first, groups.heads, own);
  });
}

}  // namespace ttr::fast_weights
