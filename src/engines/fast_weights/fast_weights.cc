// The forward pass: sequences, heads and strips of columns become tasks.

#include "src/engines/fast_weights/fast_weights.h"

#include <algorithm>
#include <array>
#include <new>

#include "src/engines/fast_weights/decode/deferred_write.h"
#include "src/engines/fast_weights/decode/pending.h"
#include "src/engines/fast_weights/kernel.h"
#include "src/engines/fast_weights/layout.h"
#include "src/engines/fast_weights/row_io.h"
#include "src/engines/fast_weights/saved.h"
#include "src/engines/fast_weights/work.h"

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

/// A worker, and its scratch behind it. Without memory only the bytes are counted.
template <class T>
void TakeWorker(const Options& options, const Sizes& sizes, common::ScratchLayout& layout) {
  std::byte* const place = layout.TakeBytes(sizeof(Worker<T>));
  const Scratch<T> scratch(options, sizes, layout);
  if (place != nullptr) new (place) Worker<T>(scratch);
}

template <class T>
std::size_t BytesOf(const Options& options, const Sizes& sizes) {
  common::ScratchLayout counter(nullptr);
  TakeWorker<T>(options, sizes, counter);
  return counter.bytes();
}

std::size_t BytesOfWorker(const Options& options, const Sizes& sizes) {
  return sizes.state == DType::kFloat64 ? BytesOf<double>(options, sizes)
                                        : BytesOf<float>(options, sizes);
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
    memory.extent.place = i;
    memory.extent.to = std::min(kSliceRows, memory.dims.rows);
  }
  for (;;) {
    for (std::int64_t i = 0; i < count; ++i) {
      Memory& memory = group[static_cast<std::size_t>(i)];
      const Memory& next = group[static_cast<std::size_t>(i + 1 < count ? i + 1 : 0)];
      own.run(work.options, memory, next, own.scratch);
      memory.extent.from = memory.extent.to;
      memory.extent.to = std::min(memory.extent.from + kSliceRows, memory.dims.rows);
    }
    if (group[0].extent.from == group[0].dims.rows) return;
  }
}

template <class T>
void RunAll(Work& work, const common::WorkerScratch& scratch, Executor& executor) {
  const int workers = scratch.workers();
  for (int worker = 0; worker < workers; ++worker) {
    common::ScratchLayout layout(scratch.Of(worker));
    TakeWorker<T>(work.options, work.sizes, layout);
  }
  const auto worker_at = [](std::byte* own) -> Worker<T>& {
    return *std::launder(reinterpret_cast<Worker<T>*>(own));
  };
  const std::int64_t most = MostInterleaved<T>(work.options, work.sizes);
  if (const std::int64_t together = work.Together(workers, most); together > 1) {
    const std::int64_t heads = work.heads.memories, groups = CeilDiv(heads, together);
    scratch.Run(executor, work.sequences.count() * groups, [&](std::int64_t item, std::byte* own) {
      const std::int64_t first = item % groups * together;
      RunInSlices(work, item / groups * heads + first, std::min(together, heads - first),
                  worker_at(own));
    });
    return;
  }
  work.CopyShared(scratch.shared());
  const std::int64_t items = work.items();
  scratch.Run(executor, items, [&](std::int64_t item, std::byte* own) {
    RunOne(work, item, workers, items, worker_at(own));
  });
}

/// Bytes of the workers' copies of what the parts of a memory share.
std::size_t SharedBytesOf(const Options& options, const Sizes& sizes, int threads) {
  return threads > 1 ? static_cast<std::size_t>(threads * SharedBytes(options, sizes)) : 0;
}

template <class T>
void RollBackMemory(const Options& options, const Memory& memory, std::int64_t rows) {
  const Pending<T> pending(options, memory);
  const std::int64_t count = pending.count() - rows;
  pending.SetCount(count);
  const T* from = pending.beside(count);
  for (const Rows& row : {memory.entries.sum, memory.entries.curvature}) {
    if (!row) continue;
    WriteRow(from, memory.dims.key_dim, row, 0, false);
    from += pending.layout().key_rows;
  }
  if (memory.entries.maximum) WriteOne(from[0], memory.entries.maximum, 0);
}

}  // namespace

std::size_t ScratchBytes(const Options& options, const Sizes& sizes, int threads) {
  const std::size_t shared = SharedBytesOf(options, sizes, threads);
  return common::WorkerScratch::Bytes(threads, BytesOfWorker(options, sizes), shared);
}

std::size_t SavedBytes(const Options& options, const Sizes& sizes, std::int64_t heads,
                       std::int64_t sequences, std::int64_t tokens, bool packed) {
  if (!options.causal) return 0;
  const SavedLayout layout(options, sizes, sequences, tokens, packed);
  return static_cast<std::size_t>(layout.Numbers(heads)) * SizeOf(sizes.state);
}

simd::Bf16Products ProductsOfBf16(const Options& options) {
  return options.paired() ? simd::Bf16Products::kFloat32 : TargetBf16Products();
}

std::int64_t DeferredNumbers(const Sizes& sizes) {
  return sizes.state == DType::kFloat64 ? DeferredWrite<double>::Numbers(sizes)
                                        : DeferredWrite<float>::Numbers(sizes);
}

std::int64_t PendingNumbers(const Options& options, const Sizes& sizes, const PendingRoom& room) {
  Sizes with = sizes;
  with.pairs = room.pairs();
  const auto values = [&]<class T>(T) {
    return PendingLayout::Of<T>(options, sizes.key_dim, sizes.value_dim, with.pairs).ValueNumbers();
  };
  return PendingKeyNumbers(options, with) +
         (sizes.state == DType::kFloat64 ? values(double()) : values(float()));
}

void Flush(const Options& options, const Call& call, Executor& executor) {
  const Work work(options, call);
  const auto flush =
      work.sizes.state == DType::kFloat64 ? ChosenFlush<double>() : ChosenFlush<float>();
  executor.Run(work.items(), [&](std::int64_t item) { flush(options, work.MemoryOf(item)); });
}

std::int64_t PendingRows(const Options& options, const Call& call) {
  const Work work(options, call);
  std::int64_t rows = call.room.pairs();
  for (std::int64_t item = 0; item < work.items(); ++item) {
    const Memory memory = work.MemoryOf(item);
    const std::int64_t count = work.sizes.state == DType::kFloat64
                                   ? Pending<double>(options, memory).count()
                                   : Pending<float>(options, memory).count();
    rows = std::min(rows, count);
  }
  return rows;
}

void RollBack(const Options& options, const Call& call, std::int64_t rows) {
  const Work work(options, call);
  const auto roll_back =
      work.sizes.state == DType::kFloat64 ? RollBackMemory<double> : RollBackMemory<float>;
  for (std::int64_t item = 0; item < work.items(); ++item) {
    roll_back(options, work.MemoryOf(item), rows);
  }
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
  const bool decode = IsDecode(work.sizes.tokens * options.steps);
  work.sizes.saved = work.Saves();
  if (call.bf16_products && !decode && work.sizes.state == DType::kFloat32) {
    work.sizes.products = ProductsOfBf16(options);
  }
  if (work.sequences.tokens() == 0 || work.memories() == 0) return;
  const int threads = work.Threads(executor);
  work.Cut(threads);
  const int workers = common::WorkersOf(threads, work.items());
  const common::WorkerScratch own("fast_weights", scratch, workers,
                                  BytesOfWorker(options, work.sizes),
                                  SharedBytesOf(options, work.sizes, workers));
  const auto run = work.sizes.state == DType::kFloat64 ? RunAll<double> : RunAll<float>;
  run(work, own, executor);
}

}  // namespace ttr::fast_weights
