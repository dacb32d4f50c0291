// Which channels and tokens are convolved by whom, and the state after the last token.

#include "src/engines/rows/short_conv.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

#include "src/engines/rows/operands.h"
#include "src/engines/rows/short_conv_kernel.h"
#include "src/parallel/workers.h"

namespace ttr::rows {
namespace {

constexpr std::int64_t kTokensOfTask = 512;

/// Sequences, and how their tokens are divided into tasks.
class Sequences {
 public:
  Sequences(const ConvCall& call) : call_(call) {
    const std::int64_t count = call.cu_seqlens.empty()
                                   ? call.x.size(0)
                                   : static_cast<std::int64_t>(call.cu_seqlens.size()) - 1;
    first_task_.push_back(0);
    for (std::int64_t n = 0; n < count; ++n) {
      const std::int64_t tasks = (Tokens(n) + kTokensOfTask - 1) / kTokensOfTask;
      first_task_.push_back(first_task_.back() + tasks);
    }
  }

  std::int64_t count() const { return static_cast<std::int64_t>(first_task_.size()) - 1; }
  std::int64_t tasks() const { return first_task_.back(); }
  std::int64_t Batch(std::int64_t n) const { return call_.cu_seqlens.empty() ? n : 0; }
  std::int64_t First(std::int64_t n) const {
    return call_.cu_seqlens.empty() ? 0 : call_.cu_seqlens[static_cast<std::size_t>(n)];
  }
  std::int64_t Tokens(std::int64_t n) const {
    return call_.cu_seqlens.empty() ? call_.x.size(1)
                                    : call_.cu_seqlens[static_cast<std::size_t>(n) + 1] - First(n);
  }

  struct Part {
    std::int64_t sequence, begin;
  };
  Part OfTask(std::int64_t task) const {
    const auto after = std::upper_bound(first_task_.begin(), first_task_.end(), task);
    const std::int64_t n = after - first_task_.begin() - 1;
    return {n, (task - first_task_[static_cast<std::size_t>(n)]) * kTokensOfTask};
  }

 private:
  const ConvCall& call_;
  std::vector<std::int64_t> first_task_;
};

struct Work {
  const ConvCall& call;
  const TensorView& state;
  const TensorView& y;

  Sequences sequences{call};
  std::int64_t heads = call.x.size(2), dim = call.x.size(3), width = call.weight.size(2);
  DType arithmetic = ArithmeticOf(call.x);
  Parameter bias{call.bias, arithmetic};

  /// What a task has besides its gradients.
  ConvTask TaskOf(std::int64_t sequence, std::int64_t begin, std::int64_t head) const {
    ConvTask task;
    const std::int64_t batch = sequences.Batch(sequence), first = sequences.First(sequence);
    task.x = RowsOf(call.x, batch, first, head);
    task.y = RowsOf(y, batch, first, head);
    task.state = StateRows(state, sequence, head);
    task.weight =
        call.weight.as<std::byte>() +
        head * call.weight.stride(0) * static_cast<std::int64_t>(SizeOf(call.weight.dtype()));
    task.weight_dtype = call.weight.dtype();
    task.weight_channel_stride = call.weight.stride(1);
    task.weight_step_stride = call.weight.stride(2);
    task.bias = bias.OfHead(head);
    task.tokens = sequences.Tokens(sequence);
    task.begin = begin;
    task.end = std::min(task.tokens, begin + kTokensOfTask);
    task.dim = dim;
    task.width = width;
    task.silu = call.silu;
    return task;
  }

  simd::Rows StateRows(const TensorView& view, std::int64_t sequence, std::int64_t head) const {
    return width == 1 ? simd::Rows() : RowsOf(view, sequence, 0, head);
  }

  /// run(task number, head, task) for all tasks and heads.
  template <class Run>
  void ForTasks(Executor& executor, bool backward, const Run& run) const {
    const std::int64_t items = sequences.tasks() * heads;
    if (items == 0) return;
    const std::int64_t bytes = call.x.shape().elements() * 4;
    const int threads = bytes >= kBytesWorthThreads ? executor.threads() : 1;
    const int workers = static_cast<int>(std::min<std::int64_t>(threads, items));
    const std::int64_t numbers = ConvScratch(dim, width, backward);
    const Tensor scratch(arithmetic, {workers, numbers});
    RunOnWorkers(executor, workers, items, [&](std::int64_t item, int worker) {
      const std::int64_t number = item / heads;
      const std::int64_t head = item - number * heads;
      const Sequences::Part part = sequences.OfTask(number);
      ConvTask task = TaskOf(part.sequence, part.begin, head);
      task.scratch = static_cast<std::byte*>(scratch.data()) +
                     worker * numbers * static_cast<std::int64_t>(SizeOf(arithmetic));
      run(number, head, part.sequence, task);
    });
  }
};

/// The last W - 1 inputs of every sequence.
void LeaveState(const Work& work) {
  const Tensor row(work.arithmetic, {work.dim});
  for (std::int64_t n = 0; n < work.sequences.count(); ++n) {
    for (std::int64_t h = 0; h < work.heads; ++h) {
      ConvTask task = work.TaskOf(n, 0, h);
      task.scratch = row.data();
      RunConvState(work.arithmetic, task);
    }
  }
}

/// dweight as [H, W, D]: the order in which its sums lie.
TensorView StepsFirst(const TensorView& dweight) {
  if (!dweight.defined()) return {};
  const std::array<std::int64_t, 3> strides = {dweight.stride(0), dweight.stride(2),
                                               dweight.stride(1)};
  return {dweight.data(), dweight.dtype(), Shape{dweight.size(0), dweight.size(2), dweight.size(1)},
          strides};
}

}  // namespace

void Convolve(const ConvCall& call, const TensorView& state, const TensorView& y,
              Executor& executor) {
  const Work work{call, state, y};
  const DType arithmetic = work.arithmetic;
  work.ForTasks(executor, false,
                [arithmetic](std::int64_t, std::int64_t, std::int64_t, const ConvTask& task) {
                  RunConv(arithmetic, task);
                });
  if (state.defined() && work.width > 1) LeaveState(work);
}

void ConvolveGradient(const ConvCall& call, const TensorView& initial, const TensorView& dy,
                      const TensorView& dfinal, const ConvGradients& gradients,
                      Executor& executor) {
  const Work work{call, initial, dy};
  const PartialSums dweight(StepsFirst(gradients.dweight), work.arithmetic, work.heads,
                            work.sequences.tasks());
  const PartialSums dbias(gradients.dbias, work.arithmetic, work.heads, work.sequences.tasks());
  work.ForTasks(
      executor, true, [&](std::int64_t number, std::int64_t head, std::int64_t n, ConvTask& task) {
        task.dx = RowsOf(gradients.dx, work.sequences.Batch(n), work.sequences.First(n), head);
        task.dinitial = work.StateRows(gradients.dinitial, n, head);
        task.dfinal = work.StateRows(dfinal, n, head);
        task.dweight = dweight.Of(head, number);
        task.dbias = dbias.Of(head, number);
        RunConvGradient(work.arithmetic, task);
      });
  dweight.Write();
  dbias.Write();
  // A sequence without tokens hands its state on.
  if (!gradients.dinitial.defined() || work.width == 1) return;
  for (std::int64_t n = 0; n < work.sequences.count(); ++n) {
    if (work.sequences.Tokens(n) > 0) continue;
    const TensorView to = gradients.dinitial.Slice(0, n, 1);
    CopyInto(dfinal.defined() ? dfinal.Slice(0, n, 1) : Tensor(to.dtype(), to.shape()).view(), to);
  }
}

}  // namespace ttr::rows
