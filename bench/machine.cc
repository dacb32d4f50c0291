#include "bench/machine.h"

#include "src/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bench/machine.cc"
#include "hwy/foreach_target.h"
//
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <vector>

#include "hwy/aligned_allocator.h"
#include "hwy/highway.h"
#include "src/simd/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::bench {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace sn = ttr::simd::HWY_NAMESPACE;

/// `count` rounds of multiply-adds on as many independent sums as kernels hold; flops done.
template <class T>
double Rounds(std::int64_t count, T seed, T* out) {
  const hn::ScalableTag<T> d;
  constexpr int kRows = sn::kTileRows;
  const auto factor = hn::Set(d, seed);
  sn::Tile<decltype(d), kRows, 2> tile;
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

void Scale(float* data, std::size_t count, float factor) {
  const hn::ScalableTag<float> d;
  const auto f = hn::Set(d, factor);
  for (std::size_t i = 0; i < count; i += hn::Lanes(d)) {
    hn::Store(hn::Mul(f, hn::Load(d, data + i)), d, data + i);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::bench
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ttr::bench {

HWY_EXPORT(FloatRounds);
HWY_EXPORT(DoubleRounds);
HWY_EXPORT(Scale);

namespace {

double Seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

double FmaPeak(bool float64) {
  constexpr std::int64_t kRounds = 100000;
  double best = 0;
  float floats[64];
  double doubles[64];
  for (int repeat = 0; repeat < 12; ++repeat) {
    const double start = Seconds();
    const double flops = float64 ? TTR_DISPATCH(DoubleRounds)(kRounds, doubles)
                                 : TTR_DISPATCH(FloatRounds)(kRounds, floats);
    best = std::max(best, flops / (Seconds() - start));
  }
  return best * 1e-9;
}

double InPlaceBandwidth(std::size_t bytes) {
  const std::size_t count = bytes / sizeof(float);
  const auto data = hwy::AllocateAligned<float>(count);
  std::fill(data.get(), data.get() + count, 1.0f);
  const std::size_t passes = std::max<std::size_t>(1, (std::size_t{8} << 20) / bytes);
  double best = 0;
  for (int repeat = 0; repeat < 12; ++repeat) {
    const double start = Seconds();
    for (std::size_t pass = 0; pass < passes; ++pass) {
      TTR_DISPATCH(Scale)(data.get(), count, pass % 2 == 0 ? 2.0f : 0.5f);
    }
    best = std::max(best, 2.0 * static_cast<double>(bytes * passes) / (Seconds() - start));
  }
  return best * 1e-9;
}

}  // namespace ttr::bench
#endif  // HWY_ONCE
