/// The tasks of a call, and the workers that take them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "src/engines/common/scratch_layout.h"
#include "src/parallel/claimed.h"
#include "src/parallel/workers.h"
#include "ttr/executor.h"

namespace ttr::common {

/// Limits below which a second thread costs more than it brings (some ten microseconds): flops, or
/// bytes for operators that pass over their rows once.
inline constexpr double kFlopsWorthThreads = 1e6;
inline constexpr std::int64_t kBytesWorthThreads = 1 << 18;

inline int ThreadsFor(const Executor& executor, bool worth_threads) {
  return worth_threads ? executor.threads() : 1;
}

/// Workers of so many threads that find a task.
inline int WorkersOf(int threads, std::int64_t tasks) {
  return static_cast<int>(std::min<std::int64_t>(threads, tasks));
}

/// Value columns of one memory, in parts that are tasks of their own.
struct ColumnParts {
  std::int64_t columns;          ///< of the memory
  std::int64_t width = columns;  ///< of a part; the last may have fewer
  std::int64_t count = 1;

  /// Parts of whole units of columns, as many as let `memories` employ all threads.
  void Cut(std::int64_t memories, int threads, std::int64_t unit) {
    if (memories == 0 || memories >= threads || columns == 0) return;
    const std::int64_t units = CeilDiv(columns, unit);
    Split(CeilDiv(units, std::min(units, CeilDiv(threads, memories))) * unit);
  }
  /// Parts of so many columns.
  void Split(std::int64_t part) {
    width = part;
    count = CeilDiv(columns, part);
  }

  std::int64_t First(std::int64_t part) const { return part * width; }
  std::int64_t Columns(std::int64_t part) const { return std::min(width, columns - First(part)); }
};

/// One task of sequences x heads x parts.
struct Task {
  std::int64_t sequence, head, part;

  static Task Of(std::int64_t item, std::int64_t heads, std::int64_t parts) {
    // A decode of small states would feel the divisions.
    const std::int64_t memory = parts == 1 ? item : item / parts;
    const std::int64_t n = memory / heads;
    return {n, memory - n * heads, item - memory * parts};
  }
};

/// Scratch of a call's workers: `bytes` for each, a multiple of kLineBytes, and `shared` after
/// them.
class WorkerScratch {
 public:
  /// Bytes that a caller has to give, wherever they begin.
  static std::size_t Bytes(int workers, std::size_t bytes, std::size_t shared = 0) {
    return static_cast<std::size_t>(workers) * bytes + shared + Claimed::kAlignment;
  }

  /// Throws where the caller gives too few bytes; allocates them where it gives none.
  WorkerScratch(std::string_view op, std::span<std::byte> given, int workers, std::size_t bytes,
                std::size_t shared = 0)
      : claimed_(op, given, Bytes(workers, bytes, shared)), workers_(workers), bytes_(bytes) {}

  int workers() const { return workers_; }
  std::byte* Of(int worker) const {
    return claimed_.start() + static_cast<std::size_t>(worker) * bytes_;
  }
  std::byte* shared() const { return Of(workers_); }

  /// Calls run(item, the scratch of the worker that takes it) for every item in [0, items).
  template <class RunItem>
  void Run(Executor& executor, std::int64_t items, const RunItem& run) const {
    RunOnWorkers(executor, workers_, items,
                 [&](std::int64_t item, int worker) { run(item, Of(worker)); });
  }

 private:
  Claimed claimed_;
  int workers_;
  std::size_t bytes_;
};

}  // namespace ttr::common
