#include "src/engines/least_squares/segments.h"

#include <algorithm>
#include <cmath>

#include "src/engines/common/tasks.h"
#include "src/engines/least_squares/scratch.h"

namespace ttr::least_squares {
namespace {

/// A segment shorter than this is not worth a thread.
constexpr std::int64_t kLeastTokens = 256;

/// Is this sequence cut? Packed sequences may be too short for that, and are run whole.
bool IsCut(const Memory& memory) { return memory.tokens >= 2 * kLeastTokens; }

std::int64_t SegmentNumbers(const Sizes& sizes) {
  return RoundUp(SavedNumbers(sizes.key_dim, sizes.value_dim), common::kLine<double>);
}

/// What writing costs, as a share of writing and reading. Both are counted in flops: sums in double
/// take as long as some 40 flops for every number of the memory and chunk, and what is solved or
/// iterated runs at .7 of the rate of the products that write.
double ShareOfWriting(const Options& options, const Sizes& sizes) {
  constexpr double kOfSum = 40;
  constexpr double kRateOfSolves = 0.7;
  constexpr std::int64_t kProbableSteps = 8;  // where a tolerance decides
  const auto d = static_cast<double>(sizes.key_dim);
  const auto dv = static_cast<double>(sizes.value_dim);
  const auto m = static_cast<double>(ChunkTokens(options, sizes.key_dim));
  const double numbers = d * d / 2 + d * dv;
  const double writes = 2 * numbers + kOfSum / m * numbers;
  const double reads = 2 * d * dv;
  double solves = 0, factors = 0;  // of a query, of a token
  if (options.iterates()) {
    const Iteration& how = options.iteration;
    const std::int64_t steps = how.tolerance > 0 ? std::min(how.steps, kProbableSteps) : how.steps;
    solves = static_cast<double>(steps) * (2 * d * d + 3 * m * d);
  } else if (options.own_systems()) {
    solves = 2 * d * d;
    factors = d * d * d / 3 + 3 * d * d;
  } else {
    solves = d * d + m * (2 * d + dv);
    factors = d * d + 2 * d * dv + m * (d + dv) + d * d * d / (3 * m);
  }
  const auto queries = static_cast<double>(sizes.queries);
  return writes / (writes + (queries * (solves + reads) + factors) / kRateOfSolves);
}

/// The tokens before segment p of n: (1 - r^p) / (1 - r^n) of all, r = 1 - share, so that all
/// take the same time.
std::int64_t Before(std::int64_t p, std::int64_t n, std::int64_t tokens, double share) {
  if (share == 0) return tokens * p / n;
  const auto part = [&](std::int64_t i) { return 1 - std::pow(1 - share, i); };
  return p == n ? tokens : std::llround(static_cast<double>(tokens) * part(p) / part(n));
}

template <class T>
void Store(const double* saved, const MemoryState& memory) {
  const std::int64_t keys = RoundUp(memory.key_dim, kUnit);
  const std::int64_t values = RoundUp(memory.value_dim, kUnit);
  T* const a = static_cast<T*>(memory.a);
  T* const b = static_cast<T*>(memory.b);
  for (std::int64_t i = 0; i < memory.key_dim; ++i) {
    for (std::int64_t j = i; j < memory.key_dim; ++j) {
      a[i * memory.a_stride + j] = a[j * memory.a_stride + i] = static_cast<T>(saved[j - i]);
    }
    saved += keys - i;
    for (std::int64_t j = 0; j < memory.value_dim; ++j) {
      b[i * memory.b_stride + j] = static_cast<T>(saved[j]);
    }
    saved += values;
  }
}

}  // namespace

std::int64_t SegmentsOf(const Work& work, int threads) {
  if (work.sizes.queries == 0) return 1;
  return std::max<std::int64_t>(std::min(work.sizes.tokens / kLeastTokens, threads / work.items()),
                                1);
}

std::size_t SegmentBytes(const Sizes& sizes) {
  return static_cast<std::size_t>(SegmentNumbers(sizes)) * sizeof(double);
}

void RunSegments(const Options& options, const Work& work, std::int64_t segments,
                 Executor& executor, std::span<std::byte> scratch, const MemoryRunner& runner) {
  const std::int64_t items = work.items();
  const auto workers = static_cast<int>(segments * items);
  const common::WorkerScratch worker_scratch(
      "least_squares", scratch, workers, runner.bytes,
      static_cast<std::size_t>(workers) * SegmentBytes(work.sizes));
  auto* const starts = reinterpret_cast<double*>(worker_scratch.shared());
  // The memory as a segment begins; of the last one also as it ends.
  const auto start_of = [&](std::int64_t index) {
    return starts + index * SegmentNumbers(work.sizes);
  };
  const auto run_segment = [&](std::int64_t index, std::byte* own) {
    const std::int64_t p = index % segments;
    Memory memory = work.MemoryOf(index / segments);
    if (!IsCut(memory)) {
      if (p == 0) runner.run(options, memory, work.sizes, own);
      return;
    }
    const auto go = [&](Segment segment) {
      memory.segment = &segment;
      runner.run(options, memory, work.sizes, own);
      return segment.saved_at;
    };
    const bool waits = !memory.writes() || !options.causal;  // outputs come after all writes
    const double share = waits ? 0 : ShareOfWriting(options, work.sizes);
    Segment reader{.begin = waits ? memory.tokens : 0,
                   .first = Before(p, segments, memory.tokens, share),
                   .end = Before(p + 1, segments, memory.tokens, share)};
    if (memory.writes() && (p > 0 || waits)) {
      reader.start = start_of(index);
      reader.begin = go(
          {.end = waits ? memory.tokens : reader.first, .reads = false, .finish = start_of(index)});
    }
    if (p == segments - 1 && !waits) reader.finish = start_of(index);
    go(reader);
  };
  worker_scratch.Run(executor, items * segments, run_segment);
  for (std::int64_t item = 0; item < items; ++item) {
    const Memory memory = work.MemoryOf(item);
    if (!IsCut(memory) || !memory.writes()) continue;
    const double* const end = start_of((item + 1) * segments - 1);
    if (work.sizes.state == DType::kFloat64) {
      Store<double>(end, memory.state);
    } else {
      Store<float>(end, memory.state);
    }
  }
}

}  // namespace ttr::least_squares
