#include "ttr/executor.h"

#include <oneapi/tbb/info.h>
#include <oneapi/tbb/parallel_for.h>
#include <oneapi/tbb/task_arena.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>

#include "src/parallel/thread_sanitizer.h"
#include "ttr/error.h"

namespace ttr {
namespace {

// Far above any machine; keeps a mistyped number from asking for a million threads.
constexpr int kMostThreads = 4096;

class Sequential final : public Executor {
 public:
  int threads() const override { return 1; }
  void Run(std::int64_t count, const std::function<void(std::int64_t)>& task) override {
    for (std::int64_t i = 0; i < count; ++i) task(i);
  }
};

// An arena of its own, so that what the caller does with oneTBB elsewhere neither widens nor
// narrows it. The calling thread is one of its threads. Work is divided for the asked number of
// threads; an arena wider than the machine would only make oneTBB complain on standard error.
class TbbExecutor final : public Executor {
 public:
  explicit TbbExecutor(int threads)
      : threads_(threads), arena_(std::min(threads, oneapi::tbb::info::default_concurrency())) {}

  int threads() const override { return threads_; }

  void Run(std::int64_t count, const std::function<void(std::int64_t)>& task) override {
    if (count <= 1 || threads_ == 1) {
      for (std::int64_t i = 0; i < count; ++i) task(i);
      return;
    }
    SanitizerEvent start, end;
    start.Reach();
    arena_.execute([&] {
      const auto run = [&](std::int64_t i) {
        start.Await();
        task(i);
        end.Reach();
      };
      oneapi::tbb::parallel_for(std::int64_t{0}, count, run, oneapi::tbb::simple_partitioner());
    });
    end.Await();
  }

 private:
  int threads_;
  oneapi::tbb::task_arena arena_;
};

int CheckThreads(std::string_view where, std::string_view what, std::string_view given,
                 int threads) {
  if (threads < 1 || threads > kMostThreads) {
    throw Error(where, what, "a number from 1 to " + std::to_string(kMostThreads), given);
  }
  return threads;
}

int DefaultThreads() {
  const char* variable = std::getenv("TTR_THREADS");
  if (variable == nullptr || *variable == '\0') {
    return oneapi::tbb::info::default_concurrency();
  }
  const std::string_view text(variable);
  int threads = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), threads);
  if (failure != std::errc() || end != text.data() + text.size()) threads = 0;
  return CheckThreads("executor", "TTR_THREADS", "\"" + std::string(text) + "\"", threads);
}

}  // namespace

Executor& SequentialExecutor() {
  static Sequential executor;
  return executor;
}

Executor& DefaultExecutor() {
  // A constructor that throws leaves the static unmade: every use reports the bad value.
  static TbbExecutor executor(DefaultThreads());
  return executor;
}

std::unique_ptr<Executor> MakeExecutor(int threads) {
  CheckThreads("executor", "threads", std::to_string(threads), threads);
  return std::make_unique<TbbExecutor>(threads);
}

}  // namespace ttr
