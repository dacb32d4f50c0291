// The forward pass: memories become tasks of workers.

#include <algorithm>

#include "src/engines/scan/matrix/task.h"
#include "src/engines/scan/scan.h"
#include "src/engines/scan/vector/task.h"
#include "src/engines/scan/work.h"

namespace ttr::scan {
namespace {

constexpr double kFlopsOfEntry = 10;

std::size_t BytesOfWorker(const Sizes& sizes) {
  return sizes.key_dim > 0 ? common::ScratchBytesOf<MatrixScratch>(sizes.state, sizes)
                           : common::ScratchBytesOf<VectorScratch>(sizes.state, sizes);
}

}  // namespace

std::size_t ScratchBytes(const Sizes& sizes, int threads) {
  return common::WorkerScratch::Bytes(threads, BytesOfWorker(sizes));
}

std::size_t SavedBytes(const Sizes& sizes, std::int64_t heads, std::int64_t tokens, bool complex) {
  const std::int64_t rows = std::max<std::int64_t>(1, sizes.key_dim);
  return SavedStates{.memory = {},
                     .width = heads * rows * sizes.value_dim,
                     .tokens = tokens,
                     .dtype = sizes.state,
                     .complex = complex}
      .Bytes();
}

void Forward(const Options& options, const Call& call, Executor& executor,
             std::span<std::byte> scratch) {
  Work work(options, call);
  const std::int64_t updates = work.sequences.tokens() * work.entries();
  if (updates == 0) return;
  const bool worth_threads =
      kFlopsOfEntry * static_cast<double>(updates) >= common::kFlopsWorthThreads;
  const int threads = common::ThreadsFor(executor, worth_threads);
  work.Cut(threads);
  const int workers = common::WorkersOf(threads, work.tasks());
  const common::WorkerScratch room("scan", scratch, workers, BytesOfWorker(work.sizes));
  const bool fetches = work.matrix && RatesFillLines(work.sizes.key_dim, SizeOf(work.sizes.state));
  room.Run(executor, work.tasks(), [&](std::int64_t item, std::byte* own) {
    if (work.matrix) {
      const bool next = fetches && item + 1 < work.tasks();
      ScanMatrix({.options = options,
                  .sizes = work.sizes,
                  .memory = work.MatrixOf(item),
                  .next = next ? work.MatrixOf(item + 1) : Matrix(),
                  .scratch = own});
    } else {
      ScanVector(
          {.options = options, .sizes = work.sizes, .memory = work.VectorOf(item), .scratch = own});
    }
  });
}

}  // namespace ttr::scan
