// Which channels and tokens are convolved by whom, and the state after the last token.

#include "src/engines/rows/short_conv.h"

#include <algorithm>
#include <array>
#include <vector>

#include "src/engines/common/sequences.h"
#include "src/engines/rows/operands.h"
#include "src/engines/rows/short_conv_kernel.h"

namespace ttr::rows {
namespace {

constexpr std::int64_t kTokensOfTask = 512;

/// Tokens of sequences in blocks.
class Blocks {
 public:
  explicit Blocks(const common::Sequences& sequences) : first_block_{0} {
    for (std::int64_t n = 0; n < sequences.count(); ++n) {
      first_block_.push_back(first_block_.back() +
                             common::CeilDiv(sequences[n].tokens, kTokensOfTask));
    }
  }

  std::int64_t count() const { return first_block_.back(); }

  struct Block {
    std::int64_t sequence, begin;
  };
  Block operator[](std::int64_t number) const {
    const auto after = std::upper_bound(first_block_.begin(), first_block_.end(), number);
    const std::int64_t n = after - first_block_.begin() - 1;
    return {n, (number - first_block_[static_cast<std::size_t>(n)]) * kTokensOfTask};
  }

 private:
  std::vector<std::int64_t> first_block_;
};

struct Work {
  const ConvCall& call;
  const TensorView& state;
  const TensorView& y;

  common::Sequences sequences{call.cu_seqlens, call.x.size(0), call.x.size(1)};
  Blocks blocks{sequences};
  std::int64_t heads = call.x.size(2), dim = call.x.size(3), width = call.weight.size(2);
  DType arithmetic = ArithmeticOf(call.x);
  Parameter bias{call.bias, arithmetic};

  /// What a task has besides its gradients.
  ConvTask TaskOf(std::int64_t n, std::int64_t begin, std::int64_t head) const {
    const common::Sequence sequence = sequences[n];
    ConvTask task;
    task.x = common::RowsOf(call.x, sequence, head);
    task.y = common::RowsOf(y, sequence, head);
    task.state = StateRows(state, n, head);
    task.weight = {common::ElementOf(call.weight, head * call.weight.stride(0)),
                   call.weight.dtype(), call.weight.stride(1), call.weight.stride(2)};
    task.bias = bias.OfHead(head);
    task.tokens = sequence.tokens;
    task.begin = begin;
    task.end = std::min(task.tokens, begin + kTokensOfTask);
    task.dim = dim;
    task.width = width;
    task.silu = call.silu;
    return task;
  }

  simd::Rows StateRows(const TensorView& view, std::int64_t sequence, std::int64_t head) const {
    return width == 1 ? simd::Rows() : common::RowsOf(view, sequence, 0, head);
  }

  /// run(number of the block, head, sequence, task) for all blocks and heads.
  template <class Run>
  void ForTasks(Executor& executor, bool backward, const Run& run) const {
    const std::int64_t items = blocks.count() * heads;
    if (items == 0) return;
    const bool threads_pay = call.x.shape().elements() * 4 >= common::kBytesWorthThreads;
    const int workers = common::WorkersOf(common::ThreadsFor(executor, threads_pay), items);
    const std::int64_t bytes =
        ConvScratch(dim, width, backward) * static_cast<std::int64_t>(SizeOf(arithmetic));
    const common::WorkerScratch scratch(
        "short_conv", {}, workers,
        static_cast<std::size_t>(common::RoundUp(bytes, common::kLineBytes)));
    scratch.Run(executor, items, [&](std::int64_t item, std::byte* own) {
      const std::int64_t number = item / heads;
      const std::int64_t head = item - number * heads;
      const Blocks::Block block = blocks[number];
      ConvTask task = TaskOf(block.sequence, block.begin, head);
      task.scratch = own;
      run(number, head, block.sequence, task);
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

/// dweight as [H, W, D]: the order of its sums.
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
  work.ForTasks(executor, false,
                [&](std::int64_t, std::int64_t, std::int64_t, const ConvTask& task) {
                  RunConv(work.arithmetic, task);
                });
  if (state.defined() && work.width > 1) LeaveState(work);
}

void ConvolveGradient(const ConvCall& call, const TensorView& initial, const TensorView& dy,
                      const TensorView& dfinal, const ConvGradients& gradients,
                      Executor& executor) {
  const Work work{call, initial, dy};
  const ParameterSums dweight(StepsFirst(gradients.dweight), work.arithmetic, work.heads,
                              work.blocks.count());
  const ParameterSums dbias(gradients.dbias, work.arithmetic, work.heads, work.blocks.count());
  work.ForTasks(executor, true,
                [&](std::int64_t number, std::int64_t head, std::int64_t n, ConvTask& task) {
                  task.gradients = {common::RowsOf(gradients.dx, work.sequences[n], head),
                                    work.StateRows(gradients.dinitial, n, head),
                                    work.StateRows(dfinal, n, head), dweight.Of(head, number),
                                    dbias.Of(head, number)};
                  RunConvGradient(work.arithmetic, task);
                });
  dweight.Write();
  dbias.Write();
  // A sequence without tokens hands its state on.
  if (!gradients.dinitial.defined() || work.width == 1) return;
  for (std::int64_t n = 0; n < work.sequences.count(); ++n) {
    if (work.sequences[n].tokens > 0) continue;
    const TensorView to = gradients.dinitial.Slice(0, n, 1);
    CopyInto(dfinal.defined() ? dfinal.Slice(0, n, 1) : Tensor(to.dtype(), to.shape()).view(), to);
  }
}

}  // namespace ttr::rows
