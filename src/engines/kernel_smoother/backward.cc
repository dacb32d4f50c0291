// The backward pass: memories, or blocks of them, become tasks of workers.

#include "src/engines/kernel_smoother/backward.h"

#include <algorithm>

#include "src/engines/common/pair_pass.h"
#include "src/engines/kernel_smoother/gradient.h"
#include "src/engines/kernel_smoother/saved.h"
#include "src/engines/kernel_smoother/work.h"

namespace ttr::kernel_smoother {
namespace {

std::int64_t QueryStride(const Sizes& sizes) {
  const std::int64_t width = linalg::RoundUp(sizes.key_dim, kUnit) + kUnit;
  return sizes.dtype == DType::kFloat64 ? linalg::StrideOf<double>(width)
                                        : linalg::StrideOf<float>(width);
}

struct Backwards {
  using Work = kernel_smoother::Work;
  using Gradient = MemoryGradient;

  static std::size_t WeightBytes(const Sizes& sizes) { return BytesOfWeights(sizes); }

  static std::size_t WorkerBytes(const Sizes& sizes) {
    const std::int64_t keys = sizes.key_dim, values = sizes.value_dim;
    return std::max(common::ScratchBytesOf<Scratch>(sizes.dtype, keys, values),
                    common::ScratchBytesOf<GradientScratch>(sizes.dtype, keys, values));
  }

  /// Sums of whole blocks of queries.
  static void TakeSums(const Sizes& sizes, ScratchLayout& layout, MemoryGradient& g) {
    const std::int64_t rows = common::RoundUp(sizes.tokens * sizes.queries, kQueries);
    const auto size = static_cast<std::int64_t>(SizeOf(sizes.dtype));
    g.sums.logs = layout.TakeBytes(rows * size);
    g.sums.dots = layout.TakeBytes(rows * size);
    g.sums.hits = layout.TakeBytes(rows * size);
    g.queries = layout.TakeBytes(rows * QueryStride(sizes) * size);
    layout.Take(rows, {&g.query_sums, &g.width_sums});
    g.pair_sums = layout.Take<double>(sizes.tokens);
  }
};

/// One call.
class Pass : public common::PairPass<Backwards> {
 public:
  using PairPass::PairPass;

  void RunAll() const {
    const std::int64_t memories = work().memories();
    if (work().sizes.weighted) {
      Run(memories, [&](std::int64_t item, std::byte*) { WeighPairs(MemoryOf(item)); });
    }
    Run(work().tasks(), [&](std::int64_t item, std::byte* own) {
      Sum(item % memories, item / memories * kQueries, own);
    });
    // A memory is one task where these employ all threads, else each of its blocks is one: the
    // same sums, for two products more.
    if (memories >= workers()) {
      Run(memories, [&](std::int64_t item, std::byte* own) {
        Differentiate(item, Products::kWhole, 0, own);
      });
    } else {
      RunBlocks();
    }
    Run(memories, [&](std::int64_t item, std::byte*) {
      const Memory memory = MemoryOf(item);
      const MemoryGradient gradient = GradientOf(item);
      FinishWeights({.options = work().options, .memory = memory, .gradient = gradient});
    });
  }

  MemoryGradient GradientOf(std::int64_t item) const {
    MemoryGradient gradient = PairPass::GradientOf(item);
    if (const Saved saved(work()); saved) gradient.sums.logs = saved.Logs(item);
    return gradient;
  }

 private:
  void RunBlocks() const {
    const std::int64_t memories = work().memories();
    const std::int64_t pairs = PairsOfBlock(work().sizes.key_dim, work().sizes.value_dim);
    const std::int64_t pair_blocks = common::CeilDiv(MostPairs(), pairs);
    Run(memories * (pair_blocks + work().blocks), [&](std::int64_t item, std::byte* own) {
      const std::int64_t memory = item % memories, block = item / memories;
      if (block < pair_blocks) {
        Differentiate(memory, Products::kPairBlock, block * pairs, own);
      } else {
        Differentiate(memory, Products::kQueryBlock, (block - pair_blocks) * kQueries, own);
      }
    });
  }

  void Sum(std::int64_t item, std::int64_t first, std::byte* own) const {
    Memory memory = MemoryOf(item);
    if (first >= memory.rows) return;
    const MemoryGradient gradient = GradientOf(item);
    const Saved saved(work());
    if (saved) {
      TakeSums({.options = work().options,
                .memory = memory,
                .gradient = gradient,
                .first = first,
                .scratch = own},
               saved.Means(item), work().sizes.dtype);
      return;
    }
    memory.y = memory.status = {};
    ComputeOutputs({.options = work().options,
                    .memory = memory,
                    .first = first,
                    .count = std::min(kQueries, memory.rows - first),
                    .scratch = own,
                    .saved = {.logs = gradient.sums.logs,
                              .dots = gradient.sums.dots,
                              .hits = gradient.sums.hits,
                              .dy = gradient.dy}},
                   work().sizes.dtype);
  }

  void Differentiate(std::int64_t item, Products products, std::int64_t first,
                     std::byte* own) const {
    const Memory memory = MemoryOf(item);
    const std::int64_t end = products == Products::kQueryBlock
                                 ? memory.rows
                                 : memory.visible.held + memory.visible.tokens;
    if (products != Products::kWhole && first >= end) return;
    const MemoryGradient gradient = GradientOf(item);
    kernel_smoother::Differentiate({.options = work().options,
                                    .memory = memory,
                                    .gradient = gradient,
                                    .products = products,
                                    .first = first,
                                    .scratch = own},
                                   work().sizes.dtype);
  }
};

}  // namespace

std::size_t BackwardScratchBytes(const Sizes& sizes, int threads) {
  return Pass::ScratchBytes(sizes, threads);
}

void Backward(const Options& options, const Call& call, const TensorView& dy,
              const common::FinalPairGradients& final, const common::PairGradientTensors& gradients,
              Executor& executor, std::span<std::byte> scratch) {
  const Work work(options, call);
  if (work.memories() == 0) return;
  const std::int64_t most = work.memories() * (2 * work.blocks + 1);
  Pass("kernel_smoother", work, {dy, final, gradients}, executor, scratch, most).RunAll();
}

}  // namespace ttr::kernel_smoother
