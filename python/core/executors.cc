#include "python/core/executors.h"

#include <unistd.h>

#include <map>
#include <memory>
#include <string>

#include "ttr/error.h"

namespace ttr::python {
namespace {

namespace nb = nanobind;

/// Has the pool been at work in a process that this one was forked from? Called under the GIL.
bool ForkedFromWork() {
  static const pid_t first = getpid();  // of the first process that works
  return first != getpid();
}

Executor& Pool(int threads) {
  // Never destroyed: at the end of the interpreter other threads may still be in a call.
  static auto& pools = *new std::map<int, std::unique_ptr<Executor>>();
  std::unique_ptr<Executor>& pool = pools[threads];
  if (pool == nullptr) pool = MakeExecutor(threads);
  return *pool;
}

}  // namespace

Executor& ExecutorFor(nb::handle threads) {
  if (threads.is_none()) return ForkedFromWork() ? SequentialExecutor() : DefaultExecutor();
  int number = 0;
  if (!nb::try_cast(threads, number) || number < 1) {
    throw Error("[threads] threads must be a number from 1, or None, but is " +
                std::string(nb::repr(threads).c_str()));
  }
  if (number == 1 || ForkedFromWork()) return SequentialExecutor();
  return Pool(number);
}

}  // namespace ttr::python
