#include "tools/bench_estimate.h"

#include <algorithm>

#include "tools/bench_work.h"
#include "ttr/executor.h"

namespace ttr::tools {
namespace {

double Flops(const Recipe& recipe, const Plan& plan, Dims dims, std::int64_t tokens) {
  dims.tokens = tokens;
  return EstimateCost(recipe, plan, dims).flops_per_token * static_cast<double>(tokens);
}

}  // namespace

std::optional<EstimatedTime> EstimateTime(const Recipe& recipe, const Plan& plan,
                                          const Dims& dims) {
  // The definition is a hundred times slower, and a single token may be much.
  const double enough = plan.engine == kDefinition ? 2e6 : 2e8;
  constexpr double kMost = 100, kMostBytes = 1 << 28;
  constexpr std::int64_t kMostTokens = 4096;
  if (dims.tokens == 0) return std::nullopt;
  std::int64_t timed = std::min(dims.tokens, kMostTokens);
  while (timed > 1 && Flops(recipe, plan, dims, timed) > enough) timed /= 2;
  Dims some = dims;
  some.tokens = timed;
  const Cost cost = EstimateCost(recipe, plan, some);
  if (cost.flops_per_token * static_cast<double>(timed) > kMost * enough ||
      cost.state_bytes > kMostBytes) {
    return std::nullopt;
  }
  BenchMemory memory;
  Work work("plan", recipe, {.dims = some}, SequentialExecutor(), memory);
  constexpr int kSamples = 3;
  for (int sample = 0; sample < kSamples; ++sample) work.Again();
  const double seconds = 1e-9 * work.LeastNs() * static_cast<double>(timed);
  const double flops = Flops(recipe, plan, dims, timed);
  const double more = flops > 0 ? Flops(recipe, plan, dims, dims.tokens) / flops
                                : static_cast<double>(dims.tokens) / static_cast<double>(timed);
  return EstimatedTime{seconds * more, timed};
}

}  // namespace ttr::tools
