/// How the threads of a call share its memories and their blocks: the same sums for any number.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "src/engines/common/tasks.h"
#include "src/engines/kernel_regression/work.h"

namespace ttr::kernel_regression {

/// Bytes of a memory, and of a worker beside it.
struct RoomBytes {
  std::size_t memory, worker;
};

/// Each worker has memories of its own, or all work on the blocks of one memory after the other.
struct Shares {
  int workers;
  bool own_memories;

  Shares(const Work& work, int threads)
      : workers(threads), own_memories(threads == 1 || work.memories() >= 2 * threads) {
    if (own_memories) workers = common::WorkersOf(threads, work.memories());
  }

  /// A caller that sizes a scratch may not know of the pairs of a state. A scratch with room for a
  /// call without them (`least`), but not for `needed`, is not used, and another is allocated.
  common::WorkerScratch Claim(std::span<std::byte> scratch, const RoomBytes& needed,
                              const RoomBytes& least) const {
    const auto bytes = [&](const RoomBytes& room) {
      return common::WorkerScratch::Bytes(workers, OfWorker(room), Shared(room));
    };
    if (scratch.size() >= bytes(least) && scratch.size() < bytes(needed)) scratch = {};
    return {"kernel_regression", scratch, workers, OfWorker(needed), Shared(needed)};
  }

  /// run(memory, its bytes, those of a worker, each); each(count, run(item, bytes of a worker))
  /// runs items that do not depend on each other.
  template <class Run>
  void ForMemories(const Work& work, Executor& executor, const common::WorkerScratch& room,
                   std::size_t worker, const Run& run) const {
    if (own_memories) {
      room.Run(executor, work.memories(), [&](std::int64_t item, std::byte* own) {
        run(item, own + worker, own, [own](std::int64_t count, const auto& one) {
          for (std::int64_t i = 0; i < count; ++i) one(i, own);
        });
      });
      return;
    }
    for (std::int64_t item = 0; item < work.memories(); ++item) {
      run(item, room.shared(), room.Of(0),
          [&](std::int64_t count, const auto& one) { room.Run(executor, count, one); });
    }
  }

 private:
  std::size_t OfWorker(const RoomBytes& room) const {
    return room.worker + (own_memories ? room.memory : 0);
  }
  std::size_t Shared(const RoomBytes& room) const { return own_memories ? 0 : room.memory; }
};

inline std::size_t SharedScratchBytes(int threads, const RoomBytes& room) {
  return common::WorkerScratch::Bytes(threads, room.memory + room.worker);
}

inline Task With(Task task, std::byte* scratch) {
  task.scratch = scratch;
  return task;
}

/// The factor of a memory, and E; its pairs are weighed.
template <class Each>
void MakeFactor(const Task& task, DType dtype, const Each& each) {
  const Extent extent(task.room);
  const std::int64_t blocks = common::CeilDiv(task.memory.all(), extent.block);
  const std::int64_t first = task.progress().done / extent.block;
  each(blocks - first,
       [&](std::int64_t item, std::byte*) { LoadBlock(task, first + item, dtype); });
  FindNonfinite(task, dtype);
  each(blocks - first, [&](std::int64_t item, std::byte* own) {
    FillColumns(With(task, own), blocks - 1 - item, dtype);
  });
  for (std::int64_t b = 0; b < blocks; ++b) {
    const bool whole = FactorDiagonal(task, b, dtype);
    const std::int64_t later = std::max(b + 1, first);
    const std::int64_t columns = whole ? blocks - later : 0;
    each(columns + (b >= first ? 1 : 0), [&](std::int64_t item, std::byte*) {
      SolveRows(task, b, item < columns ? later + item : extent.blocks, dtype);
    });
    if (!whole) return;
  }
}

}  // namespace ttr::kernel_regression
