/// The chunks of a sequence: tokens of one mini-batch, kBlock at the most.
#pragma once

#include <algorithm>
#include <cstdint>

#include "src/engines/network/task.h"

namespace ttr::network {

class Chunks {
 public:
  /// Chunks of a sequence that begins at `place` of a mini-batch.
  Chunks(const Options& options, std::int64_t place, std::int64_t tokens)
      : options_(options),
        place_(place),
        tokens_(tokens),
        head_(std::min(options.mini_batch - place, tokens)),
        each_(common::CeilDiv(options.mini_batch, kBlock)) {}

  std::int64_t count() const {
    const std::int64_t rest = tokens_ - head_;
    return common::CeilDiv(head_, kBlock) + rest / options_.mini_batch * each_ +
           common::CeilDiv(rest % options_.mini_batch, kBlock);
  }

  /// What a call finds at its beginning may be anything; afterwards a mini-batch begins with W_bar
  /// = A and, plainly, B = 0.
  Chunk operator[](std::int64_t p) const {
    const std::int64_t first_chunks = common::CeilDiv(head_, kBlock);
    Chunk chunk;
    if (p < first_chunks) {
      chunk.first = p * kBlock;
      chunk.place = place_ + chunk.first;
    } else {
      const std::int64_t batch = (p - first_chunks) / each_;
      chunk.place = (p - first_chunks) % each_ * kBlock;
      chunk.first = head_ + batch * options_.mini_batch + chunk.place;
    }
    chunk.count = std::min({options_.mini_batch - chunk.place, kBlock, tokens_ - chunk.first});
    chunk.ends = chunk.place + chunk.count == options_.mini_batch;
    const bool resumes = p == 0 || chunk.place > 0;
    chunk.has_anchor = options_.has_anchors() && resumes;
    chunk.has_second = options_.has_second() && (options_.momentum || resumes);
    return chunk;
  }

 private:
  const Options& options_;
  std::int64_t place_, tokens_, head_, each_;
};

}  // namespace ttr::network
