/// One memory, and what a worker has for it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "src/engines/common/queries.h"
#include "src/engines/common/scratch_layout.h"
#include "src/engines/kernel_dictionary/kernel_dictionary.h"
#include "src/simd/rows.h"

namespace ttr::kernel_dictionary {

using simd::Rows;

/// One memory, one sequence.
struct Memory : common::QueriedPairs {
  double ridge = 0;
  Rows e{}, r{}, keys{}, l{};  // of the state; absent: it begins with nothing, and leaves nothing
  std::int64_t* count = nullptr;  // of the state
};

/// A worker's scratch: a copy of the memory, and rows.
struct Scratch {
  std::int64_t stride;  // of r and l
  double *e, *r, *keys, *l;
  double *k, *v, *z, *y;
  double* units;  // of a key: kMostPlain

  Scratch(const Sizes& sizes, common::ScratchLayout& layout)
      : stride(common::OddLines<double>(sizes.budget)) {
    e = layout.Take<double>(sizes.budget * sizes.value_dim);
    layout.Take(sizes.budget * stride, {&r, &l});
    keys = layout.Take<double>(sizes.budget * sizes.key_dim);
    k = layout.Take<double>(sizes.key_dim);
    layout.Take(sizes.value_dim, {&v, &y});
    layout.Take(sizes.budget, {&z, &units});
  }
};

/// The most k(d, d) of a key of D whose row of L and column of R are in the state as they are;
/// those of a longer one are in units of its sqrt(k(d, d)), which float32 need not hold, and its
/// row of L is negated to say so.
inline constexpr double kMostPlain = 0x1p32;

/// All tokens of a memory.
void RunMemory(const Options& options, const Memory& memory, std::byte* scratch);

}  // namespace ttr::kernel_dictionary
