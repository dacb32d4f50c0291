/// Who runs the work of a call from Python.
#pragma once

#include <nanobind/nanobind.h>

#include "ttr/executor.h"

namespace ttr::python {

/// `threads` is None (as many as the machine has, or as TTR_THREADS says) or a number from 1.
///
/// A process that was forked from one whose pool had been at work gets the calling thread alone:
/// the pool's threads are not there any more, and oneTBB promises nothing of locks that they held.
/// (A pool that first starts in the child is its own.)
Executor& ExecutorFor(nanobind::handle threads);

}  // namespace ttr::python
