// Which memory is done by whom: sequences and heads become tasks.

#include "src/engines/least_squares/least_squares.h"

#include <algorithm>
#include <memory>
#include <string>

#include "src/engines/least_squares/iteration_scratch.h"
#include "src/engines/least_squares/kernel.h"
#include "src/engines/least_squares/layout.h"
#include "src/engines/least_squares/work.h"
#include "src/parallel/workers.h"
#include "ttr/error.h"

namespace ttr::least_squares {
namespace {

std::size_t BytesOfWorker(const Options& options, const Sizes& sizes) {
  return sizes.state == DType::kFloat64 ? BytesOf<double>(options, sizes)
                                        : BytesOf<float>(options, sizes);
}

}  // namespace

std::size_t ScratchBytes(const Options& options, const Sizes& sizes, int threads) {
  return static_cast<std::size_t>(threads) * BytesOfWorker(options, sizes) + kAlignment;
}

void Forward(const Options& options, const Call& call, Executor& executor,
             std::span<std::byte> scratch) {
  const Work work(call);
  const std::int64_t items = work.sequences * work.heads;
  if (work.tokens == 0 || items == 0) return;
  const int threads = work.Flops() < kFlopsWorthThreads ? 1 : executor.threads();
  const int workers = static_cast<int>(std::min<std::int64_t>(threads, items));
  const std::size_t needed = ScratchBytes(options, work.sizes, workers);
  std::unique_ptr<std::byte[]> owned;
  if (scratch.empty()) {
    owned.reset(new std::byte[needed]);
    scratch = {owned.get(), needed};
  } else if (scratch.size() < needed) {
    throw Error("least_squares", "scratch", "at least " + std::to_string(needed) + " bytes",
                std::to_string(scratch.size()));
  }
  std::byte* const start = Align(scratch.data());
  const std::size_t bytes = BytesOfWorker(options, work.sizes);
  const auto run = work.sizes.state == DType::kFloat64 ? RunMemoryDouble : RunMemoryFloat;
  RunOnWorkers(executor, workers, items, [&](std::int64_t item, int worker) {
    run(options, work.MemoryOf(item), work.sizes, start + static_cast<std::size_t>(worker) * bytes);
  });
}

}  // namespace ttr::least_squares
