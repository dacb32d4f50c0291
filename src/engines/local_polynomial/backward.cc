// The backward pass: blocks of queries, then of pairs, become tasks of workers.

#include "src/engines/local_polynomial/backward.h"

#include <algorithm>

#include "src/engines/common/pair_pass.h"
#include "src/engines/local_polynomial/gradient.h"
#include "src/engines/local_polynomial/work.h"

namespace ttr::local_polynomial {
namespace {

std::int64_t CountOf(const Sizes& sizes) { return MonomialsOf(sizes.key_dim, sizes.degree); }

struct Backwards {
  using Work = local_polynomial::Work;
  using Gradient = MemoryGradient;

  static std::size_t WeightBytes(const Sizes& sizes) { return BytesOfWeights(sizes); }

  static std::size_t WorkerBytes(const Sizes& sizes) {
    return common::ScratchBytesOf<GradientScratch>(sizes.dtype, CountOf(sizes), sizes.key_dim,
                                                   sizes.value_dim);
  }

  static void TakeSums(const Sizes& sizes, ScratchLayout& layout, MemoryGradient& g) {
    const std::int64_t rows = sizes.tokens * sizes.queries;
    g.record_bytes = common::ScratchBytesOf<FitRecord>(sizes.dtype, CountOf(sizes), sizes.key_dim);
    g.records = layout.TakeBytes(common::CeilDiv(rows, kQueries) *
                                 static_cast<std::int64_t>(g.record_bytes));
    layout.Take(rows, {&g.width_sums, &g.ridge_sums});
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
    // The last tokens see most pairs, the first pairs are seen by most tokens: they come first.
    Run(work().tasks(), [&](std::int64_t item, std::byte* own) {
      const std::int64_t first = (work().blocks - 1 - item / memories) * kQueries;
      const Memory memory = MemoryOf(item % memories);
      if (first >= memory.rows) return;
      const std::int64_t count = std::min(kQueries, memory.rows - first);
      Differentiate(memory, item % memories, first, count, own, DifferentiateQueries);
    });
    const std::int64_t blocks = common::CeilDiv(MostPairs(), kPairs);
    Run(memories * blocks, [&](std::int64_t item, std::byte* own) {
      const std::int64_t first = item / memories * kPairs;
      const Memory memory = MemoryOf(item % memories);
      if (first >= memory.all()) return;
      const std::int64_t count = std::min(kPairs, memory.all() - first);
      Differentiate(memory, item % memories, first, count, own, DifferentiatePairs);
    });
    Run(memories, [&](std::int64_t item, std::byte*) {
      const Memory memory = MemoryOf(item);
      const MemoryGradient gradient = GradientOf(item);
      FinishGradient({.options = work().options,
                      .memory = memory,
                      .monomials = work().monomials,
                      .gradient = gradient});
    });
  }

 private:
  template <class Vector>
  void Differentiate(const Memory& memory, std::int64_t item, std::int64_t first,
                     std::int64_t count, std::byte* own, const Vector& vector) const {
    const MemoryGradient gradient = GradientOf(item);
    vector({.options = work().options,
            .memory = memory,
            .monomials = work().monomials,
            .gradient = gradient,
            .first = first,
            .count = count,
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
  const std::int64_t most = work.memories() * (work.blocks + 1);
  Pass("local_polynomial", work, {dy, final, gradients}, executor, scratch, most).RunAll();
}

}  // namespace ttr::local_polynomial
