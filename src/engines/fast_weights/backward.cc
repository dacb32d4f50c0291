// The backward pass: memory by memory, gather, gradients of rows, scatter.

#include "src/engines/fast_weights/backward.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <string>

#include "src/engines/fast_weights/backward_rows.h"
#include "src/engines/fast_weights/row_io.h"
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

template <class T>
GradientRows<T> RowsAt(T* data, std::int64_t stride, std::int64_t head_stride = 0) {
  return {data, stride, head_stride};
}

template <class T>
GradientRows<const T> InputAt(const T* data, std::int64_t stride, std::int64_t head_stride = 0) {
  return {data, stride, head_stride};
}

/// The final state's gradient, the sum's as one column more.
template <class T>
bool LoadFinal(const Options& options, const Memory& memory, const GradientMemory& out,
               BackwardRows<T>& rows) {
  const std::int64_t stride = rows.value_stride;
  std::fill_n(rows.d_final, memory.key_dim * stride, T(0));
  if (options.paired()) std::fill_n(rows.d_final_second, memory.key_dim * stride, T(0));
  for (std::int64_t d = 0; options.paired() && out.dsecond && d < memory.key_dim; ++d) {
    ReadRow(out.dsecond, d, memory.value_dim, rows.d_final_second + d * stride);
  }
  if (!out.dstate && !out.dsum) return false;
  for (std::int64_t d = 0; out.dstate && d < memory.key_dim; ++d) {
    ReadRow(out.dstate, d, memory.value_dim, rows.d_final + d * stride);
  }
  if (out.dsum && options.denominator != Denominator::kNone) {
    ReadRow(out.dsum, 0, memory.key_dim, rows.row);
    for (std::int64_t d = 0; d < memory.key_dim; ++d) {
      rows.d_final[d * stride + memory.value_dim] = rows.row[d];
    }
  }
  return true;
}

/// `final`: is there a gradient of the final state?
template <class T>
void DifferentiateRows(const Options& options, const Memory& memory, const Sizes& sizes, bool final,
                       const BackwardRows<T>& rows) {
  const std::int64_t keys = rows.key_stride, values = rows.value_stride;
  const bool apart = options.apart();
  GradientCall<T> call;
  call.sizes = GradientSizesOf(options, sizes);
  call.sizes.tokens = memory.rows;
  call.seen = apart                             ? Seen::kUndecayed
              : options.shrink != Shrink::kNone ? Seen::kOwn
                                                : Seen::kDecayed;
  call.read_before = options.read_before;
  call.reset = options.decay == Decay::kScalar && options.shrink == Shrink::kNone;
  call.write = InputAt(rows.write, keys);
  call.d_write = RowsAt(rows.d_write, keys);
  if (options.erases()) {
    call.erase = InputAt(rows.erase, keys);
    call.d_erase = RowsAt(rows.d_erase, keys);
  }
  if (apart) {
    call.second_write = InputAt(rows.key, keys);
    call.second_value = InputAt(rows.value, values);
    call.d_second_write = RowsAt(rows.d_second, keys);
    call.d_second_value = RowsAt(rows.d_value, values);
  } else {
    call.value = InputAt(rows.value, values);
    call.d_value = RowsAt(rows.d_value, values);
  }
  call.query = InputAt(rows.query, keys, rows.rows * keys);
  call.d_query = RowsAt(rows.d_query, keys, rows.rows * keys);
  call.step = rows.step;
  call.d_step = rows.d_step;
  if (call.sizes.decay == GradientDecay::kChannel) {
    call.log_decay = InputAt(rows.log_decay, keys);
    call.d_log_decay = RowsAt(rows.d_log_decay, keys);
  } else if (call.sizes.decay == GradientDecay::kScalar) {
    call.decay = rows.decay;
    call.d_decay = rows.d_decay;
    if (call.seen == Seen::kOwn) {
      call.erase_decay = rows.erase_decay;
      call.d_erase_decay = rows.d_erase_decay;
    }
  }
  if (call.seen != Seen::kOwn) std::fill_n(rows.d_erase_decay, rows.rows, T(0));
  if (call.sizes.decay != GradientDecay::kScalar) std::fill_n(rows.d_decay, rows.rows, T(0));
  if (options.bonus) {
    call.bonus = InputAt(rows.bonus, 1, rows.rows);
    call.d_bonus = RowsAt(rows.d_bonus, 1, rows.rows);
  }
  call.initial = rows.initial;
  call.initial_stride = values;
  call.d_output = InputAt(rows.dy, values, rows.rows * values);
  if (final) {
    call.d_final = rows.d_final;
    call.d_final_stride = values;
  }
  call.d_initial = rows.d_initial;
  call.d_initial_stride = values;
  RunGradient(call, rows.gradient);
}

template <class T>
void DifferentiatePair(const Options& options, const Memory& memory, const Sizes& sizes,
                       const BackwardRows<T>& rows) {
  const std::int64_t keys = rows.key_stride, values = rows.value_stride;
  PairedCall<T> call;
  call.sizes = PairedSizesOf(options, sizes);
  call.sizes.tokens = memory.rows;
  call.read_before = options.read_before;
  call.write = InputAt(rows.write, keys);
  call.d_write = RowsAt(rows.d_write, keys);
  call.query = InputAt(rows.query, keys, rows.rows * keys);
  call.d_query = RowsAt(rows.d_query, keys, rows.rows * keys);
  call.value = InputAt(rows.value, values);
  call.d_value = RowsAt(rows.d_value, values);
  call.step = rows.step;
  call.d_step = rows.d_step;
  if (options.phase) {
    call.log_decay = InputAt(rows.log_decay, keys);
    call.d_log_decay = RowsAt(rows.d_log_decay, keys);
    call.phase = InputAt(rows.phase, keys);
    call.d_phase = RowsAt(rows.d_phase, keys);
  } else {
    call.erase = InputAt(rows.erase, keys);
    call.d_erase = RowsAt(rows.d_erase, keys);
    call.momentum = rows.momentum;
    call.d_momentum = rows.d_momentum;
    call.decay = rows.decay;
    call.erase_decay = rows.erase_decay;
  }
  call.d_decay = rows.d_decay;
  call.d_erase_decay = rows.d_erase_decay;
  if (options.bonus) {
    call.bonus = InputAt(rows.bonus, 1, rows.rows);
    call.d_bonus = RowsAt(rows.d_bonus, 1, rows.rows);
  }
  call.initial = rows.initial;
  call.initial_second = rows.initial_second;
  call.d_output = InputAt(rows.dy, values, rows.rows * values);
  call.d_final = rows.d_final;
  call.d_final_second = rows.d_final_second;
  call.state_stride = values;
  call.d_initial = rows.d_initial;
  call.d_initial_second = rows.d_initial_second;
  RunPairedGradient(call, rows.gradient);
  if (options.shrink != Shrink::kNone) return;
  // Without weight decay both decays are one.
  for (std::int64_t r = 0; r < rows.rows; ++r) rows.d_decay[r] += rows.d_erase_decay[r];
}

template <class T>
void RunOne(const Options& options, const Memory& memory, const GradientMemory& out, Sizes sizes,
            std::byte* scratch) {
  BackwardRows<T> rows(options, sizes, scratch);
  // A packed sequence may be shorter than the longest, for which the scratch is laid out.
  rows.rows = memory.rows;
  GatherRows(options, memory, rows);
  GatherOutputGradients(options, memory, sizes, rows);
  const bool final = LoadFinal(options, memory, out, rows);
  if (options.paired()) {
    DifferentiatePair(options, memory, sizes, rows);
  } else {
    DifferentiateRows(options, memory, sizes, final, rows);
  }
  ScatterGradients(options, memory, out, rows);
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
  const Work work(options, forward);
  if (work.heads == 0 || work.sequences == 0) return;
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
  const auto run = work.sizes.state == DType::kFloat64 ? RunOne<double> : RunOne<float>;
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
