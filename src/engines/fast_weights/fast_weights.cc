// Which memory is done by whom: sequences, heads and strips of columns become tasks.

#include "src/engines/fast_weights/fast_weights.h"

#include <algorithm>
#include <array>
#include <memory>
#include <new>
#include <string>

#include "src/engines/fast_weights/kept.h"
#include "src/engines/fast_weights/kernel.h"
#include "src/engines/fast_weights/layout.h"
#include "src/engines/fast_weights/work.h"
#include "src/parallel/workers.h"
#include "ttr/error.h"

namespace ttr::fast_weights {
namespace {

/// The memory that a worker probably does next, at the front of its scratch: it is fetched towards
/// the caches while another is run, and finding it twice would be felt in a decode.
struct Upcoming {
  std::int64_t item = -1;
  int place = 0;  // of its memory; the other is that of the one at work
  Memory memories[2];
};

/// Memories that take turns.
using Group = std::array<Memory, kMostTogether>;
constexpr std::size_t kFrontBytes =
    (std::max(sizeof(Upcoming), sizeof(Group)) + kAlignment - 1) / kAlignment * kAlignment;

auto KernelOf(const Work& work) {
  return work.sizes.state == DType::kFloat64 ? RunMemoryDouble : RunMemoryFloat;
}

std::size_t BytesOfWorker(const Options& options, const Sizes& sizes) {
  return kFrontBytes + (sizes.state == DType::kFloat64
                            ? Scratch<double>(options, sizes, nullptr).bytes
                            : Scratch<float>(options, sizes, nullptr).bytes);
}

/// One memory through its whole sequence.
void RunOne(const Work& work, std::int64_t item, int workers, std::int64_t items, std::byte* own) {
  Upcoming& upcoming = *std::launder(reinterpret_cast<Upcoming*>(own));
  Memory& memory = upcoming.memories[upcoming.place];
  if (upcoming.item != item) new (&memory) Memory(work.MemoryOf(item));
  // Workers take items in turn.
  const std::int64_t following = item + workers;
  upcoming.item = following;
  upcoming.place = 1 - upcoming.place;
  Memory& next = upcoming.memories[upcoming.place];
  new (&next) Memory(following < items ? work.MemoryOf(following) : Memory{});
  KernelOf(work)(work.options, memory, next, work.sizes, own + kFrontBytes);
}

/// Memories item .. item + count of one sequence, a turn each until they are through.
void RunInTurns(const Work& work, std::int64_t item, std::int64_t count, std::byte* own) {
  Group& group = *new (own) Group;
  for (std::int64_t i = 0; i < count; ++i) {
    Memory& memory = group[static_cast<std::size_t>(i)] = work.MemoryOf(item + i);
    memory.place = i;
    memory.to = std::min(kTurnRows, memory.rows);
  }
  for (;;) {
    for (std::int64_t i = 0; i < count; ++i) {
      Memory& memory = group[static_cast<std::size_t>(i)];
      const Memory& next = group[static_cast<std::size_t>(i + 1 < count ? i + 1 : 0)];
      KernelOf(work)(work.options, memory, next, work.sizes, own + kFrontBytes);
      memory.from = memory.to;
      memory.to = std::min(memory.from + kTurnRows, memory.rows);
    }
    if (group[0].from == group[0].rows) return;
  }
}

}  // namespace

std::size_t ScratchBytes(const Options& options, const Sizes& sizes, int threads) {
  const std::size_t shared = threads > 1 ? static_cast<std::size_t>(SharedBytes(sizes)) : 0;
  return static_cast<std::size_t>(threads) * (BytesOfWorker(options, sizes) + shared) + kAlignment;
}

std::size_t KeptBytes(const Options& options, const Sizes& sizes, std::int64_t heads,
                      std::int64_t sequences, std::int64_t tokens, bool packed) {
  if (options.paired()) return 0;
  const KeptLayout layout(options, sizes, sequences, tokens, packed);
  return kAlignment + kKeptNoteBytes +
         static_cast<std::size_t>(layout.Numbers(heads)) * SizeOf(sizes.state);
}

void Forward(const Options& options, const Call& call, Executor& executor,
             std::span<std::byte> scratch) {
  Work work(options, call);
  const bool keeps = !call.kept.empty() && !options.paired();
  work.sizes.kept = keeps && !IsDirect(work.sizes.tokens * options.steps);
  if (keeps) NoteKept(work);
  if (work.tokens == 0 || work.heads == 0) return;
  const int threads = work.Flops() < kFlopsWorthThreads ? 1 : executor.threads();
  work.Cut(threads);
  const std::int64_t items = work.sequences * work.heads * work.parts;
  const int workers = static_cast<int>(std::min<std::int64_t>(threads, items));

  const std::size_t needed = ScratchBytes(options, work.sizes, workers);
  std::unique_ptr<std::byte[]> owned;
  if (scratch.empty()) {
    owned.reset(new std::byte[needed]);
    scratch = {owned.get(), needed};
  } else if (scratch.size() < needed) {
    throw Error("fast_weights", "scratch", "at least " + std::to_string(needed) + " bytes",
                std::to_string(scratch.size()));
  }
  std::byte* const start = Align(scratch.data());
  const std::size_t bytes = BytesOfWorker(options, work.sizes);
  auto scratch_of = [&](int worker) { return start + static_cast<std::size_t>(worker) * bytes; };
  const std::int64_t most = work.sizes.state == DType::kFloat64
                                ? MostTogether<double>(options, work.sizes)
                                : MostTogether<float>(options, work.sizes);
  const std::int64_t together = work.Together(workers, most);
  if (together > 1) {
    const std::int64_t groups = (work.heads + together - 1) / together;
    RunOnWorkers(executor, workers, work.sequences * groups, [&](std::int64_t item, int worker) {
      const std::int64_t first = item % groups * together;
      RunInTurns(work, item / groups * work.heads + first, std::min(together, work.heads - first),
                 scratch_of(worker));
    });
    return;
  }
  work.CopyShared(scratch_of(workers));
  for (int worker = 0; worker < workers; ++worker) new (scratch_of(worker)) Upcoming;
  RunOnWorkers(executor, workers, items, [&](std::int64_t item, int worker) {
    RunOne(work, item, workers, items, scratch_of(worker));
  });
}

}  // namespace ttr::fast_weights
