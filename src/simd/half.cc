#include "src/simd/half.h"

#include "src/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/simd/half.cc"
#include "hwy/foreach_target.h"
//
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::simd {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// Converts whole vectors and returns how many numbers these are. One lane is no vector: its
/// conversions are not to nearest everywhere.
template <class From, class To, class Convert>
HWY_INLINE std::int64_t Vectors(const From* from, std::int64_t count, To* to,
                                const Convert& convert) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  if (lanes == 1) return 0;
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    convert(d, hn::Rebind<hwy::float16_t, decltype(d)>(), from + i, to + i);
  }
  return i;
}

std::int64_t WidenVectors(const hwy::float16_t* from, std::int64_t count, float* to) {
  return Vectors(from, count, to, [](auto d, auto half, const auto* x, float* y) HWY_ATTR {
    hn::StoreU(hn::PromoteTo(d, hn::LoadU(half, x)), d, y);
  });
}

std::int64_t NarrowVectors(const float* from, std::int64_t count, hwy::float16_t* to) {
  return Vectors(from, count, to, [](auto d, auto half, const float* x, auto* y) HWY_ATTR {
    hn::StoreU(hn::DemoteTo(half, hn::LoadU(d, x)), half, y);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ttr::simd {
namespace {

HWY_EXPORT(WidenVectors);
HWY_EXPORT(NarrowVectors);
static_assert(sizeof(Float16) == sizeof(hwy::float16_t));

}  // namespace

void Widen(const Float16* from, std::int64_t count, float* to) {
  std::int64_t i =
      TTR_DISPATCH(WidenVectors)(reinterpret_cast<const hwy::float16_t*>(from), count, to);
  for (; i < count; ++i) to[i] = ToFloat(from[i]);
}

void Narrow(const float* from, std::int64_t count, Float16* to) {
  std::int64_t i = TTR_DISPATCH(NarrowVectors)(from, count, reinterpret_cast<hwy::float16_t*>(to));
  for (; i < count; ++i) to[i] = ToFloat16(static_cast<double>(from[i]));
}

}  // namespace ttr::simd
#endif  // HWY_ONCE
