// The forward pass: which blocks of which factors are computed by whom.

#include <algorithm>

#include "src/engines/common/tasks.h"
#include "src/engines/kernel_regression/kernel_regression.h"
#include "src/engines/kernel_regression/work.h"

namespace ttr::kernel_regression {
namespace {

/// How memories and threads meet. Each worker has memories of its own, or all work on the blocks of
/// one memory after the other: the same sums.
struct Shares {
  int workers;
  bool own_memories;

  Shares(const Work& work, int threads)
      : workers(threads), own_memories(threads == 1 || work.memories() >= 2 * threads) {
    if (own_memories) workers = common::WorkersOf(threads, work.memories());
  }
};

/// Of a worker: scratch, and where it has memories of its own a factor and weights.
struct Bytes {
  std::size_t factor, weights, scratch;

  Bytes(const Sizes& sizes, std::int64_t room, bool needs_factor)
      : factor(needs_factor ? BytesOfFactor(sizes, room) : 0),
        weights(BytesOfWeights(sizes)),
        scratch(BytesOfScratch(sizes, room)) {}

  std::size_t memory() const { return factor + weights; }
  std::size_t worker(bool own_memories) const { return scratch + (own_memories ? memory() : 0); }
  std::size_t shared(bool own_memories) const { return own_memories ? 0 : memory(); }
};

/// One memory, all steps. `each(count, run(item, scratch))` runs independent items.
template <class Each>
class MemoryRun {
 public:
  MemoryRun(const Work& work, const Task& task, const Each& each)
      : work_(work), task_(task), each_(each), extent_(task.room), dtype_(work.sizes.dtype) {}

  void Run() const {
    const Memory& m = task_.memory;
    if (m.weighted) WeighPairs(m);
    if (m.q && m.rows > 0) {
      MakeFactor();
      each_(common::CeilDiv(m.rows, kBlock), [&](std::int64_t item, std::byte* own) {
        // The last queries see most pairs: they come first.
        Answer(With(own), (common::CeilDiv(m.rows, kBlock) - 1 - item) * kBlock, dtype_);
      });
      const Progress& progress = task_.progress();
      if (progress.good < std::min(m.all(), progress.odd)) AnswerByMinimumNorm(task_, dtype_);
    }
    if (work_.writes()) WritePairs(task_, dtype_);
  }

 private:
  Task With(std::byte* scratch) const {
    Task task = task_;
    task.scratch = scratch;
    return task;
  }

  void MakeFactor() const {
    const std::int64_t pairs = task_.memory.all();
    const std::int64_t blocks = common::CeilDiv(pairs, extent_.block);
    const std::int64_t first = task_.progress().done / extent_.block;
    each_(blocks - first,
          [&](std::int64_t item, std::byte*) { LoadBlock(task_, first + item, dtype_); });
    FindOdd(task_, dtype_);
    each_(blocks - first, [&](std::int64_t item, std::byte* own) {
      FillColumns(With(own), blocks - 1 - item, dtype_);
    });
    for (std::int64_t b = 0; b < blocks; ++b) {
      const bool whole = FactorDiagonal(task_, b, dtype_);
      const std::int64_t later = std::max(b + 1, first);
      const std::int64_t columns = whole ? blocks - later : 0;
      const bool values = b >= first;
      each_(columns + (values ? 1 : 0), [&](std::int64_t item, std::byte*) {
        SolveRows(task_, b, item < columns ? later + item : extent_.blocks, dtype_);
      });
      if (!whole) return;
    }
  }

  const Work& work_;
  const Task& task_;
  const Each& each_;
  Extent extent_;
  DType dtype_;
};

template <class Each>
void RunMemory(const Work& work, std::int64_t item, std::byte* memory, std::byte* scratch,
               const Each& each) {
  const Bytes bytes(work.sizes, work.Room(), !work.call.factor.defined());
  std::byte* const kept = work.FactorOf(item);
  const Memory m = work.MemoryOf(item, memory + bytes.factor);
  const Task task{.options = work.options,
                  .memory = m,
                  .room = work.Room(),
                  .factor = kept != nullptr ? kept : memory,
                  .scratch = scratch};
  if (kept == nullptr && bytes.factor > 0) task.progress() = Progress{};
  MemoryRun<Each>(work, task, each).Run();
}

double FlopsOf(const Work& work) {
  const auto pairs = static_cast<double>(work.sizes.pairs());
  const auto channels = static_cast<double>(work.sizes.key_dim + work.sizes.value_dim);
  return static_cast<double>(work.memories()) * pairs * pairs * (pairs / 3 + channels);
}

}  // namespace

std::size_t ScratchBytes(const Sizes& sizes, int threads) {
  const Bytes bytes(sizes, sizes.pairs(), true);
  return common::WorkerScratch::Bytes(threads, bytes.worker(true));
}

std::int64_t FactorNumbers(const Sizes& sizes) {
  return static_cast<std::int64_t>(BytesOfFactor(sizes, sizes.held) / SizeOf(sizes.dtype));
}

void Forward(const Options& options, const Call& call, Executor& executor,
             std::span<std::byte> scratch) {
  const Work work(options, call);
  if (work.memories() == 0 || work.sequences.tokens() == 0) return;
  const int threads = common::ThreadsFor(executor, FlopsOf(work) >= common::kFlopsWorthThreads);
  const Shares shares(work, threads);
  const Bytes bytes(work.sizes, work.Room(), !call.factor.defined());
  const common::WorkerScratch room("kernel_regression", scratch, shares.workers,
                                   bytes.worker(shares.own_memories),
                                   bytes.shared(shares.own_memories));
  if (shares.own_memories) {
    room.Run(executor, work.memories(), [&](std::int64_t item, std::byte* own) {
      const auto each = [&](std::int64_t count, const auto& run) {
        for (std::int64_t i = 0; i < count; ++i) run(i, own);
      };
      RunMemory(work, item, own + bytes.scratch, own, each);
    });
    return;
  }
  const auto each = [&](std::int64_t count, const auto& run) { room.Run(executor, count, run); };
  for (std::int64_t item = 0; item < work.memories(); ++item) {
    RunMemory(work, item, room.shared(), room.Of(0), each);
  }
}

}  // namespace ttr::kernel_regression
