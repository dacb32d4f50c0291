/// Who runs the work: the library splits, an executor distributes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace ttr {

/// Runs independent tasks. ttr hands it whole memories (batch x heads) first; results do not
/// depend on how tasks are distributed, so any number of threads gives the same bits.
class Executor {
 public:
  virtual ~Executor() = default;

  /// How many tasks can run at once.
  virtual int threads() const = 0;

  /// Calls task(i) once for every i in [0, count), in any order, and returns when all are done.
  /// An exception of a task is thrown again here.
  virtual void Run(std::int64_t count, const std::function<void(std::int64_t)>& task) = 0;
};

/// Runs every task on the calling thread, in order.
Executor& SequentialExecutor();

/// oneTBB with as many threads as the machine has, or as TTR_THREADS says.
Executor& DefaultExecutor();

/// oneTBB with this many threads (1 or more).
std::unique_ptr<Executor> MakeExecutor(int threads);

}  // namespace ttr
