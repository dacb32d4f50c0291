// Recipes that only the definition runs are computed in double precision, token by token, which can
// take hours: commands say so before they begin, and show how far they are.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include "experiments/report/progress.h"
#include "ttr/executor.h"
#include "ttr/inputs.h"
#include "ttr/recipe.h"

namespace ttr::tools {

// Below this many seconds nothing is said.
inline constexpr double kLongSeconds = 5;

// How long the definition takes for so many useful flops (EstimateCost) on one thread: roughly, for
// its rate is between .3 and 2 GFLOP/s, by recipe and machine.
double DefinitionSeconds(double flops);

// Seconds of a call of these sizes, whose memories are spread over `threads`.
double DefinitionSeconds(const Recipe& recipe, const Dims& dims, int threads);

// "40 s", "3 min", "7 h", "12 days": as much as an estimate is good for.
std::string AboutHowLong(double seconds);

// A note on standard error that `what` will take about so long, if that is long.
void NoteLongWork(std::string_view what, double seconds);

// An executor that counts the tasks that another one has finished, and shows them in a bar where
// standard error is a terminal. The bar's clock goes on while a task takes long.
class ProgressExecutor : public Executor {
 public:
  // `tasks` over all calls of Run().
  ProgressExecutor(Executor& executor, std::string label, std::int64_t tasks, bool quiet);
  ~ProgressExecutor() override;

  int threads() const override { return executor_.threads(); }
  void Run(std::int64_t count, const std::function<void(std::int64_t)>& task) override;

 private:
  Executor& executor_;
  report::Progress progress_;
  std::mutex mutex_;
  std::condition_variable ended_;
  bool end_ = false;
  std::thread clock_;
};

}  // namespace ttr::tools
