// Which rows are normalised by whom: heads and ranges of tokens become tasks.

#include "src/engines/rows/norm.h"

#include <algorithm>
#include <cstddef>

#include "src/engines/rows/norm_kernel.h"
#include "src/engines/rows/operands.h"
#include "src/parallel/workers.h"

namespace ttr::rows {
namespace {

constexpr std::int64_t kTokensOfTask = 128;
/// Of a task that sums gradients of parameters: each has a sum of its own.
constexpr std::int64_t kTokensOfSum = 1024;

struct Work {
  const NormCall& call;
  const TensorView& y;
  const NormGradients& gradients;
  std::int64_t tokens_of_task;

  std::int64_t batch = call.x.size(0), tokens = call.x.size(1), heads = call.x.size(2),
               dim = call.x.size(3);
  std::int64_t blocks = (tokens + tokens_of_task - 1) / tokens_of_task;
  DType arithmetic = ArithmeticOf(call.x);
  Parameter weight{call.weight, arithmetic}, bias{call.bias, arithmetic};
  PartialSums dweight{gradients.dweight, arithmetic, heads, batch* blocks};
  PartialSums dbias{gradients.dbias, arithmetic, heads, batch* blocks};

  template <class Kernel>
  void Run(Executor& executor, const Kernel& kernel) const {
    const std::int64_t items = batch * blocks * heads;
    if (items == 0) return;
    const bool threads_pay = call.x.shape().elements() * 4 >= kBytesWorthThreads;
    const int workers =
        static_cast<int>(std::min<std::int64_t>(threads_pay ? executor.threads() : 1, items));
    const Tensor scratch(arithmetic, {workers, kNormScratch * dim});
    RunOnWorkers(executor, workers, items, [&](std::int64_t item, int worker) {
      const std::int64_t block = item / heads;  // of batch x blocks
      const std::int64_t head = item - block * heads;
      const std::int64_t n = block / blocks;
      const std::int64_t begin = (block - n * blocks) * tokens_of_task;
      NormTask task;
      task.kind = call.kind;
      task.eps = call.eps;
      task.x = RowsOf(call.x, n, begin, head);
      task.gate = RowsOf(call.gate, n, begin, head);
      task.y = RowsOf(y, n, begin, head);
      task.dx = RowsOf(gradients.dx, n, begin, head);
      task.dgate = RowsOf(gradients.dgate, n, begin, head);
      task.weight = weight.OfHead(head);
      task.bias = bias.OfHead(head);
      task.dweight = dweight.Of(head, block);
      task.dbias = dbias.Of(head, block);
      task.tokens = std::min(tokens - begin, tokens_of_task);
      task.dim = dim;
      task.scratch = static_cast<std::byte*>(scratch.data()) +
                     worker * kNormScratch * dim * static_cast<std::int64_t>(SizeOf(arithmetic));
      kernel(arithmetic, task);
    });
  }
};

}  // namespace

void Normalise(const NormCall& call, const TensorView& y, Executor& executor) {
  Work{call, y, {}, kTokensOfTask}.Run(executor, RunNorm);
}

void NormaliseGradient(const NormCall& call, const TensorView& dy, const NormGradients& gradients,
                       Executor& executor) {
  const bool sums = gradients.dweight.defined() || gradients.dbias.defined();
  const Work work{call, dy, gradients, sums ? kTokensOfSum : kTokensOfTask};
  work.Run(executor, RunNormGradient);
  work.dweight.Write();
  work.dbias.Write();
}

}  // namespace ttr::rows
