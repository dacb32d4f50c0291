/// Many tasks over few workers, each of which owns a piece of scratch.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

#include "ttr/executor.h"

namespace ttr {

/// Calls task(item, worker) once for every item in [0, items), in order of the items as workers
/// come free; at any time each worker in [0, workers) runs one of them. One worker: on the calling
/// thread, without the executor.
template <class Task>
void RunOnWorkers(Executor& executor, int workers, std::int64_t items, const Task& task) {
  if (workers <= 1) {
    for (std::int64_t item = 0; item < items; ++item) task(item, 0);
    return;
  }
  std::atomic<std::int64_t> next{0};
  const auto work = [&](std::int64_t worker) {
    for (;;) {
      const std::int64_t item = next.fetch_add(1, std::memory_order_relaxed);
      if (item >= items) return;
      task(item, static_cast<int>(worker));
    }
  };
  executor.Run(workers, std::cref(work));  // a function of one address needs no memory
}

}  // namespace ttr
