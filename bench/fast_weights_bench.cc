// Prefill and decode of the fast-weights engine, held against what the machine can do.
//
//     ttr_bench [--benchmark_filter=prefill] [--benchmark_format=json]
//
// Counters: ns a token and head; GFLOP/s on useful flops (6 Dk Dv a token and head for the delta
// rule, 4 for Hebbian); share of the peak of fused multiply-adds (of one thread, times the
// threads), or of the bandwidth of one thread's in-place update of as many bytes, both measured
// just before. TTR_TARGET forces a SIMD target, for kernels and limits.

#include <benchmark/benchmark.h>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "src/engines/fast_weights/fast_weights.h"
#include "ttr/executor.h"
#include "ttr/machine.h"
#include "ttr/tensor.h"

namespace ttr::bench {
namespace {

enum class Rule { kHebbian, kDelta, kGatedDelta };

struct Shapes {
  std::int64_t dim, tokens, heads;
  int threads = 1;
  DType data = DType::kFloat32;
  DType state = DType::kFloat32;
};

/// q, k, v of unit size, gates of a trained model's order; one call is timed.
class FastWeights {
 public:
  FastWeights(Rule rule, const Shapes& s)
      : executor_(MakeExecutor(s.threads)),
        q_(s.data, {1, s.tokens, s.heads, s.dim}),
        k_(q_),
        v_(q_),
        y_(q_),
        log_decay_(DType::kFloat32, {1, s.tokens, s.heads}),
        step_(log_decay_),
        state_(s.state, {1, s.heads, s.dim, s.dim}) {
    std::mt19937_64 random(1);
    std::normal_distribution<double> normal(0, 1 / std::sqrt(static_cast<double>(s.dim)));
    for (Tensor* tensor : {&q_, &k_, &v_}) {
      for (std::int64_t i = 0; i < tensor->elements(); ++i) {
        StoreElement(tensor->data(), s.data, i, normal(random));
      }
    }
    std::uniform_real_distribution<float> uniform(0.1f, 0.9f);
    for (float& x : log_decay_.as<float>()) x = -0.1f * uniform(random);
    for (float& x : step_.as<float>()) x = uniform(random);

    call_.q = q_;
    call_.k = k_;
    call_.v = v_;
    call_.y = y_;
    call_.state = state_;
    if (rule == Rule::kGatedDelta) call_.log_decay = log_decay_;
    if (rule == Rule::kHebbian) {
      options_.write = fast_weights::Write::kHebbian;
      options_.step = fast_weights::Step::kOne;
    } else {
      call_.step = step_;
    }
    scratch_.resize(fast_weights::ScratchBytes({s.tokens, s.dim, s.dim, 1, s.state}, s.threads));
  }

  void Run() { fast_weights::Forward(options_, call_, *executor_, scratch_); }

 private:
  std::unique_ptr<Executor> executor_;
  Tensor q_, k_, v_, y_, log_decay_, step_, state_;
  fast_weights::Options options_;
  fast_weights::Call call_;
  std::vector<std::byte> scratch_;
};

/// Seconds of the timed loop.
double Time(benchmark::State& state, FastWeights& work) {
  const auto start = std::chrono::steady_clock::now();
  for (auto _ : state) work.Run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void Prefill(benchmark::State& state, Rule rule, const Shapes& s) {
  FastWeights work(rule, s);
  work.Run();
  const double peak = MeasureFmaPeak(s.state == DType::kFloat64) * s.threads;
  const double seconds = Time(state, work);
  const double units = static_cast<double>(state.iterations() * s.tokens * s.heads);
  const double flops = (rule == Rule::kHebbian ? 4.0 : 6.0) * static_cast<double>(s.dim * s.dim);
  const double rate = 1e-9 * flops * units / seconds;
  state.counters["ns/token/head"] = 1e9 * seconds / units;
  state.counters["GFLOP/s"] = rate;
  state.counters["peak_GFLOP/s"] = peak;
  state.counters["share_of_peak"] = rate / peak;
}

void Decode(benchmark::State& state, Rule rule, const Shapes& s) {
  FastWeights work(rule, s);
  work.Run();
  const auto bytes = static_cast<std::size_t>(s.heads * s.dim * s.dim) * sizeof(float);
  const double bandwidth = MeasureInPlaceBandwidth(bytes);
  const double seconds = Time(state, work);
  const double rate =
      2e-9 * static_cast<double>(state.iterations()) * static_cast<double>(bytes) / seconds;
  state.counters["ns/token/head"] =
      1e9 * seconds / static_cast<double>(state.iterations() * s.heads);
  state.counters["GB/s"] = rate;
  state.counters["in_place_GB/s"] = bandwidth;
  state.counters["share_of_bandwidth"] = rate / bandwidth;
}

const char* Name(Rule rule) {
  switch (rule) {
    case Rule::kHebbian: return "hebbian";
    case Rule::kDelta: return "delta";
    case Rule::kGatedDelta: return "gated_delta";
  }
  return "";
}

std::string Describe(const char* what, Rule rule, const Shapes& s) {
  std::string name = std::string(what) + "/" + Name(rule) + "/d" + std::to_string(s.dim);
  if (s.tokens > 1) name += "/T" + std::to_string(s.tokens);
  name += "/H" + std::to_string(s.heads);
  if (s.data != DType::kFloat32) name += "/" + std::string(ttr::Name(s.data));
  if (s.threads > 1) name += "/threads" + std::to_string(s.threads);
  return name;
}

void Register(const char* what, Rule rule, const Shapes& s) {
  const std::string name = Describe(what, rule, s);
  auto* entry = benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) {
    s.tokens > 1 ? Prefill(state, rule, s) : Decode(state, rule, s);
  });
  entry->UseRealTime()->Unit(benchmark::kMicrosecond);
}

const bool kRegistered = [] {
  for (const Rule rule : {Rule::kGatedDelta, Rule::kDelta, Rule::kHebbian}) {
    for (const std::int64_t dim : {64, 128}) {
      for (const std::int64_t tokens : {512, 2048}) {
        for (const std::int64_t heads : {1, 8, 32}) {
          Register("prefill", rule, {dim, tokens, heads});
        }
      }
    }
  }
  const Rule gated = Rule::kGatedDelta;
  for (const std::int64_t dim : {64, 128}) {
    Register("prefill", gated, {dim, 2048, 1, 2});
    Register("prefill", gated, {dim, 2048, 32, 2});
    Register("prefill", gated, {dim, 512, 8, 1, DType::kBFloat16});
    Register("prefill", gated, {dim, 512, 8, 1, DType::kFloat64, DType::kFloat64});
    // 2 MiB of state in all stays in cache, 64 MiB does not.
    const std::int64_t heads = (std::int64_t{2} << 20) / (dim * dim * 4);
    for (const std::int64_t count : {heads, 32 * heads}) Register("decode", gated, {dim, 1, count});
    Register("decode", gated, {dim, 1, 32 * heads, 2});
  }
  return true;
}();

}  // namespace
}  // namespace ttr::bench
