// The forward pass: which task computes which outputs.

#include <algorithm>
#include <new>

#include "src/engines/kernel_smoother/decode.h"
#include "src/engines/kernel_smoother/kernel_smoother.h"
#include "src/engines/kernel_smoother/saved.h"
#include "src/engines/kernel_smoother/work.h"

namespace ttr::kernel_smoother {
namespace {

std::size_t BytesOfWorker(const Sizes& sizes) {
  return common::ScratchBytesOf<Scratch>(sizes.dtype, sizes.key_dim, sizes.value_dim);
}

/// Bytes of a memory's description, in whole lines.
constexpr std::size_t RoundedMemory() {
  return static_cast<std::size_t>(
      common::RoundUp(static_cast<std::int64_t>(sizeof(Memory)), common::kLineBytes));
}

DecodeRoom RoomOf(const Sizes& sizes, std::byte* memory = nullptr) {
  return {sizes.heads * sizes.queries, sizes.key_dim, sizes.value_dim, memory};
}

std::size_t BytesOfRoom(const Sizes& sizes) {
  return static_cast<std::size_t>(RoomOf(sizes).numbers()) * SizeOf(sizes.dtype);
}

/// Weights of all memories, or the memories of a single token and what decoding them takes.
std::size_t BytesOfShared(const Sizes& sizes) {
  const auto memories = static_cast<std::size_t>(sizes.sequences * sizes.heads);
  const auto sequences = static_cast<std::size_t>(sizes.sequences);
  return std::max(memories * BytesOfWeights(sizes),
                  memories * RoundedMemory() + sequences * BytesOfRoom(sizes));
}

constexpr std::int64_t kMostSteps = 3;  // tokens that are taken one by one

/// Are pairs read in place: all of a state, in the type of the arithmetic or in bfloat16?
bool Decodes(const Work& work) {
  const Call& call = work.call;
  if (!call.saved.empty() || work.sequences.packed() || work.sequences.length() > kMostSteps)
    return false;
  if (call.effective_pairs.defined()) return false;
  if (!call.state_k.defined() || call.state_k.dtype() != call.state_v.dtype()) return false;
  return call.state_k.shape().elements() > 0;
}

/// A call of one token.
class Step {
 public:
  Step(const Options& options, const Call& call, Executor& executor,
       const common::WorkerScratch& room)
      : work_(options, call), executor_(executor), room_(room) {}

  void Run() const {
    const bool before = work_.options.read_before;
    if (before) Read(false);
    if (work_.writes()) {
      for (std::int64_t i = 0; i < work_.memories(); ++i) {
        WritePair(work_.MemoryOf(i, nullptr), work_.sizes.dtype);
      }
    }
    if (!before) Read(true);
  }

 private:
  Memory* memories() const { return reinterpret_cast<Memory*>(room_.shared()); }

  /// Looks at the pairs that the state has now, and at no others.
  void Look(bool written) const {
    for (std::int64_t i = 0; i < work_.memories(); ++i) {
      Memory m = work_.MemoryOf(i, nullptr);
      if (written && m.length == nullptr && work_.writes()) m.visible.held += 1;
      m.visible.tokens = 0;
      m.bias.first = m.visible.held - (written || !work_.writes() ? 1 : 0);
      new (memories() + i) Memory(m);
    }
  }

  std::int64_t MostHeld() const {
    std::int64_t most = 0;
    for (std::int64_t i = 0; i < work_.memories(); ++i) {
      most = std::max(most, memories()[i].visible.held);
    }
    return most;
  }

  void Read(bool written) const {
    if (!work_.call.q.defined()) return;
    Look(written);
    const std::int64_t held = MostHeld(), sequences = work_.sequences.count();
    const std::int64_t chunk =
        std::max(kLeastChunk, common::RoundUp(common::CeilDiv(held, kChunks), common::kLineBytes));
    const std::int64_t chunks = std::max<std::int64_t>(common::CeilDiv(held, chunk), 1);
    std::byte* const rooms =
        room_.shared() + static_cast<std::size_t>(work_.memories()) * RoundedMemory();
    const auto task = [&](std::int64_t n, std::int64_t c) {
      std::byte* const own = rooms + static_cast<std::size_t>(n) * BytesOfRoom(work_.sizes);
      return ChunkTask{.options = work_.options,
                       .memories = memories() + n * work_.heads.memories,
                       .heads = work_.heads.memories,
                       .room = RoomOf(work_.sizes, own),
                       .chunk = c,
                       .first = c * chunk,
                       .end = std::min((c + 1) * chunk, held)};
    };
    const DType dtype = work_.sizes.dtype;
    for (std::int64_t n = 0; n < sequences; ++n) PrepareQueries(task(n, 0), dtype);
    room_.Run(executor_, sequences * chunks, [&](std::int64_t item, std::byte*) {
      SumChunk(task(item / chunks, item % chunks), dtype);
    });
    for (std::int64_t n = 0; n < sequences; ++n) MergeChunks(task(n, 0), chunks, dtype);
  }

  Work work_;
  Executor& executor_;
  const common::WorkerScratch& room_;
};

TensorView TokenOf(const TensorView& view, std::int64_t t) {
  return view.defined() ? view.Slice(1, t, 1) : view;
}

void RunSteps(const Work& work, Executor& executor, const common::WorkerScratch& room) {
  for (std::int64_t t = 0; t < work.sequences.length(); ++t) {
    Call one = work.call;
    for (TensorView* view : {&one.q, &one.k, &one.v, &one.log_decay, &one.importance,
                             &one.log_importance, &one.pair_bias, &one.y, &one.status}) {
      *view = TokenOf(*view, t);
    }
    Step(work.options, one, executor, room).Run();
  }
}

/// Writes a few tokens of all heads, then the next few: rows of the heads of a token share pages.
void WriteAll(const Work& work, Executor& executor, const common::WorkerScratch& room) {
  constexpr std::int64_t kTokens = 16;
  const std::int64_t heads = work.heads.memories, sequences = work.sequences.count();
  common::ColumnParts parts{.columns = heads};
  parts.Cut(sequences, room.workers(), 1);
  room.Run(executor, sequences * parts.count, [&](std::int64_t item, std::byte*) {
    const auto task = common::Task::Of(item, 1, parts.count);
    const std::int64_t first = task.sequence * heads + parts.First(task.part);
    const std::int64_t tokens = work.sequences[task.sequence].tokens;
    for (std::int64_t t = 0; t < tokens || t == 0; t += kTokens) {
      for (std::int64_t h = 0; h < parts.Columns(task.part); ++h) {
        // (Once the last are written, the length is no more what it was.)
        WritePairs(work.MemoryOf(first + h, room.shared()), {t, std::min(t + kTokens, tokens)},
                   work.sizes.dtype);
      }
    }
  });
}

void RunBlocks(const Work& work, Executor& executor, const common::WorkerScratch& room,
               bool writes) {
  const Saved saved(work);
  const std::int64_t memories = work.memories();
  if (work.sizes.weighted) {
    room.Run(executor, memories, [&](std::int64_t item, std::byte*) {
      WeighPairs(work.MemoryOf(item, room.shared()));
    });
  }
  // The last tokens see most pairs: they come first.
  room.Run(executor, work.tasks(), [&](std::int64_t item, std::byte* own) {
    const Memory memory = work.MemoryOf(item % memories, room.shared());
    const std::int64_t first = (work.blocks - 1 - item / memories) * kQueries;
    if (first >= memory.rows) return;
    const std::int64_t m = item % memories;
    const SavedQueries of_memory =
        saved ? SavedQueries{.logs = saved.Logs(m), .means = saved.Means(m)} : SavedQueries{};
    ComputeOutputs({.options = work.options,
                    .memory = memory,
                    .first = first,
                    .count = std::min(kQueries, memory.rows - first),
                    .scratch = own,
                    .saved = of_memory},
                   work.sizes.dtype);
  });
  if (writes) WriteAll(work, executor, room);
}

void RunCall(const Work& work, Executor& executor, std::span<std::byte> scratch, bool writes) {
  const Call& call = work.call;
  const std::int64_t memories = work.memories();
  if (memories == 0 || work.sequences.tokens() == 0) return;
  const auto pairs =
      static_cast<double>(work.sizes.tokens + (call.state_k.defined() ? call.state_k.size(1) : 0));
  const double flops = 2.0 * static_cast<double>(work.sizes.key_dim + work.sizes.value_dim) *
                       static_cast<double>(memories * work.heads.queries) *
                       static_cast<double>(work.sizes.tokens) * pairs;
  const int threads = common::ThreadsFor(executor, flops >= common::kFlopsWorthThreads);
  const bool decodes = writes && Decodes(work);
  const std::int64_t most =
      decodes ? work.sequences.count() * kChunks : std::max(work.tasks(), memories);
  const common::WorkerScratch room("kernel_smoother", scratch, common::WorkersOf(threads, most),
                                   BytesOfWorker(work.sizes), BytesOfShared(work.sizes));
  decodes ? RunSteps(work, executor, room)
          : RunBlocks(work, executor, room, writes && work.writes());
}

}  // namespace

std::size_t ScratchBytes(const Sizes& sizes, int threads) {
  return common::WorkerScratch::Bytes(threads, BytesOfWorker(sizes), BytesOfShared(sizes));
}

std::size_t SavedBytes(const Sizes& sizes, std::int64_t queries) {
  return Saved::Bytes(sizes, queries);
}

void Forward(const Options& options, const Call& call, Executor& executor,
             std::span<std::byte> scratch) {
  RunCall({options, call}, executor, scratch, true);
}

void Read(const Options& options, const Call& call, Executor& executor,
          std::span<std::byte> scratch) {
  RunCall({options, call}, executor, scratch, false);
}

}  // namespace ttr::kernel_smoother