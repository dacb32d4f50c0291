// The backward pass: a call, memory by memory.

#include "src/engines/fast_weights/backward.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "src/engines/fast_weights/backward_rows.h"
#include "src/engines/fast_weights/saved.h"
#include "src/engines/fast_weights/work.h"
#include "src/parallel/claimed.h"
#include "src/parallel/workers.h"
#include "ttr/error.h"

namespace ttr::fast_weights {
namespace {

std::size_t BytesOfWorker(const Options& options, const Sizes& sizes) {
  const std::size_t bytes = sizes.state == DType::kFloat64
                                ? BackwardRows<double>(options, sizes, nullptr).bytes
                                : BackwardRows<float>(options, sizes, nullptr).bytes;
  return static_cast<std::size_t>(RoundUp(static_cast<std::int64_t>(bytes), kAlignment));
}

/// What a call's heads share: memories first .. first + count of a group have inputs of their own.
struct Groups {
  std::int64_t count, heads;

  Groups(const Work& work, const Call& call) {
    count = work.heads;
    for (const TensorView* input : {&call.q, &call.k, &call.v}) {
      if (input->defined()) count = std::gcd(count, std::min(work.heads, input->size(2)));
    }
    heads = work.heads / count;
  }
};

GradientMemory GradientsOf(const Work& work, const BackwardCall& call, std::int64_t n,
                           std::int64_t h, bool first_in_group) {
  const Gradients& g = call.gradients;
  // A head that an earlier memory of the group reads, too, has its gradient there already.
  auto shared = [&](const TensorView& input) {
    return input.defined() && !first_in_group &&
           work.HeadOf(h, input) == work.HeadOf(h - 1, input) && input.size(2) < work.heads;
  };
  GradientMemory m;
  work.PointTo(g, n, h, static_cast<Operands<Rows>&>(m));
  work.PointTo(g, n, h, static_cast<StateOperands<Rows>&>(m));
  work.PointTo(call.final, n, h, m.final);
  if (g.q.defined()) m.q_head_stride = g.q.stride(2);
  m.add_q = work.sizes.queries == 1 && shared(g.q);
  m.add_k = shared(g.k);
  m.add_v = shared(g.v);
  m.add_constants = n > 0;
  return m;
}

/// Memories first .. first + count of sequence n, from their last tokens on, a block each until
/// they are through.
template <class T>
void RunInTurns(const Work& work, const BackwardCall& call, std::int64_t n, std::int64_t first,
                std::int64_t count, std::byte* scratch) {
  BackwardRows<T> rows(work.options, work.sizes, scratch);
  std::array<Memory, kMostInterleaved> memories;
  std::array<GradientMemory, kMostInterleaved> gradients;
  // The rows before `to`, as many as are in its block.
  auto turn = [](Memory& memory, std::int64_t to) {
    memory.to = to;
    memory.from = to == 0 ? 0 : (to - 1) / kGradientBlock * kGradientBlock;
  };
  for (std::int64_t i = 0; i < count; ++i) {
    Memory& memory = memories[static_cast<std::size_t>(i)];
    memory = work.MemoryOf(n * work.heads + first + i);
    memory.place = i;
    turn(memory, memory.rows);
    gradients[static_cast<std::size_t>(i)] = GradientsOf(work, call, n, first + i, true);
  }
  for (bool goes_on = true; goes_on;) {
    for (std::int64_t i = 0; i < count; ++i) {
      Memory& memory = memories[static_cast<std::size_t>(i)];
      const Memory& next = memories[static_cast<std::size_t>(i + 1 < count ? i + 1 : 0)];
      DifferentiateMemory(work.options, memory, next, gradients[static_cast<std::size_t>(i)],
                          work.sizes, rows);
      goes_on = memory.from > 0;
      turn(memory, memory.from);
    }
  }
}

/// One memory after the other, `count` of them from `first` on, which may share inputs.
template <class T>
void RunGroup(const Work& work, const BackwardCall& call, std::int64_t n, std::int64_t first,
              std::int64_t count, std::byte* scratch) {
  for (std::int64_t h = first; h < first + count; ++h) {
    BackwardRows<T> rows(work.options, work.sizes, scratch);
    DifferentiateMemory(work.options, work.MemoryOf(n * work.heads + h), Memory{},
                        GradientsOf(work, call, n, h, h == first), work.sizes, rows);
  }
}

}  // namespace

std::size_t BackwardScratchBytes(const Options& options, const Sizes& sizes, int threads) {
  const std::size_t bytes =
      static_cast<std::size_t>(threads) * BytesOfWorker(options, sizes) + kAlignment;
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
  if (work.heads == 0 || work.sequences == 0) return;
  if (!forward.saved.empty() && !FindSaved(work)) {
    throw Error("Backward", "kept", "what Forward left there for the same inputs",
                "something else");
  }
  const Groups groups(work, forward);
  // Gradients of constants are sums over the sequences, in order.
  const Gradients& g = call.gradients;
  const bool constants = g.bonus.defined() || g.features_w.defined() || g.features_b.defined();
  const std::int64_t runs = constants ? 1 : work.sequences;
  const std::int64_t items = runs * groups.count;
  const int threads = work.Flops() < kFlopsWorthThreads ? 1 : executor.threads();
  const int workers = static_cast<int>(std::min<std::int64_t>(threads, items));

  const Claimed claimed("fast_weights", scratch,
                        BackwardScratchBytes(options, work.sizes, workers));
  const std::size_t bytes = BytesOfWorker(options, work.sizes);
  const bool wide = work.sizes.state == DType::kFloat64;
  auto scratch_of = [&](int worker) {
    return claimed.start() + static_cast<std::size_t>(worker) * bytes;
  };
  const std::int64_t together =
      constants || groups.heads > 1 || !work.sizes.saved
          ? 1
          : work.Together(workers, MostTogetherBackward(options, work.sizes));
  if (together > 1) {
    const std::int64_t turns = (work.heads + together - 1) / together;
    const auto run = wide ? RunInTurns<double> : RunInTurns<float>;
    RunOnWorkers(executor, workers, work.sequences * turns, [&](std::int64_t item, int worker) {
      const std::int64_t first = item % turns * together;
      run(work, call, item / turns, first, std::min(together, work.heads - first),
          scratch_of(worker));
    });
    return;
  }
  const auto run = wide ? RunGroup<double> : RunGroup<float>;
  RunOnWorkers(executor, workers, items, [&](std::int64_t item, int worker) {
    const std::int64_t first = item % groups.count * groups.heads;
    const std::int64_t begin = constants ? 0 : item / groups.count;
    const std::int64_t end = constants ? work.sequences : begin + 1;
    for (std::int64_t n = begin; n < end; ++n) {
      run(work, call, n, first, groups.heads, scratch_of(worker));
    }
  });
}

}  // namespace ttr::fast_weights
