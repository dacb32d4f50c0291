// Which memory is done by whom: sequences, heads and ranges of columns become tasks.

#include "src/engines/scan/scan.h"

#include <algorithm>

#include "src/engines/scan/kernel.h"
#include "src/engines/scan/work.h"
#include "src/parallel/claimed.h"
#include "src/parallel/workers.h"

namespace ttr::scan {
namespace {

/// Below this many entries times tokens a second thread costs more than it brings.
constexpr std::int64_t kWorthThreads = 100'000;

template <class T>
std::size_t BytesOf(const Sizes& sizes) {
  return sizes.key_dim > 0 ? MatrixScratch<T>(sizes, nullptr).bytes
                           : VectorScratch<T>(sizes, nullptr).bytes;
}

std::size_t BytesOfWorker(const Sizes& sizes) {
  return sizes.state == DType::kFloat64 ? BytesOf<double>(sizes) : BytesOf<float>(sizes);
}

}  // namespace

std::size_t ScratchBytes(const Sizes& sizes, int threads) {
  return static_cast<std::size_t>(threads) * BytesOfWorker(sizes) + kAlignment;
}

std::size_t SavedBytes(const Sizes& sizes, std::int64_t heads, std::int64_t tokens, bool complex) {
  const std::int64_t rows = std::max<std::int64_t>(1, sizes.key_dim);
  const std::int64_t numbers = SavedStates(tokens) * heads * rows * sizes.value_dim;
  return SavedHeader::Bytes() +
         static_cast<std::size_t>((complex ? 2 : 1) * numbers) * SizeOf(sizes.state);
}

void Forward(const Options& options, const Call& call, Executor& executor,
             std::span<std::byte> scratch) {
  Work work(options, call);
  if (!call.saved.empty()) work.Note().WriteTo(call.saved);
  const std::int64_t entries =
      work.heads * work.columns * std::max<std::int64_t>(1, work.sizes.key_dim);
  if (work.tokens * entries == 0) return;
  const int threads = work.tokens * entries < kWorthThreads ? 1 : executor.threads();
  work.Cut(threads);
  const int workers = static_cast<int>(std::min<std::int64_t>(threads, work.tasks()));

  const Claimed claimed("scan", scratch, ScratchBytes(work.sizes, workers));
  const std::size_t bytes = BytesOfWorker(work.sizes);
  RunOnWorkers(executor, workers, work.tasks(), [&](std::int64_t task, int worker) {
    std::byte* own = claimed.start() + static_cast<std::size_t>(worker) * bytes;
    if (work.matrix) {
      const bool fetches =
          task + 1 < work.tasks() && RatesLieApart(work.sizes.key_dim, SizeOf(work.sizes.state));
      const Matrix next = fetches ? work.MatrixOf(task + 1) : Matrix();
      ScanMatrix(options, work.MatrixOf(task), next, work.sizes, own);
    } else {
      ScanVector(options, work.VectorOf(task), work.sizes, own);
    }
  });
}

}  // namespace ttr::scan
