/// Threads take turns at an object of Python's.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

namespace ttr::python {

/// A mutex that knows of forks. A child has none of its parent's other threads, so what one of them
/// was using would stay locked for ever, and may be half written: there `lock` throws
/// std::runtime_error. What nobody was using is free in the child.
class Turn {
 public:
  Turn();
  void lock();
  void unlock() {
    held_.store(false, std::memory_order_relaxed);
    mutex_.unlock();
  }

 private:
  void Recover(std::uint64_t forks);

  std::mutex mutex_;
  std::atomic<bool> held_{false};
  std::atomic<std::uint64_t> forks_;  // that the mutex has seen
};

}  // namespace ttr::python
