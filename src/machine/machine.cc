#include "ttr/util/machine.h"

#include "src/simd/caches.h"
#include "src/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/machine/machine.cc"
#include "hwy/foreach_target.h"
//
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <iterator>
#include <string>
#include <vector>

#include "hwy/aligned_allocator.h"
#include "hwy/highway.h"
#include "src/linalg/tile-inl.h"
#include "src/simd/decay-inl.h"
#include "src/simd/unroll.h"

HWY_BEFORE_NAMESPACE();
namespace ttr {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace ln = ttr::linalg::HWY_NAMESPACE;
namespace sn = ttr::simd::HWY_NAMESPACE;

/// Vectors that a pass over memory takes at once; lengths are multiples of as many.
inline constexpr std::size_t kAtOnce = 8;

/// `count` rounds of multiply-adds on as many independent sums as kernels hold; flops done.
template <class T>
double Rounds(std::int64_t count, T seed, T* out) {
  const hn::ScalableTag<T> d;
  constexpr int kRows = ln::kTileRows;
  const auto factor = hn::Set(d, seed);
  ln::Tile<decltype(d), kRows, 2> tile;
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < 2; ++v) tile[r][v] = hn::Set(d, seed + static_cast<T>(2 * r + v));
  }
  for (std::int64_t i = 0; i < count; ++i) {
    TTR_UNROLL
    for (int r = 0; r < kRows; ++r) {
      TTR_UNROLL
      for (int v = 0; v < 2; ++v) tile[r][v] = hn::MulAdd(tile[r][v], factor, factor);
    }
  }
  auto sum = hn::Zero(d);
  for (int r = 0; r < kRows; ++r) sum = hn::Add(sum, hn::Add(tile[r][0], tile[r][1]));
  hn::StoreU(sum, d, out);
  return 2.0 * 2 * kRows * static_cast<double>(hn::Lanes(d)) * static_cast<double>(count);
}

double FloatRounds(std::int64_t count, float* out) { return Rounds<float>(count, 0.5f, out); }
double DoubleRounds(std::int64_t count, double* out) { return Rounds<double>(count, 0.5, out); }

/// data[i] *= factor
void Scale(float* data, std::size_t count, float factor) {
  const hn::ScalableTag<float> d;
  const std::size_t lanes = hn::Lanes(d);
  const auto f = hn::Set(d, factor);
  for (std::size_t i = 0; i < count; i += kAtOnce * lanes) {
    TTR_UNROLL
    for (std::size_t u = 0; u < kAtOnce; ++u) {
      float* at = data + i + u * lanes;
      hn::Store(hn::Mul(f, hn::Load(d, at)), d, at);
    }
  }
}

/// sum_i data[i]
float Sum(const float* data, std::size_t count) {
  const hn::ScalableTag<float> d;
  const std::size_t lanes = hn::Lanes(d);
  hn::Vec<decltype(d)> sums[kAtOnce];
  TTR_UNROLL
  for (std::size_t u = 0; u < kAtOnce; ++u) sums[u] = hn::Zero(d);
  for (std::size_t i = 0; i < count; i += kAtOnce * lanes) {
    TTR_UNROLL
    for (std::size_t u = 0; u < kAtOnce; ++u) {
      sums[u] = hn::Add(sums[u], hn::Load(d, data + i + u * lanes));
    }
  }
  auto sum = hn::Zero(d);
  TTR_UNROLL
  for (std::size_t u = 0; u < kAtOnce; ++u) sum = hn::Add(sum, sums[u]);
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

/// c = a factor + b
void Triad(const float* a, const float* b, float* c, std::size_t count, float factor) {
  const hn::ScalableTag<float> d;
  const std::size_t lanes = hn::Lanes(d);
  const auto f = hn::Set(d, factor);
  for (std::size_t i = 0; i < count; i += kAtOnce * lanes) {
    TTR_UNROLL
    for (std::size_t u = 0; u < kAtOnce; ++u) {
      const std::size_t at = i + u * lanes;
      hn::Store(hn::MulAdd(f, hn::Load(d, a + at), hn::Load(d, b + at)), d, c + at);
    }
  }
}

/// out[i] = exp(in[i]), in[i] <= 0, by the fastest exponential that the engines have.
void Exponentials(const float* in, float* out, std::size_t count) {
  const hn::ScalableTag<float> d;
  const std::size_t lanes = hn::Lanes(d);
  const auto rate = hn::Set(d, static_cast<float>(sn::kRateUnit<float>));
  const auto one = hn::Set(d, 1.0f);
  for (std::size_t i = 0; i < count; i += kAtOnce * lanes) {
    TTR_UNROLL
    for (std::size_t u = 0; u < kAtOnce; ++u) {
      const std::size_t at = i + u * lanes;
      hn::Store(sn::Fade(sn::RateDecay(d, hn::Load(d, in + at), rate), one), d, out + at);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ttr {

HWY_EXPORT(FloatRounds);
HWY_EXPORT(DoubleRounds);
HWY_EXPORT(Scale);
HWY_EXPORT(Sum);
HWY_EXPORT(Triad);
HWY_EXPORT(Exponentials);

namespace {

/// Floats that a pass takes at once where vectors are longest, 64 bytes; shorter ones divide it.
constexpr std::size_t kGrain = 8 * 64 / sizeof(float);

std::size_t WholeGrains(std::size_t floats) {
  return std::max<std::size_t>(1, floats / kGrain) * kGrain;
}

hwy::AlignedFreeUniquePtr<float[]> Filled(std::size_t count, float value) {
  auto data = hwy::AllocateAligned<float>(count);
  std::fill(data.get(), data.get() + count, value);
  return data;
}

/// Most of `work` a second: the best of a few goes of `passes` calls; `amount` is done by one.
template <class Work>
double Best(double amount, std::size_t passes, const Work& work) {
  constexpr int kGoes = 6;
  double best = 0;
  for (int go = 0; go < kGoes; ++go) {
    const auto start = std::chrono::steady_clock::now();
    for (std::size_t pass = 0; pass < passes; ++pass) work(pass);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    best = std::max(best, amount * static_cast<double>(passes) / took.count());
  }
  return best * 1e-9;
}

/// Passes over `bytes` that take long enough to time.
std::size_t Passes(std::size_t bytes) {
  return std::max<std::size_t>(1, (std::size_t{32} << 20) / bytes);
}

}  // namespace

std::vector<MemoryLevel> MemoryLevels() {
  constexpr std::string_view kNames[] = {"L1", "L2", "L3"};
  std::vector<MemoryLevel> levels;
  for (const std::int64_t bytes : simd::CacheLevels()) {
    if (levels.size() == std::size(kNames)) break;
    levels.push_back({kNames[levels.size()], static_cast<std::size_t>(bytes)});
  }
  levels.push_back({"DRAM", 0});
  return levels;
}

double MeasureIssueRate() {
  constexpr int kInstructions = 16, kRounds = 500;
  return Best(kInstructions, kRounds, [](std::size_t) {
#if defined(__GNUC__)
    // Nothing but the front end takes part in these.
    asm volatile(
        "nop\n nop\n nop\n nop\n nop\n nop\n nop\n nop\n"
        "nop\n nop\n nop\n nop\n nop\n nop\n nop\n nop");
#endif
  });
}

double MeasureFmaPeak(bool float64) {
  constexpr std::int64_t kRounds = 50000;
  float floats[64];
  double doubles[64];
  double flops = 0, kept = 0;
  const double rounds = Best(1, 1, [&](std::size_t) {
    flops = float64 ? TTR_DISPATCH(DoubleRounds)(kRounds, doubles)
                    : TTR_DISPATCH(FloatRounds)(kRounds, floats);
    kept += float64 ? doubles[0] : static_cast<double>(floats[0]);
  });
  return kept > 0 ? rounds * flops : 0;  // the sums are asked for, so that they are made
}

double MeasureExpRate() {
  const std::size_t count = WholeGrains(1024);
  const auto in = Filled(count, -0.5f);
  const auto out = Filled(count, 0.0f);
  return Best(static_cast<double>(count), 1000,
              [&](std::size_t) { TTR_DISPATCH(Exponentials)(in.get(), out.get(), count); });
}

double MeasureInPlaceBandwidth(std::size_t bytes) {
  const std::size_t count = WholeGrains(bytes / sizeof(float));
  const auto data = Filled(count, 1.0f);
  const std::size_t size = count * sizeof(float);
  return Best(2.0 * static_cast<double>(size), Passes(size), [&](std::size_t pass) {
    TTR_DISPATCH(Scale)(data.get(), count, pass % 2 == 0 ? 2.0f : 0.5f);
  });
}

double MeasureReadBandwidth(std::size_t bytes) {
  const std::size_t count = WholeGrains(bytes / sizeof(float));
  const auto data = Filled(count, 1.0f);
  const std::size_t size = count * sizeof(float);
  float kept = 0;
  const double best = Best(static_cast<double>(size), Passes(size),
                           [&](std::size_t) { kept += TTR_DISPATCH(Sum)(data.get(), count); });
  return kept > 0 ? best : 0;  // the sums are asked for, so that they are made
}

double MeasureStreamBandwidth(std::size_t bytes) {
  const std::size_t count = WholeGrains(bytes / (3 * sizeof(float)));
  const auto a = Filled(count, 1.0f);
  const auto b = Filled(count, 2.0f);
  const auto c = Filled(count, 0.0f);
  const std::size_t size = 3 * count * sizeof(float);
  return Best(static_cast<double>(size), Passes(size),
              [&](std::size_t) { TTR_DISPATCH(Triad)(a.get(), b.get(), c.get(), count, 0.5f); });
}

}  // namespace ttr
#endif  // HWY_ONCE
