// The backward pass: memories become tasks of workers.

#include "src/engines/scan/backward.h"

#include <algorithm>

#include "src/engines/common/row_views.h"
#include "src/engines/scan/matrix/sums.h"
#include "src/engines/scan/matrix/task.h"
#include "src/engines/scan/vector/task.h"
#include "src/engines/scan/work.h"

namespace ttr::scan {
namespace {

using common::Sequence;
using common::Task;

GradientSizes SizesOf(const Work& work) {
  GradientSizes sizes{.sizes = work.sizes,
                      .heads = work.heads.memories,
                      .value_heads = work.call.v.size(2),
                      .sequences = work.sequences.count(),
                      .tokens = work.sequences.tokens(),
                      .length = work.sequences.length(),
                      .complex = work.saved.complex};
  sizes.sizes.value_dim = work.columns.columns;
  return sizes;
}

std::size_t BytesOfWorker(const GradientSizes& of) {
  Sizes sizes = of.sizes;
  if (sizes.key_dim > 0) {
    return common::ScratchBytesOf<MatrixGradientScratch>(sizes.state, sizes, of.length);
  }
  sizes.value_dim *= of.heads;  // they may be one vector
  return common::ScratchBytesOf<VectorGradientScratch>(sizes.state, sizes, of.length, of.complex);
}

std::size_t BytesOfSums(const GradientSizes& of) {
  return of.sizes.key_dim > 0 ? MatrixSums::Bytes(of) : 0;
}

VectorGradient VectorGradientOf(const Work& work, const Gradients& gradients, std::int64_t item,
                                const TensorView& dstate, const TensorView& dstate_im) {
  VectorGradient g;
  WithTask(work, item, [&](const Task& task, const Sequence& sequence, std::int64_t column) {
    const auto rows = [&](const TensorView& view, std::int64_t from) {
      return common::RowsOf(view, sequence, task.head, from);
    };
    g.dy = rows(work.call.y, column);
    g.dv = rows(gradients.v, column);
    g.dv_im = rows(gradients.v_im, column);
    g.dphase = rows(gradients.phase, column);
    const bool one_gate = gradients.log_decay.defined() && gradients.log_decay.rank() == 3;
    (one_gate ? g.dgate : g.dlog_decay) = rows(gradients.log_decay, one_gate ? 0 : column);
    g.dimportance = rows(gradients.importance, 0);
    g.dre = common::StateOf(dstate, task.sequence, task.head, column).data;
    g.dim = common::StateOf(dstate_im, task.sequence, task.head, column).data;
  });
  return g;
}

}  // namespace

std::size_t BackwardScratchBytes(const GradientSizes& sizes, int threads) {
  return common::WorkerScratch::Bytes(threads, BytesOfWorker(sizes), BytesOfSums(sizes));
}

void Backward(const Options& options, const Call& call, const GivenGradients& given,
              const Gradients& gradients, Executor& executor, std::span<std::byte> scratch) {
  Call with_dy = call;
  with_dy.y = given.dy;
  const TensorView others[] = {gradients.v, gradients.v_im, gradients.log_decay, gradients.phase};
  Work work(options, with_dy, others);
  if (work.entries() == 0) return;
  const GradientSizes sizes = SizesOf(work);
  if (work.matrix) {
    work.columns.Split(kGroup);
  } else if (!work.shares_gates()) {
    work.Cut(executor.threads());
    work.sizes.value_dim = work.columns.Columns(0);
  }
  const int workers = common::WorkersOf(executor.threads(), work.tasks());
  const common::WorkerScratch room("scan", scratch, workers, BytesOfWorker(sizes),
                                   BytesOfSums(sizes));
  if (!work.matrix) {
    room.Run(executor, work.tasks(), [&](std::int64_t item, std::byte* own) {
      ScanVectorBackward(
          {.options = options,
           .sizes = work.sizes,
           .memory = work.VectorOf(item),
           .gradient = VectorGradientOf(work, gradients, item, given.dstate, given.dstate_im),
           .scratch = own});
    });
    return;
  }
  common::ScratchLayout layout(room.shared());
  const MatrixSums sums(work, given.dy, gradients, layout);
  room.Run(executor, work.tasks(), [&](std::int64_t item, std::byte* own) {
    ScanMatrixBackward({.options = options,
                        .sizes = work.sizes,
                        .memory = work.MatrixOf(item),
                        .next = {},
                        .gradient = sums.Of(item, given.dstate),
                        .scratch = own});
  });
  sums.Store(executor);
}

}  // namespace ttr::scan
