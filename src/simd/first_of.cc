#include "src/simd/first_of.h"

#include <cmath>

#include "src/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/simd/first_of.cc"
#include "hwy/foreach_target.h"
//
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::simd {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// Which numbers of a vector are of the kind.
template <class D>
HWY_INLINE hn::Mask<D> Are(D d, Kind kind, hn::Vec<D> x) {
  switch (kind) {
    case Kind::kPositive: return hn::Gt(x, hn::Zero(d));
    case Kind::kNegative: return hn::Lt(x, hn::Zero(d));
    case Kind::kZero: return hn::Eq(x, hn::Zero(d));
    case Kind::kMinusInfinity: return hn::Eq(x, hn::Neg(hn::Inf(d)));
    default: return hn::Not(hn::IsFinite(x));
  }
}

/// Which bits of a narrow type, whose infinity has the bits `infinity`, are of the kind. Numbers of
/// one sign reach from the least to infinity, behind which NaN begins.
template <class D>
HWY_INLINE hn::Mask<D> AreBits(D d, Kind kind, std::int16_t infinity, hn::Vec<D> bits) {
  const auto exponent = hn::Set(d, infinity);
  if (kind == Kind::kNonfinite) return hn::Eq(hn::And(bits, exponent), exponent);
  const auto lowest = static_cast<std::int16_t>(infinity - 0x8000);  // the bits of -infinity
  if (kind == Kind::kMinusInfinity) return hn::Eq(bits, hn::Set(d, lowest));
  if (kind == Kind::kZero) return hn::Eq(hn::Add(bits, bits), hn::Zero(d));
  const bool positive = kind == Kind::kPositive;
  const auto zero = hn::Set(d, positive ? std::int16_t{0} : std::int16_t{-0x8000});
  const auto beyond = hn::Set(d, static_cast<std::int16_t>((positive ? infinity : lowest) + 1));
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
std::int64_t FirstNumbers(Kind kind, const T* x, std::int64_t count) {
  return FirstBlock(x, count, [&](auto v) HWY_ATTR { return Are(hn::ScalableTag<T>(), kind, v); });
}

std::int64_t FirstFloats(Kind kind, const float* x, std::int64_t count) {
  return FirstNumbers(kind, x, count);
}
std::int64_t FirstDoubles(Kind kind, const double* x, std::int64_t count) {
  return FirstNumbers(kind, x, count);
}
std::int64_t FirstBits(Kind kind, std::int16_t infinity, const std::int16_t* x,
                       std::int64_t count) {
  return FirstBlock(x, count, [&](auto v) HWY_ATTR {
    return AreBits(hn::ScalableTag<std::int16_t>(), kind, infinity, v);
  });
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

bool Is(Kind kind, double x) {
  switch (kind) {
    case Kind::kPositive: return x > 0;
    case Kind::kNegative: return x < 0;
    case Kind::kZero: return x == 0;
    case Kind::kMinusInfinity: return std::isinf(x) && x < 0;
    case Kind::kNonfinite: return !std::isfinite(x);
  }
  return false;
}

}  // namespace

std::int64_t FirstOf(Kind kind, const float* x, std::int64_t count) {
  std::int64_t i = TTR_DISPATCH(FirstFloats)(kind, x, count);
  while (i < count && !Is(kind, x[i])) ++i;
  return i;
}

std::int64_t FirstOf(Kind kind, const double* x, std::int64_t count) {
  std::int64_t i = TTR_DISPATCH(FirstDoubles)(kind, x, count);
  while (i < count && !Is(kind, x[i])) ++i;
  return i;
}

namespace {

template <class Narrow>
std::int64_t FirstOfNarrow(Kind kind, std::int16_t infinity, const Narrow* x, std::int64_t count) {
  static_assert(sizeof(Narrow) == sizeof(std::int16_t));
  const auto* const bits = reinterpret_cast<const std::int16_t*>(x);
  std::int64_t i = TTR_DISPATCH(FirstBits)(kind, infinity, bits, count);
  while (i < count && !Is(kind, ToFloat(x[i]))) ++i;
  return i;
}

}  // namespace

std::int64_t FirstOf(Kind kind, const BFloat16* x, std::int64_t count) {
  return FirstOfNarrow(kind, 0x7f80, x, count);
}

std::int64_t FirstOf(Kind kind, const Float16* x, std::int64_t count) {
  return FirstOfNarrow(kind, 0x7c00, x, count);
}

}  // namespace ttr::simd
#endif  // HWY_ONCE
