/// The parts of a sequence: tokens of one mini-batch, kBlock at the most.
#pragma once

#include <algorithm>
#include <cstdint>

#include "src/engines/network/task.h"

namespace ttr::network {

class Parts {
 public:
  /// Parts of a sequence that begins at `place` of a mini-batch.
  Parts(const Options& options, std::int64_t place, std::int64_t tokens)
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
  Part operator[](std::int64_t p) const {
    const std::int64_t first_parts = common::CeilDiv(head_, kBlock);
    Part part;
    if (p < first_parts) {
      part.first = p * kBlock;
      part.place = place_ + part.first;
    } else {
      const std::int64_t batch = (p - first_parts) / each_;
      part.place = (p - first_parts) % each_ * kBlock;
      part.first = head_ + batch * options_.mini_batch + part.place;
    }
    part.count = std::min({options_.mini_batch - part.place, kBlock, tokens_ - part.first});
    part.ends = part.place + part.count == options_.mini_batch;
    const bool resumes = p == 0 || part.place > 0;
    part.has_anchor = options_.has_anchors() && resumes;
    part.has_second = options_.has_second() && (options_.momentum || resumes);
    return part;
  }

 private:
  const Options& options_;
  std::int64_t place_, tokens_, head_, each_;
};

}  // namespace ttr::network
