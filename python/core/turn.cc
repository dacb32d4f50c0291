#include "python/core/turn.h"

#include <pthread.h>

#include <new>
#include <stdexcept>

namespace ttr::python {
namespace {

// How many forks lead to this process.
std::atomic<std::uint64_t> forks{0};

std::uint64_t Forks() {
  static const int registered = pthread_atfork(nullptr, nullptr, [] { ++forks; });
  static_cast<void>(registered);
  return forks.load(std::memory_order_relaxed);
}

}  // namespace

Turn::Turn() : forks_(Forks()) {}

void Turn::lock() {
  const std::uint64_t now = Forks();
  if (forks_.load(std::memory_order_acquire) != now) Recover(now);
  mutex_.lock();
  held_.store(true, std::memory_order_relaxed);
}

void Turn::Recover(std::uint64_t now) {
  static std::mutex one_at_a_time;
  const std::lock_guard guard(one_at_a_time);
  if (forks_.load(std::memory_order_relaxed) == now) return;
  if (held_.load(std::memory_order_relaxed)) {
    throw std::runtime_error(
        "[fork] a Decoder or a Memory must not be used in a child process if another thread was "
        "using "
        "it at the fork, but this one was: make it anew, or copy its state before the fork");
  }
  // A thread may have been about to let it go.
  new (&mutex_) std::mutex;
  forks_.store(now, std::memory_order_release);
}

}  // namespace ttr::python
