#include "src/engines/rows/gates.h"

#include <algorithm>

#include "src/engines/rows/gates_kernel.h"
#include "src/engines/rows/operands.h"

namespace ttr::rows {
namespace {

/// Few tokens, so that the next head's rows, beside those of this one, find their pages known.
constexpr std::int64_t kNumbersOfTask = 1 << 11;
/// More where tasks sum gradients of parameters: each has sums of its own.
constexpr std::int64_t kNumbersOfSum = 1 << 17;

/// Rows may be short: some heads, or many channels.
std::int64_t TokensOfTask(const TensorView& rows, bool sums) {
  return std::clamp<std::int64_t>((sums ? kNumbersOfSum : kNumbersOfTask) / rows.size(3), 16, 4096);
}

/// A parameter with its gradient, cut into heads and tasks.
class GateParameter {
 public:
  GateParameter(const TensorView& given, const TensorView& gradient, DType arithmetic,
                const RowBlocks& blocks)
      : one_(given.rank() == 1),
        given_(given, arithmetic),
        sums_(gradient, arithmetic, blocks.heads, blocks.count()) {}

  HeadParameter Of(const RowBlock& block) const {
    return {given_.OfHead(block.head), sums_.Of(block.head, block.number), one_};
  }
  void Write() const { sums_.Write(); }

 private:
  bool one_;
  Parameter given_;
  ParameterSums sums_;
};

struct SoftplusWork {
  const SoftplusCall& call;
  const TensorView& y;
  const SoftplusGradients& gradients;

  DType arithmetic = ArithmeticOf(call.x);
  RowBlocks blocks{call.x,
                   TokensOfTask(call.x, gradients.da.defined() || gradients.dbias.defined())};
  GateParameter a{call.a, gradients.da, arithmetic, blocks};
  GateParameter bias{call.bias, gradients.dbias, arithmetic, blocks};

  template <class Kernel>
  void Run(Executor& executor, const Kernel& kernel) const {
    const std::int64_t bytes = call.x.shape().elements() * 4, dim = call.x.size(3);
    blocks.Run(executor, bytes, arithmetic, kGateScratch * dim, {}, [&](const RowBlock& block) {
      const auto rows = [&](const TensorView& view) {
        return common::RowsOf(view, block.batch, block.begin, block.head);
      };
      SoftplusTask task;
      task.x = rows(call.x);
      task.y = rows(y);
      task.dx = rows(gradients.dx);
      task.a = a.Of(block);
      task.bias = bias.Of(block);
      task.low = call.low;
      task.high = call.high;
      task.tokens = block.end - block.begin;
      task.dim = dim;
      task.scratch = block.scratch;
      kernel(arithmetic, task);
    });
  }
};

struct SkipWork {
  const SkipCall& call;
  const TensorView& out;
  const SkipGradients& gradients;

  DType arithmetic = ArithmeticOf(call.y);
  RowBlocks blocks{call.y, TokensOfTask(call.y, gradients.dd.defined())};
  GateParameter d{call.d, gradients.dd, arithmetic, blocks};

  template <class Kernel>
  void Run(Executor& executor, const Kernel& kernel) const {
    const std::int64_t bytes = call.y.shape().elements() * 4, dim = call.y.size(3);
    blocks.Run(executor, bytes, arithmetic, kGateScratch * dim, {}, [&](const RowBlock& block) {
      const auto rows = [&](const TensorView& view) {
        return common::RowsOf(view, block.batch, block.begin, block.head);
      };
      SkipTask task;
      task.y = rows(call.y);
      task.x = rows(call.x);
      task.z = rows(call.z);
      task.out = rows(out);
      task.dy = rows(gradients.dy);
      task.dx = rows(gradients.dx);
      task.dz = rows(gradients.dz);
      task.d = d.Of(block);
      task.tokens = block.end - block.begin;
      task.dim = dim;
      task.scratch = block.scratch;
      kernel(arithmetic, task);
    });
  }
};

}  // namespace

void Softplus(const SoftplusCall& call, const TensorView& y, Executor& executor) {
  SoftplusWork{call, y, {}}.Run(executor, RunSoftplus);
}

void SoftplusGradient(const SoftplusCall& call, const TensorView& dy,
                      const SoftplusGradients& gradients, Executor& executor) {
  const SoftplusWork work{call, dy, gradients};
  work.Run(executor, RunSoftplusGradient);
  work.a.Write();
  work.bias.Write();
}

void Skip(const SkipCall& call, const TensorView& out, Executor& executor) {
  SkipWork{call, out, {}}.Run(executor, RunSkip);
}

void SkipGradient(const SkipCall& call, const TensorView& dout, const SkipGradients& gradients,
                  Executor& executor) {
  const SkipWork work{call, dout, gradients};
  work.Run(executor, RunSkipGradient);
  work.d.Write();
}

}  // namespace ttr::rows
