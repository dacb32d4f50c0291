// Which memory is done by whom: sequences, heads and strips of columns become tasks.

#include "src/engines/fast_weights/fast_weights.h"

#include <algorithm>
#include <array>
#include <new>

#include "src/core/saved_header.h"
#include "src/engines/fast_weights/decode/deferred_write.h"
#include "src/engines/fast_weights/kernel.h"
#include "src/engines/fast_weights/layout.h"
#include "src/engines/fast_weights/saved.h"
#include "src/engines/fast_weights/work.h"
#include "src/parallel/claimed.h"
#include "src/parallel/workers.h"

namespace ttr::fast_weights {
namespace {

/// Memories that are interleaved.
using Group = std::array<Memory, kMostInterleaved>;

/// What precedes a worker's scratch.
template <class T>
struct Worker {
  explicit Worker(const Scratch<T>& of) : scratch(of), run(ChosenKernel<T>()) {}

  Scratch<T> scratch;
  RunMemory<T> run;
  // The item that it probably does next, whose memory is fetched towards the caches meanwhile. It
  // is kept: MemoryOf() twice a memory would be felt in a decode.
  std::int64_t upcoming = -1;
  int place = 0;  // of its memory; the other is that of the one at work
  Memory pair[2];
  alignas(Group) std::byte group[sizeof(Group)];  // where there is one
};
template <class T>
constexpr std::size_t kWorkerBytes = (sizeof(Worker<T>) + kAlignment - 1) / kAlignment * kAlignment;

template <class T>
std::size_t BytesOfWorker(const Options& options, const Sizes& sizes) {
  return kWorkerBytes<T> + Scratch<T>(options, sizes, nullptr).bytes;
}

std::size_t BytesOfWorker(const Options& options, const Sizes& sizes) {
  return sizes.state == DType::kFloat64 ? BytesOfWorker<double>(options, sizes)
                                        : BytesOfWorker<float>(options, sizes);
}

/// One memory through its whole sequence.
template <class T>
void RunOne(const Work& work, std::int64_t item, int workers, std::int64_t items, Worker<T>& own) {
  Memory& memory = own.pair[own.place];
  if (own.upcoming != item) new (&memory) Memory(work.MemoryOf(item));
  own.upcoming = item + workers;  // workers take items round robin
  own.place = 1 - own.place;
  Memory& next = own.pair[own.place];
  new (&next) Memory(own.upcoming < items ? work.MemoryOf(own.upcoming) : Memory{});
  own.run(work.options, memory, next, own.scratch);
}

/// Memories item .. item + count of one sequence, a time slice each until they are through.
template <class T>
void RunInSlices(const Work& work, std::int64_t item, std::int64_t count, Worker<T>& own) {
  Group& group = *new (own.group) Group;
  for (std::int64_t i = 0; i < count; ++i) {
    Memory& memory = group[static_cast<std::size_t>(i)] = work.MemoryOf(item + i);
    memory.place = i;
    memory.to = std::min(kSliceRows, memory.rows);
  }
  for (;;) {
    for (std::int64_t i = 0; i < count; ++i) {
      Memory& memory = group[static_cast<std::size_t>(i)];
      const Memory& next = group[static_cast<std::size_t>(i + 1 < count ? i + 1 : 0)];
      own.run(work.options, memory, next, own.scratch);
      memory.from = memory.to;
      memory.to = std::min(memory.from + kSliceRows, memory.rows);
    }
    if (group[0].from == group[0].rows) return;
  }
}

/// `start`: kWorkerBytes and scratch of every worker, then what parts of memories share.
template <class T>
void RunAll(Work& work, int workers, Executor& executor, std::byte* start) {
  const std::size_t bytes = BytesOfWorker<T>(work.options, work.sizes);
  const auto at = [&](int worker) { return start + static_cast<std::size_t>(worker) * bytes; };
  const auto worker_at = [&](int worker) -> Worker<T>& {
    return *std::launder(reinterpret_cast<Worker<T>*>(at(worker)));
  };
  for (int worker = 0; worker < workers; ++worker) {
    const Scratch<T> scratch(work.options, work.sizes, at(worker) + kWorkerBytes<T>);
    new (at(worker)) Worker<T>(scratch);
  }
  const std::int64_t most = MostInterleaved<T>(work.options, work.sizes);
  if (const std::int64_t together = work.Together(workers, most); together > 1) {
    const std::int64_t groups = (work.heads + together - 1) / together;
    RunOnWorkers(executor, workers, work.sequences * groups, [&](std::int64_t item, int worker) {
      const std::int64_t first = item % groups * together;
      RunInSlices(work, item / groups * work.heads + first, std::min(together, work.heads - first),
                  worker_at(worker));
    });
    return;
  }
  work.CopyShared(at(workers));
  const std::int64_t items = work.items();
  RunOnWorkers(executor, workers, items, [&](std::int64_t item, int worker) {
    RunOne(work, item, workers, items, worker_at(worker));
  });
}

}  // namespace

std::size_t ScratchBytes(const Options& options, const Sizes& sizes, int threads) {
  const std::size_t shared = threads > 1 ? static_cast<std::size_t>(SharedBytes(sizes)) : 0;
  return static_cast<std::size_t>(threads) * (BytesOfWorker(options, sizes) + shared) + kAlignment;
}

std::size_t SavedBytes(const Options& options, const Sizes& sizes, std::int64_t heads,
                       std::int64_t sequences, std::int64_t tokens, bool packed) {
  if (!options.causal) return 0;
  const SavedLayout layout(options, sizes, sequences, tokens, packed);
  return SavedHeader::Bytes() +
         static_cast<std::size_t>(layout.Numbers(heads)) * SizeOf(sizes.state);
}

bool HasBf16Products(const Options& options) { return !options.paired() && HasBf16Instructions(); }

std::int64_t DeferredNumbers(const Sizes& sizes) {
  return sizes.state == DType::kFloat64 ? DeferredWrite<double>::Numbers(sizes)
                                        : DeferredWrite<float>::Numbers(sizes);
}

void Flush(const Call& call, Executor& executor) {
  const Options options;
  const Work work(options, call);
  const auto flush =
      work.sizes.state == DType::kFloat64 ? ChosenFlush<double>() : ChosenFlush<float>();
  executor.Run(work.items(), [&](std::int64_t item) { flush(work.MemoryOf(item)); });
}

void Forward(const Options& options, const Call& call, Executor& executor,
             std::span<std::byte> scratch) {
  if (!options.causal && call.q.defined() && call.v.defined()) {
    // Everything is written, and then everything is read.
    Call writes = call, reads = call;
    writes.saved = reads.saved = {};
    writes.q = writes.y = writes.status = {};
    reads.k = reads.v = {};
    Forward(options, writes, executor, scratch);
    return Forward(options, reads, executor, scratch);
  }
  Work work(options, call);
  const bool saves = !call.saved.empty();
  const bool decode = IsDecode(work.sizes.tokens * options.steps);
  work.sizes.saved = saves && !decode;
  work.sizes.bf16_products = call.bf16_products && !decode && work.sizes.state == DType::kFloat32 &&
                             HasBf16Products(options);
  if (saves) NoteSaved(work);
  if (work.tokens == 0 || work.heads == 0) return;
  const int threads = work.Flops() < kFlopsWorthThreads ? 1 : executor.threads();
  work.Cut(threads);
  const int workers = static_cast<int>(std::min<std::int64_t>(threads, work.items()));
  const Claimed claimed("fast_weights", scratch, ScratchBytes(options, work.sizes, workers));
  const auto run = work.sizes.state == DType::kFloat64 ? RunAll<double> : RunAll<float>;
  run(work, workers, executor, claimed.start());
}

}  // namespace ttr::fast_weights
