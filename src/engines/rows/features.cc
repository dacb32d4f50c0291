// Feature maps of rows: heads and ranges of tokens become tasks.

#include "src/engines/rows/features.h"

#include <algorithm>

#include "src/engines/rows/features_kernel.h"
#include "src/engines/rows/operands.h"

namespace ttr::rows {
namespace {

constexpr std::int64_t kTokensOfTask = 128;
/// Tokens of a task that sums gradients of weights. They are many, as each task has sums of its
/// own.
constexpr std::int64_t kTokensOfSum = 1024;

std::int64_t ScratchNumbers(std::int64_t dim, std::int64_t phi_dim) { return 2 * dim + phi_dim; }

struct Work {
  const FeatureOptions& options;
  const FeatureCall& call;
  const TensorView& y;
  const FeatureGradients& gradients;
  std::int64_t tokens_of_task;

  DType arithmetic = ArithmeticOf(call.x);
  RowBlocks blocks{call.x, tokens_of_task};
  Parameter w{call.w, arithmetic}, b{call.b, arithmetic};
  ParameterSums dw{gradients.dw, arithmetic, blocks.heads, blocks.count()};
  ParameterSums db{gradients.db, arithmetic, blocks.heads, blocks.count()};

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
  void Run(Executor& executor, std::span<std::byte> scratch, const Kernel& kernel) const {
    const std::int64_t dim = call.x.size(3), phi_dim = y.size(3);
    const std::int64_t bytes = blocks.batch * blocks.tokens * blocks.heads * (dim + phi_dim) * 4;
    const std::int64_t numbers = ScratchNumbers(dim, phi_dim);
    blocks.Run(executor, bytes, arithmetic, numbers, scratch, [&](const RowBlock& block) {
      FeatureTask task;
      task.w = w.OfHead(block.head);
      task.b = b.OfHead(block.head);
      task.dw = dw.Of(block.head, block.number);
      task.db = db.Of(block.head, block.number);
      task.dim = dim;
      task.features = call.w.defined() ? call.w.size(1) : 0;
      task.phi_dim = phi_dim;
      task.scratch = block.scratch;
      ForRuns(block.batch, block.begin, block.end,
              [&](std::int64_t first, std::int64_t count, std::int64_t position) {
                task.x = common::RowsOf(call.x, block.batch, first, block.head);
                task.y = common::RowsOf(y, block.batch, first, block.head);
                task.dx = common::RowsOf(gradients.dx, block.batch, first, block.head);
                task.tokens = count;
                task.position = position;
                kernel(arithmetic, options, task);
              });
    });
  }
};

}  // namespace

std::size_t FeatureScratchBytes(std::int64_t dim, std::int64_t phi_dim, int threads) {
  return common::WorkerScratch::Bytes(threads,
                                      BytesOf(ScratchNumbers(dim, phi_dim), DType::kFloat64));
}

void MapFeatures(const FeatureOptions& options, const FeatureCall& call, const TensorView& y,
                 Executor& executor, std::span<std::byte> scratch) {
  Work{options, call, y, {}, kTokensOfTask}.Run(executor, scratch, RunFeatures);
}

void MapFeaturesGradient(const FeatureOptions& options, const FeatureCall& call,
                         const TensorView& dy, const FeatureGradients& gradients,
                         Executor& executor) {
  const bool sums = gradients.dw.defined() || gradients.db.defined();
  const Work work{options, call, dy, gradients, sums ? kTokensOfSum : kTokensOfTask};
  work.Run(executor, {}, RunFeaturesGradient);
  work.dw.Write();
  work.db.Write();
}

}  // namespace ttr::rows
