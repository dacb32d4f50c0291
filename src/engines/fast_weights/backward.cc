// The backward pass: a call, memory by memory.

#include "src/engines/fast_weights/backward.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <string>

#include "src/engines/fast_weights/backward_rows.h"
#include "src/engines/fast_weights/kept.h"
#include "src/engines/fast_weights/work.h"
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
  const Sequence sequence = work.SequenceOf(n);
  const std::int64_t steps = work.options.steps;
  auto rows = [&](const TensorView& view, std::int64_t head) {
    return RowsOf(view, sequence.batch, sequence.first, head);
  };
  auto step_rows = [&](const TensorView& view, std::int64_t head) {
    return RowsOf(view, sequence.batch, sequence.first * steps, head);
  };
  // A head that an earlier memory of the group reads, too, has its gradient there already.
  auto shared = [&](const TensorView& input) {
    return input.defined() && !first_in_group &&
           work.HeadOf(h, input) == work.HeadOf(h - 1, input) && input.size(2) < work.heads;
  };
  GradientMemory m;
  if (g.q.defined()) {
    m.q = rows(g.q, work.sizes.queries > 1 ? h * work.sizes.queries : work.HeadOf(h, g.q));
    m.q_head_stride = g.q.stride(2);
    m.add_q = work.sizes.queries == 1 && shared(g.q);
  }
  if (g.k.defined()) m.k = step_rows(g.k, work.HeadOf(h, g.k));
  if (g.v.defined()) m.v = step_rows(g.v, work.HeadOf(h, g.v));
  m.add_k = shared(g.k);
  m.add_v = shared(g.v);
  m.log_decay = rows(g.log_decay, h);
  m.phase = rows(g.phase, h);
  m.step = step_rows(g.step, h);
  m.importance = rows(g.importance, h);
  m.erase_key = rows(g.erase_key, h);
  m.erase_gate = rows(g.erase_gate, h);
  m.momentum = rows(g.momentum, h);
  m.weight_decay = rows(g.weight_decay, h);
  m.bonus = ConstantOf(g.bonus, h);
  m.features_w = ConstantOf(g.features_w, h).data;
  m.features_b = ConstantOf(g.features_b, h).data;
  auto state = [&](const TensorView& view) {
    Rows kept = KeptOf(view, n, h);
    if (kept) kept.stride = view.stride(2);
    return kept;
  };
  m.state = state(g.state);
  m.second = state(g.second);
  m.sum = KeptOf(g.sum, n, h);
  m.maximum = KeptOf(g.maximum, n, h);
  m.curvature = KeptOf(g.curvature, n, h);
  m.dstate = state(call.dstate);
  m.dsecond = state(call.dsecond);
  m.dsum = KeptOf(call.dsum, n, h);
  m.dmaximum = KeptOf(call.dmaximum, n, h);
  m.dcurvature = KeptOf(call.dcurvature, n, h);
  m.add_constants = n > 0;
  return m;
}

}  // namespace

std::size_t BackwardScratchBytes(const Options& options, const Sizes& sizes, int threads) {
  return static_cast<std::size_t>(threads) * BytesOfWorker(options, sizes) + kAlignment;
}

void Backward(const Options& options, const BackwardCall& call, Executor& executor,
              std::span<std::byte> scratch) {
  Call forward = call.forward;
  forward.y = call.dy;  // read where the forward pass writes
  Work work(options, forward);
  if (work.heads == 0 || work.sequences == 0) return;
  if (!forward.kept.empty() && !options.paired() && !FindKept(work)) {
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

  const std::size_t needed = BackwardScratchBytes(options, work.sizes, workers);
  std::unique_ptr<std::byte[]> owned;
  if (scratch.empty()) {
    owned.reset(new std::byte[needed]);
    scratch = {owned.get(), needed};
  } else if (scratch.size() < needed) {
    throw Error("fast_weights", "scratch", "at least " + std::to_string(needed) + " bytes",
                std::to_string(scratch.size()));
  }
  std::byte* const start = Align(scratch.data());
  const std::size_t bytes = BytesOfWorker(options, work.sizes);
  const auto run = work.sizes.state == DType::kFloat64 ? DifferentiateMemory<double>
                                                       : DifferentiateMemory<float>;
  RunOnWorkers(executor, workers, items, [&](std::int64_t item, int worker) {
    const std::int64_t group = item % groups.count;
    const std::int64_t first = constants ? 0 : item / groups.count;
    const std::int64_t last = constants ? work.sequences : first + 1;
    for (std::int64_t n = first; n < last; ++n) {
      for (std::int64_t i = 0; i < groups.heads; ++i) {
        const std::int64_t h = group * groups.heads + i;
        const Memory memory = work.MemoryOf(n * work.heads + h);
        run(options, memory, GradientsOf(work, call, n, h, i == 0), work.sizes,
            start + static_cast<std::size_t>(worker) * bytes);
      }
    }
  });
}

}  // namespace ttr::fast_weights
