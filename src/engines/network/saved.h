/// What Forward saves for Backward: which checkpoints, and where.
#pragma once

#include <cstddef>
#include <cstdint>

#include "src/engines/network/checkpoints.h"
#include "src/engines/network/work.h"

namespace ttr::network {

inline Levels LevelsOf(const Options& options, const Shape& shape, std::int64_t tokens,
                       DType dtype) {
  return dtype == DType::kFloat64 ? LevelsOf<double>(options, shape, tokens)
                                  : LevelsOf<float>(options, shape, tokens);
}

inline std::int64_t CheckpointBytes(const Options& options, const Shape& shape, DType dtype) {
  return dtype == DType::kFloat64 ? 8 * Checkpoint<double>(options, shape).Numbers()
                                  : 4 * Checkpoint<float>(options, shape).Numbers();
}

struct Saved {
  Levels levels;
  SavedWeights weights;

  explicit Saved(const Work& work)
      : levels(LevelsOf(work.options, work.sizes.shape, work.sequences.length(), work.sizes.dtype)),
        weights{.memory = work.call.saved,
                .bytes = CheckpointBytes(work.options, work.sizes.shape, work.sizes.dtype),
                .spacing = levels.pieces[0],
                .heads = work.heads.memories,
                .options = work.options} {}

  std::byte* Of(const Work& work, std::int64_t item) const {
    const auto task = common::Task::Of(item, work.heads.memories, 1);
    const common::Sequence sequence = work.sequences[task.sequence];
    return weights.Of(work.sequences.Place(sequence), task.sequence, sequence.tokens, task.head);
  }
};

}  // namespace ttr::network
