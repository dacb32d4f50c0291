// Which rows are mapped by whom: heads and ranges of tokens become tasks.

#include "src/engines/rows/features.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "src/engines/rows/features_kernel.h"
#include "src/engines/rows/operands.h"
#include "src/parallel/workers.h"

namespace ttr::rows {
namespace {

constexpr std::int64_t kTokensOfTask = 128;
/// Of a task that sums gradients of weights: each has a sum of its own.
constexpr std::int64_t kTokensOfSum = 1024;

struct Work {
  const FeatureOptions& options;
  const FeatureCall& call;
  const TensorView& y;
  const FeatureGradients& gradients;
  std::int64_t tokens_of_task;

  std::int64_t batch = call.x.size(0), tokens = call.x.size(1), heads = call.x.size(2),
               dim = call.x.size(3);
  std::int64_t features = call.w.defined() ? call.w.size(1) : 0;
  std::int64_t blocks = (tokens + tokens_of_task - 1) / tokens_of_task;
  DType arithmetic = ArithmeticOf(call.x);
  Parameter w{call.w, arithmetic}, b{call.b, arithmetic};
  PartialSums dw{gradients.dw, arithmetic, heads, batch* blocks};
  PartialSums db{gradients.db, arithmetic, heads, batch* blocks};

  std::int64_t PositionOf(std::int64_t sequence) const {
    return call.positions.empty() ? 0 : call.positions[static_cast<std::size_t>(sequence)];
  }

  /// Calls run(first, count, position) for the pieces of [begin, end) whose positions follow each
  /// other.
  template <class Run>
  void ForRuns(std::int64_t n, std::int64_t begin, std::int64_t end, const Run& run) const {
    if (options.map != Map::kCosformer || call.cu_seqlens.empty()) {
      run(begin, end - begin, PositionOf(n) + begin);
      return;
    }
    const auto bounds = call.cu_seqlens;
    const auto after = std::upper_bound(bounds.begin(), bounds.end(), begin);
    std::int64_t sequence = after - bounds.begin() - 1;
    while (begin < end) {
      const auto s = static_cast<std::size_t>(sequence);
      const std::int64_t stop = std::min(end, bounds[s + 1]);
      if (stop > begin) run(begin, stop - begin, PositionOf(sequence) + begin - bounds[s]);
      begin = stop;
      ++sequence;
    }
  }

  template <class Kernel>
  void Run(Executor& executor, const Kernel& kernel) const {
    const std::int64_t items = batch * blocks * heads;
    if (items == 0) return;
    const std::int64_t phi_dim = y.size(3);
    const bool threads_pay =
        batch * tokens * heads * (dim + phi_dim) * 4 >= kBytesWorthThreads && items > 1;
    const int workers =
        threads_pay ? static_cast<int>(std::min<std::int64_t>(executor.threads(), items)) : 1;
    const Tensor scratch(arithmetic, {workers, 2 * dim + phi_dim});
    RunOnWorkers(executor, workers, items, [&](std::int64_t item, int worker) {
      const std::int64_t head = item % heads;
      const std::int64_t block = item / heads;  // of batch x blocks
      const std::int64_t n = block / blocks;
      const std::int64_t begin = (block - n * blocks) * tokens_of_task;
      FeatureTask task;
      task.w = w.OfHead(head);
      task.b = b.OfHead(head);
      task.dw = dw.Of(head, block);
      task.db = db.Of(head, block);
      task.dim = dim;
      task.features = features;
      task.phi_dim = phi_dim;
      task.scratch = static_cast<std::byte*>(scratch.data()) +
                     worker * (2 * dim + phi_dim) * static_cast<std::int64_t>(SizeOf(arithmetic));
      ForRuns(n, begin, std::min(tokens, begin + tokens_of_task),
              [&](std::int64_t first, std::int64_t count, std::int64_t position) {
                task.x = RowsOf(call.x, n, first, head);
                task.y = RowsOf(y, n, first, head);
                task.dx = RowsOf(gradients.dx, n, first, head);
                task.tokens = count;
                task.position = position;
                kernel(arithmetic, options, task);
              });
    });
  }
};

}  // namespace

void MapFeatures(const FeatureOptions& options, const FeatureCall& call, const TensorView& y,
                 Executor& executor) {
  Work{options, call, y, {}, kTokensOfTask}.Run(executor, RunFeatures);
}

void MapFeaturesGradient(const FeatureOptions& options, const FeatureCall& call,
                         const TensorView& dy, const FeatureGradients& gradients,
                         Executor& executor) {
  const bool sums = gradients.dw.defined() || gradients.db.defined();
  const Work work{options, call, dy, gradients, sums ? kTokensOfSum : kTokensOfTask};
  work.Run(executor, RunFeaturesGradient);
  work.dw.Write();
  work.db.Write();
}

}  // namespace ttr::rows
