/// The sizes of one call and its memories.
#pragma once

#include "src/engines/common/pair_work.h"
#include "src/engines/common/tasks.h"
#include "src/engines/kernel_smoother/task.h"

namespace ttr::kernel_smoother {

struct Work : common::PairWork<Options, Call, Sizes, Memory> {
  Work(const Options& o, const Call& c) : PairWork(o, c, c.bandwidth, kQueries) {}
};

}  // namespace ttr::kernel_smoother
