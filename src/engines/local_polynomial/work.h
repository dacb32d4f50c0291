/// The sizes of one call and its memories.
#pragma once

#include <cstddef>
#include <cstdint>

#include "src/engines/common/pair_work.h"
#include "src/engines/common/tasks.h"
#include "src/engines/local_polynomial/task.h"

namespace ttr::local_polynomial {

struct Work : common::PairWork<Options, Call, Sizes, Memory> {
  Monomials monomials;

  Work(const Options& o, const Call& c)
      : PairWork(o, c, c.ridge.defined() ? c.ridge : c.bandwidth, kQueries),
        monomials(c.key_dim(), o.degree) {
    sizes.degree = o.degree;
  }

  /// Flops of all fits, nearly.
  double flops() const {
    const std::int64_t held = call.state_k.defined() ? call.state_k.size(1) : 0;
    const auto pairs = static_cast<double>(sizes.tokens + held);
    const auto features = static_cast<double>(monomials.count);
    const auto channels = static_cast<double>(4 * sizes.key_dim + 2 * sizes.value_dim);
    const auto queries = static_cast<double>(memories() * heads.queries * sizes.tokens);
    return queries * pairs * (features * features + 4 * features + channels);
  }

  Memory MemoryOf(std::int64_t item, std::byte* shared) const {
    Memory m = PairWork::MemoryOf(item, shared);
    m.ridge = call.ridge.defined() ? call.ridge.At({item % heads.memories}) : options.ridge;
    return m;
  }
};

}  // namespace ttr::local_polynomial
