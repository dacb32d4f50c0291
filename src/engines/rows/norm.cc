// Norms of rows: heads and ranges of tokens become tasks.

#include "src/engines/rows/norm.h"

#include "src/engines/rows/norm_kernel.h"
#include "src/engines/rows/operands.h"

namespace ttr::rows {
namespace {

constexpr std::int64_t kTokensOfTask = 128;
/// Tokens of a task that sums gradients of parameters. They are many, as each task has sums of its
/// own.
constexpr std::int64_t kTokensOfSum = 1024;

struct Work {
  const NormCall& call;
  const TensorView& y;
  const NormGradients& gradients;
  std::int64_t tokens_of_task;

  DType arithmetic = ArithmeticOf(call.x);
  RowBlocks blocks{call.x, tokens_of_task};
  Parameter weight{call.weight, arithmetic}, bias{call.bias, arithmetic};
  ParameterSums dweight{gradients.dweight, arithmetic, blocks.heads, blocks.count()};
  ParameterSums dbias{gradients.dbias, arithmetic, blocks.heads, blocks.count()};

  template <class Kernel>
  void Run(Executor& executor, std::span<std::byte> scratch, const Kernel& kernel) const {
    const std::int64_t bytes = call.x.shape().elements() * 4, dim = call.x.size(3);
    blocks.Run(executor, bytes, arithmetic, kNormScratch * dim, scratch,
               [&](const RowBlock& block) {
                 const auto rows = [&](const TensorView& view) {
                   return common::RowsOf(view, block.batch, block.begin, block.head);
                 };
                 NormTask task;
                 task.kind = call.kind;
                 task.eps = call.eps;
                 task.gate_kind = call.gate_kind;
                 task.gate_first = call.gate_first;
                 task.x = rows(call.x);
                 task.gate = rows(call.gate);
                 task.y = rows(y);
                 task.dx = rows(gradients.dx);
                 task.dgate = rows(gradients.dgate);
                 task.weight = weight.OfHead(block.head);
                 task.bias = bias.OfHead(block.head);
                 task.dweight = dweight.Of(block.head, block.number);
                 task.dbias = dbias.Of(block.head, block.number);
                 task.tokens = block.end - block.begin;
                 task.dim = dim;
                 task.scratch = block.scratch;
                 kernel(arithmetic, task);
               });
  }
};

}  // namespace

std::size_t NormScratchBytes(std::int64_t dim, int threads) {
  return common::WorkerScratch::Bytes(threads, BytesOf(kNormScratch * dim, DType::kFloat64));
}

void Normalise(const NormCall& call, const TensorView& y, Executor& executor,
               std::span<std::byte> scratch) {
  Work{call, y, {}, kTokensOfTask}.Run(executor, scratch, RunNorm);
}

void NormaliseGradient(const NormCall& call, const TensorView& dy, const NormGradients& gradients,
                       Executor& executor) {
  const bool sums = gradients.dweight.defined() || gradients.dbias.defined();
  const Work work{call, dy, gradients, sums ? kTokensOfSum : kTokensOfTask};
  work.Run(executor, {}, RunNormGradient);
  work.dweight.Write();
  work.dbias.Write();
}

}  // namespace ttr::rows
