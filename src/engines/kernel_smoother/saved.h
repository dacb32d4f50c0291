/// What the forward pass saves of every query: its mean and the logarithm of its sum of weights.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "src/engines/kernel_smoother/work.h"

namespace ttr::kernel_smoother {

class Saved {
 public:
  explicit Saved(const Work& work) : work_(work) {}

  static std::size_t Bytes(const Sizes& sizes, std::int64_t queries) {
    return static_cast<std::size_t>(queries * (sizes.value_dim + 1)) * SizeOf(sizes.dtype);
  }

  explicit operator bool() const { return !work_.call.saved.empty(); }

  void* Logs(std::int64_t item) const { return At(First(item)); }
  void* Means(std::int64_t item) const {
    return At(Queries() + First(item) * work_.sizes.value_dim);
  }

 private:
  std::int64_t Queries() const {
    return work_.sequences.tokens() * work_.heads.memories * work_.heads.queries;
  }
  /// The place of a memory's first query.
  std::int64_t First(std::int64_t item) const {
    const std::int64_t n = item / work_.heads.memories, h = item % work_.heads.memories;
    const common::Sequence sequence = work_.sequences[n];
    return (work_.sequences.Place(sequence) * work_.heads.memories + h * sequence.tokens) *
           work_.heads.queries;
  }
  void* At(std::int64_t number) const {
    return work_.call.saved.data() + number * static_cast<std::int64_t>(SizeOf(work_.sizes.dtype));
  }

  const Work& work_;
};

}  // namespace ttr::kernel_smoother
