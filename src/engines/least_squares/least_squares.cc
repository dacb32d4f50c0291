// Sequences and heads become tasks of workers.

#include "src/engines/least_squares/least_squares.h"

#include "src/engines/least_squares/decode/step_factor.h"
#include "src/engines/least_squares/exact/interleaved_systems.h"
#include "src/engines/least_squares/iterative/scratch.h"
#include "src/engines/least_squares/kernel.h"
#include "src/engines/least_squares/qr/kernel.h"
#include "src/engines/least_squares/segments.h"
#include "src/engines/least_squares/work.h"

namespace ttr::least_squares {
namespace {

template <class T>
std::size_t BytesOf(const Options& options, const Sizes& sizes) {
  common::ScratchLayout counter(nullptr);
  const Scratch<T> scratch(options, sizes, counter);
  if (options.iterates()) {
    IterationScratch<T>(options, sizes, scratch, counter);
    ChunkFactorScratch<T>(options, scratch, counter);
  } else if (HasOwnSystems(options, sizes)) {
    InterleavedScratch<T>(sizes, sizes.queries, counter);
  }
  return counter.bytes();
}

std::size_t BytesOfWorker(const Options& options, const Sizes& sizes) {
  if (options.rotates) return RotationBytes(options, sizes);
  return sizes.state == DType::kFloat64 ? BytesOf<double>(options, sizes)
                                        : BytesOf<float>(options, sizes);
}

}  // namespace

std::size_t ScratchBytes(const Options& options, const Sizes& sizes, int threads) {
  const std::size_t bytes = BytesOfWorker(options, sizes);
  return common::WorkerScratch::Bytes(threads, bytes + (threads > 1 ? SegmentBytes(sizes) : 0));
}

std::int64_t FactorNumbers(const Sizes& sizes, bool deferred) {
  const std::int64_t values = deferred ? sizes.value_dim : 0;
  return sizes.state == DType::kFloat64 ? FactorLayout<double>(sizes.key_dim, values).numbers
                                        : FactorLayout<float>(sizes.key_dim, values).numbers;
}

void Flush(const Call& call, Executor& executor) {
  const std::int64_t heads = call.b.size(1), items = call.b.size(0) * heads;
  RunOnWorkers(executor, executor.threads(), items, [&](std::int64_t item, int) {
    const MemoryState memory = MemoryStateOf(call, item / heads, item % heads);
    if (call.b.dtype() == DType::kFloat64) {
      Flush<double>(memory);
    } else {
      Flush<float>(memory);
    }
  });
}

void Forward(const Options& options, const Call& call, Executor& executor,
             std::span<std::byte> scratch) {
  const Work work(call);
  if (work.sequences.tokens() == 0 || work.items() == 0) return;
  const bool wide = work.sizes.state == DType::kFloat64;
  const MemoryRunner runner{options.rotates ? RunRotations
                            : wide          ? RunMemoryDouble
                                            : RunMemoryFloat,
                            BytesOfWorker(options, work.sizes)};
  const int threads = work.Threads(executor);
  const std::int64_t segments = options.rotates ? 1 : SegmentsOf(work, threads);
  if (segments > 1) {
    return RunSegments(options, work, segments, executor, scratch, runner);
  }
  const common::WorkerScratch workers("least_squares", scratch,
                                      common::WorkersOf(threads, work.items()), runner.bytes);
  workers.Run(executor, work.items(), [&](std::int64_t item, std::byte* own) {
    Memory memory = work.MemoryOf(item);
    memory.upcoming = work.UpcomingOf(item + threads);  // workers take items in order
    runner.run(options, memory, work.sizes, own);
  });
}

}  // namespace ttr::least_squares
