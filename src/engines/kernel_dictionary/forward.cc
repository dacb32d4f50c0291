// The forward pass: a task is a memory.

#include <algorithm>

#include "src/engines/common/tasks.h"
#include "src/engines/kernel_dictionary/task.h"

namespace ttr::kernel_dictionary {
namespace {

std::size_t BytesOf(const Sizes& sizes) { return common::ScratchBytesOf<Scratch>(sizes); }

/// One call.
class Work {
 public:
  Work(const Options& options, const Call& call)
      : options_(options), call_(call), sequences_(call.sequences()), heads_(call.heads, call.q) {}

  std::int64_t memories() const { return sequences_.count() * heads_.memories; }
  Sizes sizes() const { return {options_.budget, call_.key_dim(), call_.value_dim()}; }

  double flops() const {
    const auto n = static_cast<double>(options_.budget);
    const auto channels = static_cast<double>(call_.key_dim() + call_.value_dim());
    return static_cast<double>(sequences_.tokens() * heads_.memories) * 6 * n * (n + channels);
  }

  Memory MemoryOf(std::int64_t item) const {
    const std::int64_t n = item / heads_.memories, h = item % heads_.memories;
    Memory m{common::QueriedPairsOf(options_, call_, heads_, sequences_[n], n, h)};
    m.ridge = call_.ridge.defined() ? call_.ridge.At({h}) : options_.ridge;
    m.e = common::StateOf(call_.e, n, h);
    m.r = common::StateOf(call_.r, n, h);
    m.keys = common::StateOf(call_.keys, n, h);
    m.l = common::StateOf(call_.l, n, h);
    if (call_.count.defined()) {
      m.count =
          call_.count.as<std::int64_t>() + n * call_.count.stride(0) + h * call_.count.stride(1);
    }
    return m;
  }

 private:
  const Options& options_;
  const Call& call_;
  common::Sequences sequences_;
  common::Heads heads_;
};

}  // namespace

std::size_t ScratchBytes(const Sizes& sizes, int threads) {
  return common::WorkerScratch::Bytes(threads, BytesOf(sizes));
}

void Forward(const Options& options, const Call& call, Executor& executor,
             std::span<std::byte> scratch) {
  const Work work(options, call);
  if (work.memories() == 0) return;
  const int threads = common::ThreadsFor(executor, work.flops() >= common::kFlopsWorthThreads);
  const int workers = common::WorkersOf(threads, work.memories());
  const common::WorkerScratch room("kernel_dictionary", scratch, workers, BytesOf(work.sizes()));
  room.Run(executor, work.memories(), [&](std::int64_t item, std::byte* own) {
    RunMemory(options, work.MemoryOf(item), own);
  });
}

}  // namespace ttr::kernel_dictionary
