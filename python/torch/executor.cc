#include "executor.h"

#include <torch/csrc/stable/ops.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>

namespace ttr::pytorch {
namespace {

/// What the tasks of one Run() share. PyTorch's loop gives every thread an equal part and loses the
/// text of what a part throws: so the parts are workers, which take the next task as they come
/// free, and the first exception is carried past the loop.
class Tasks {
 public:
  Tasks(std::int64_t count, const std::function<void(std::int64_t)>& task)
      : count_(count), task_(task) {}

  void Work() noexcept {
    try {
      for (;;) {
        const std::int64_t i = next_.fetch_add(1, std::memory_order_relaxed);
        if (i >= count_) return;
        task_(i);
      }
    } catch (...) {
      next_.store(count_, std::memory_order_relaxed);
      const std::lock_guard lock(mutex_);
      if (!thrown_) thrown_ = std::current_exception();
    }
  }

  void Rethrow() const {
    if (thrown_) std::rethrow_exception(thrown_);
  }

 private:
  const std::int64_t count_;
  const std::function<void(std::int64_t)>& task_;
  std::atomic<std::int64_t> next_{0};
  std::mutex mutex_;
  std::exception_ptr thrown_;
};

}  // namespace

TorchExecutor::TorchExecutor()
    : threads_(std::max(1, static_cast<int>(torch::stable::get_num_threads()))) {}

void TorchExecutor::Run(std::int64_t count, const std::function<void(std::int64_t)>& task) {
  const std::int64_t workers = std::min<std::int64_t>(count, threads_);
  if (workers <= 1) {
    for (std::int64_t i = 0; i < count; ++i) task(i);
    return;
  }
  Tasks tasks(count, task);
  torch::stable::parallel_for(0, workers, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t worker = begin; worker < end; ++worker) tasks.Work();
  });
  tasks.Rethrow();
}

}  // namespace ttr::pytorch
