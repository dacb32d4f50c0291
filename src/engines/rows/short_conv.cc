// Short convolutions: channels and tokens become tasks of workers; the state after the last token.

#include "src/engines/rows/short_conv.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <type_traits>
#include <vector>

#include "src/engines/common/sequences.h"
#include "src/engines/rows/operands.h"
#include "src/engines/rows/short_conv_kernel.h"

namespace ttr::rows {
namespace {

constexpr std::int64_t kTokensOfTask = 512;
/// Many channels of one head are several tasks, whose rows stay in the first-level cache.
constexpr std::int64_t kChannelsOfTask = 512;

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

/// Channels of one head.
struct Channels {
  std::int64_t head, begin, count;
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

  std::int64_t blocks_of_head = common::CeilDiv(dim, kChannelsOfTask);

  Channels ChannelsOf(std::int64_t number) const {
    const std::int64_t head = number / blocks_of_head;
    const std::int64_t begin = (number - head * blocks_of_head) * kChannelsOfTask;
    return {head, begin, std::min(kChannelsOfTask, dim - begin)};
  }

  /// What a task has besides its gradients.
  ConvTask TaskOf(std::int64_t n, std::int64_t begin, const Channels& channels) const {
    const common::Sequence sequence = sequences[n];
    const TensorView& weight = call.weight;
    ConvTask task;
    task.x = common::RowsOf(call.x, sequence, channels.head, channels.begin);
    task.y = common::RowsOf(y, sequence, channels.head, channels.begin);
    task.state = StateOf(state, n, channels);
    task.weight = {common::ElementOf(weight, channels.head * weight.stride(0) +
                                                 channels.begin * weight.stride(1)),
                   weight.dtype(), width, weight.stride(2), weight.stride(1)};
    task.bias = From(bias.OfHead(channels.head), channels);
    task.tokens = sequence.tokens;
    task.begin = begin;
    task.end = std::min(task.tokens, begin + kTokensOfTask);
    task.dim = channels.count;
    task.width = width;
    task.silu = call.silu;
    return task;
  }

  /// Is a sequence of so many tokens one for RunConvToken()?
  bool IsToken(std::int64_t tokens) const {
    return tokens == 1 && state.defined() && state.size(1) > 0 && state.size(1) <= kMaxTokenRows &&
           SizeOf(state.dtype()) <= SizeOf(arithmetic);
  }

  static ConvColumns StateOf(const TensorView& view, std::int64_t n, const Channels& channels) {
    if (!view.defined()) return {};
    const std::int64_t offset =
        n * view.stride(0) + channels.head * view.stride(2) + channels.begin * view.stride(3);
    return {common::ElementOf(view, offset), view.dtype(), view.size(1), view.stride(1),
            view.stride(3)};
  }

  /// The task's channels in a row of the head's channels.
  template <class Void>
  Void* From(Void* row, const Channels& channels) const {
    using Byte = std::conditional_t<std::is_const_v<Void>, const std::byte, std::byte>;
    const auto size = static_cast<std::int64_t>(SizeOf(arithmetic));
    return row == nullptr ? nullptr : static_cast<Byte*>(row) + channels.begin * size;
  }

  /// run(number of the block, channels, sequence, task) for all blocks and channels.
  template <class Run>
  void ForTasks(Executor& executor, bool backward, const Run& run) const {
    const std::int64_t parts = heads * blocks_of_head;
    const std::int64_t items = blocks.count() * parts;
    if (items == 0) return;
    const bool threads_pay = call.x.shape().elements() * 4 >= common::kBytesWorthThreads;
    const int workers = common::WorkersOf(common::ThreadsFor(executor, threads_pay), items);
    const std::int64_t bytes = ConvScratch(std::min(dim, kChannelsOfTask), width, backward) *
                               static_cast<std::int64_t>(SizeOf(arithmetic));
    const common::WorkerScratch scratch(
        "short_conv", {}, workers,
        static_cast<std::size_t>(common::RoundUp(bytes, common::kLineBytes)));
    scratch.Run(executor, items, [&](std::int64_t item, std::byte* own) {
      const std::int64_t number = item / parts;
      const Channels channels = ChannelsOf(item - number * parts);
      const Blocks::Block block = blocks[number];
      ConvTask task = TaskOf(block.sequence, block.begin, channels);
      task.scratch = own;
      run(number, channels, block.sequence, task);
    });
  }
};

/// The last inputs of every sequence, but where its token has left them.
void LeaveState(const Work& work) {
  const Tensor row(work.arithmetic, {std::min(work.dim, kChannelsOfTask)});
  for (std::int64_t n = 0; n < work.sequences.count(); ++n) {
    if (work.IsToken(work.sequences[n].tokens)) continue;
    for (std::int64_t part = 0; part < work.heads * work.blocks_of_head; ++part) {
      ConvTask task = work.TaskOf(n, 0, work.ChannelsOf(part));
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
                [&](std::int64_t, const Channels&, std::int64_t, const ConvTask& task) {
                  if (work.IsToken(task.tokens)) {
                    RunConvToken(work.arithmetic, task);
                  } else {
                    RunConv(work.arithmetic, task);
                  }
                });
  if (state.defined()) LeaveState(work);
}

void ConvolveGradient(const ConvCall& call, const TensorView& initial, const TensorView& dy,
                      const TensorView& dfinal, const ConvGradients& gradients,
                      Executor& executor) {
  const Work work{call, initial, dy};
  const ParameterSums dweight(StepsFirst(gradients.dweight), work.arithmetic, work.heads,
                              work.blocks.count());
  const ParameterSums dbias(gradients.dbias, work.arithmetic, work.heads, work.blocks.count());
  work.ForTasks(
      executor, true, [&](std::int64_t number, const Channels& c, std::int64_t n, ConvTask& task) {
        task.gradients = {common::RowsOf(gradients.dx, work.sequences[n], c.head, c.begin),
                          Work::StateOf(gradients.dinitial, n, c),
                          Work::StateOf(dfinal, n, c),
                          work.From(dweight.Of(c.head, number), c),
                          work.dim,
                          work.From(dbias.Of(c.head, number), c)};
        RunConvGradient(work.arithmetic, task);
      });
  dweight.Write();
  dbias.Write();
  // A sequence without tokens hands its state on.
  if (!gradients.dinitial.defined()) return;
  for (std::int64_t n = 0; n < work.sequences.count(); ++n) {
    if (work.sequences[n].tokens > 0) continue;
    const TensorView to = gradients.dinitial.Slice(0, n, 1);
    CopyInto(dfinal.defined() ? dfinal.Slice(0, n, 1) : Tensor(to.dtype(), to.shape()).view(), to);
  }
}

}  // namespace ttr::rows
