/// The sizes of one call and how it is cut into tasks.
#pragma once

#include <cstdint>
#include <span>

#include "src/engines/common/sequences.h"
#include "src/engines/common/tasks.h"
#include "src/engines/scan/matrix/task.h"
#include "src/engines/scan/saved_states.h"
#include "src/engines/scan/vector/task.h"

namespace ttr::scan {

struct Work {
  const Options& options;
  const Call& call;
  bool matrix;
  Sizes sizes;
  common::Sequences sequences;
  common::Heads heads;
  common::ColumnParts columns;  // of one memory: value_dim, or that of all heads
  SavedStates saved;

  /// `others`: further per-channel tensors that tasks read or write.
  Work(const Options& options, const Call& call, std::span<const TensorView> others = {});

  /// Columns are independent: cuts them into ranges of at least 256 bytes where memories alone do
  /// not employ all threads. An output norm needs whole rows.
  void Cut(int threads);

  /// Has a vector one gate, or one importance, for all its channels?
  bool shares_gates() const;

  std::int64_t memories() const { return sequences.count() * heads.memories; }
  std::int64_t tasks() const { return memories() * columns.count; }
  /// Entries of all memories of a sequence.
  std::int64_t entries() const;

  Vector VectorOf(std::int64_t item) const;
  Matrix MatrixOf(std::int64_t item) const;

 private:
  bool HeadsAreOneVector(std::span<const TensorView> others) const;
};

/// Calls visit(the task, its sequence, its first column).
template <class Visit>
void WithTask(const Work& work, std::int64_t item, const Visit& visit) {
  const auto task = common::Task::Of(item, work.heads.memories, work.columns.count);
  visit(task, work.sequences[task.sequence], work.columns.First(task.part));
}

}  // namespace ttr::scan
