#include "tools/long_work.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "tools/command.h"
#include "ttr/plan.h"

namespace ttr::tools {
namespace {

constexpr double kFlopsPerSecond = 5e8;

}  // namespace

double DefinitionSeconds(double flops) { return flops / kFlopsPerSecond; }

double DefinitionSeconds(const Recipe& recipe, const Dims& dims, int threads) {
  Plan plan;
  plan.engine = kDefinition;
  Dims counted = dims;
  if (counted.hidden == 0) counted.hidden = recipe.function.expansion * dims.key_dim;
  // Half of the tokens are the pairs that a query sees on average, but a window bounds them.
  if (recipe.weights.window > 0) {
    counted.tokens = std::min(dims.tokens, 2 * recipe.weights.window);
  }
  const auto memories = static_cast<double>(dims.states() * dims.heads);
  const double at_once = std::clamp(memories, 1., static_cast<double>(std::max(1, threads)));
  const double tokens = static_cast<double>(dims.batch * dims.tokens * dims.heads);
  return DefinitionSeconds(EstimateCost(recipe, plan, counted).flops_per_token) * tokens / at_once;
}

std::string AboutHowLong(double seconds) {
  constexpr double kMinute = 60, kHour = 60 * kMinute, kDay = 24 * kHour, kYear = 365 * kDay;
  const auto text = [&](double unit, const char* name) {
    return fmt::format("{:.0f} {}", std::max(1., std::round(seconds / unit)), name);
  };
  if (seconds < 2 * kMinute) return text(1, "s");
  if (seconds < 2 * kHour) return text(kMinute, "min");
  if (seconds < 2 * kDay) return text(kHour, "h");
  if (seconds < 2 * kYear) return text(kDay, "days");
  return text(kYear, "years");
}

void NoteLongWork(std::string_view what, double seconds) {
  if (!(seconds > kLongSeconds)) return;
  Note(fmt::format("{} will take about {}: the definition is slow", what, AboutHowLong(seconds)));
}

ProgressExecutor::ProgressExecutor(Executor& executor, std::string label, std::int64_t tasks,
                                   bool quiet)
    : executor_(executor),
      progress_(std::move(label), tasks, {.quiet = quiet || isatty(STDERR_FILENO) == 0}) {
  clock_ = std::thread([this] {
    std::unique_lock lock(mutex_);
    while (!ended_.wait_for(lock, std::chrono::seconds(1), [this] { return end_; })) {
      progress_.Advance(0);
    }
  });
}

ProgressExecutor::~ProgressExecutor() {
  {
    const std::lock_guard lock(mutex_);
    end_ = true;
  }
  ended_.notify_one();
  clock_.join();
}

void ProgressExecutor::Run(std::int64_t count, const std::function<void(std::int64_t)>& task) {
  executor_.Run(count, [&](std::int64_t i) {
    task(i);
    progress_.Advance();
  });
}

}  // namespace ttr::tools
