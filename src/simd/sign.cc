#include "src/simd/sign.h"

#include "src/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/simd/sign.cc"
#include "hwy/foreach_target.h"
//
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::simd {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// Which numbers of a vector are of the sign.
template <class D>
HWY_INLINE hn::Mask<D> Are(D d, Sign sign, hn::Vec<D> x) {
  return sign == Sign::kPositive ? hn::Gt(x, hn::Zero(d)) : hn::Lt(x, hn::Zero(d));
}

/// The same of the bits of bfloat16: from the least number to infinity, behind which NaN begins.
template <class D>
HWY_INLINE hn::Mask<D> AreBits(D d, Sign sign, hn::Vec<D> bits) {
  const bool positive = sign == Sign::kPositive;
  const auto zero = hn::Set(d, positive ? std::int16_t{0} : std::int16_t{-0x8000});
  const auto beyond = hn::Set(d, positive ? std::int16_t{0x7f81} : std::int16_t{-0x7f});
  return hn::And(hn::Gt(bits, zero), hn::Lt(bits, beyond));
}

/// Where the first block of vectors begins that holds one; behind the last whole block, if none
/// does. There is no branch within a block.
template <class T, class Test>
std::int64_t FirstBlock(const T* x, std::int64_t count, const Test& test) {
  const hn::ScalableTag<T> d;
  constexpr int kVectors = 4;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = 0;
  for (; i + kVectors * lanes <= count; i += kVectors * lanes) {
    auto found = test(hn::LoadU(d, x + i));
    for (int v = 1; v < kVectors; ++v) found = hn::Or(found, test(hn::LoadU(d, x + i + v * lanes)));
    if (!hn::AllFalse(d, found)) break;
  }
  return i;
}

template <class T>
std::int64_t FirstNumbers(Sign sign, const T* x, std::int64_t count) {
  return FirstBlock(x, count, [&](auto v) HWY_ATTR { return Are(hn::ScalableTag<T>(), sign, v); });
}

std::int64_t FirstFloats(Sign sign, const float* x, std::int64_t count) {
  return FirstNumbers(sign, x, count);
}
std::int64_t FirstDoubles(Sign sign, const double* x, std::int64_t count) {
  return FirstNumbers(sign, x, count);
}
std::int64_t FirstBits(Sign sign, const std::int16_t* x, std::int64_t count) {
  return FirstBlock(
      x, count, [&](auto v) HWY_ATTR { return AreBits(hn::ScalableTag<std::int16_t>(), sign, v); });
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ttr::simd {
namespace {

HWY_EXPORT(FirstFloats);
HWY_EXPORT(FirstDoubles);
HWY_EXPORT(FirstBits);

bool Is(Sign sign, double x) { return sign == Sign::kPositive ? x > 0 : x < 0; }

}  // namespace

std::int64_t FirstOf(Sign sign, const float* x, std::int64_t count) {
  std::int64_t i = TTR_DISPATCH(FirstFloats)(sign, x, count);
  while (i < count && !Is(sign, x[i])) ++i;
  return i;
}

std::int64_t FirstOf(Sign sign, const double* x, std::int64_t count) {
  std::int64_t i = TTR_DISPATCH(FirstDoubles)(sign, x, count);
  while (i < count && !Is(sign, x[i])) ++i;
  return i;
}

std::int64_t FirstOf(Sign sign, const BFloat16* x, std::int64_t count) {
  static_assert(sizeof(BFloat16) == sizeof(std::int16_t));
  std::int64_t i = TTR_DISPATCH(FirstBits)(sign, reinterpret_cast<const std::int16_t*>(x), count);
  while (i < count && !Is(sign, ToFloat(x[i]))) ++i;
  return i;
}

}  // namespace ttr::simd
#endif  // HWY_ONCE
