// Rows of per-token numbers: conversion to and from the arithmetic's type, norms. Compiled once for
// every target; loops without sums are plain, and the compiler vectorises them.

#if defined(TTR_SIMD_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_SIMD_ROWS_INL_H_
#undef TTR_SIMD_ROWS_INL_H_
#else
#define TTR_SIMD_ROWS_INL_H_
#endif

#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "hwy/highway.h"
#include "src/simd/rows.h"
#include "src/simd/vector_map-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::simd {
namespace HWY_NAMESPACE {

template <class T>
T Widen(T x) {
  return x;
}
inline float Widen(Float16 x) { return ToFloat(x); }
inline float Widen(BFloat16 x) { return std::bit_cast<float>(std::uint32_t{x.bits} << 16); }

template <class To, class From>
To Narrow(From x) {
  if constexpr (std::is_same_v<To, Float16>) {
    return ToFloat16(x);
  } else if constexpr (!std::is_same_v<To, BFloat16>) {
    return static_cast<To>(x);
  } else if constexpr (std::is_same_v<From, double>) {
    return ToBFloat16(x);
  } else {
    // To nearest, ties to even; a NaN keeps its upper bits and stays quiet.
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
    const std::uint32_t rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
    const std::uint32_t result = std::isnan(x) ? bits | 0x400000u : rounded;
    return BFloat16{static_cast<std::uint16_t>(result >> 16)};
  }
}

#if HWY_TARGET != HWY_SCALAR

/// Narrow() of a vector, in the upper halves of its lanes.
template <class D>
HWY_INLINE auto NarrowInUpperHalves(D, hn::Vec<D> x) {
  const hn::RebindToUnsigned<D> du;
  const auto bits = hn::BitCast(du, x);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
  const auto rounded = hn::Add(hn::Add(bits, hn::Set(du, 0x7fffu)), odd);
  const auto quiet = hn::Or(bits, hn::Set(du, 0x400000u));
  return hn::IfThenElse(hn::RebindMask(du, hn::Eq(x, x)), rounded, quiet);
}

/// Two vectors as one of bfloat16.
template <class D>
HWY_INLINE auto NarrowBoth(D d, hn::Vec<D> low, hn::Vec<D> high) {
  const hn::Repartition<std::uint16_t, D> narrow;
  return hn::ConcatOdd(narrow, hn::BitCast(narrow, NarrowInUpperHalves(d, high)),
                       hn::BitCast(narrow, NarrowInUpperHalves(d, low)));
}

#endif

/// A vector from where its numbers lie: as they are, or as bfloat16 or float16.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> LoadWide(D d, const T* from) {
  return hn::LoadU(d, from);
}
template <class D>
HWY_INLINE hn::Vec<D> LoadWide(D d, const BFloat16* from) {
#if HWY_TARGET == HWY_SCALAR
  return hn::Set(d, Widen(*from));
#else
  const hn::RebindToUnsigned<D> du;
  const hn::Rebind<std::uint16_t, D> narrow;
  const auto bits = hn::LoadU(narrow, reinterpret_cast<const std::uint16_t*>(from));
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(du, bits)));
#endif
}

/// Calls use(the numbers at even places, those at odd places) of two vectors.
template <class D, class Use>
HWY_INLINE void LoadEvenAndOdd(D d, const BFloat16* from, const Use& use) {
#if HWY_TARGET == HWY_SCALAR
  use(LoadWide(d, from), LoadWide(d, from + 1));
#else
  const hn::RebindToUnsigned<D> du;
  const hn::Repartition<std::uint16_t, D> narrow;
  const auto both =
      hn::BitCast(du, hn::LoadU(narrow, reinterpret_cast<const std::uint16_t*>(from)));
  use(hn::BitCast(d, hn::ShiftLeft<16>(both)),
      hn::BitCast(d, hn::And(both, hn::Set(du, 0xffff0000u))));
#endif
}

template <class D>
HWY_INLINE hn::Vec<D> LoadWide(D d, const Float16* from) {
#if HWY_TARGET == HWY_SCALAR
  return hn::Set(d, Widen(*from));
#else
  const hn::Rebind<hwy::float16_t, D> narrow;
  return hn::PromoteTo(d, hn::LoadU(narrow, reinterpret_cast<const hwy::float16_t*>(from)));
#endif
}

template <class T, class From>
void ConvertFrom(const From* HWY_RESTRICT from, std::int64_t count, T* HWY_RESTRICT to) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = static_cast<T>(Widen(from[i]));
}

/// ConvertFrom() by vectors, apart: in line it would make LoadRow() slower for all other types.
template <class T>
HWY_NOINLINE void ConvertHalves(const Float16* from, std::int64_t count, T* to) {
  std::int64_t i = 0;
  if constexpr (std::is_same_v<T, float>) {
    const hn::ScalableTag<float> d;
    const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
    for (; i + lanes <= count; i += lanes) hn::StoreU(LoadWide(d, from + i), d, to + i);
  }
  for (; i < count; ++i) to[i] = static_cast<T>(Widen(from[i]));
}

/// Elements begin .. begin + count of token t's row.
template <class T>
void LoadRow(const Rows& rows, std::int64_t t, std::int64_t begin, std::int64_t count, T* to) {
  const std::int64_t offset = t * rows.stride + begin;
  switch (rows.dtype) {
    case DType::kFloat32:
      return ConvertFrom(static_cast<const float*>(rows.data) + offset, count, to);
    case DType::kFloat64:
      return ConvertFrom(static_cast<const double*>(rows.data) + offset, count, to);
    case DType::kFloat16:
      return ConvertHalves(static_cast<const Float16*>(rows.data) + offset, count, to);
    default: return ConvertFrom(static_cast<const BFloat16*>(rows.data) + offset, count, to);
  }
}

/// Stores a vector as its numbers lie: as they are, or as bfloat16 or float16.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE void StoreNarrow(D d, hn::Vec<D> x, T* to) {
  hn::StoreU(x, d, to);
}
template <class D>
HWY_INLINE void StoreNarrow([[maybe_unused]] D d, hn::Vec<D> x, BFloat16* to) {
#if HWY_TARGET == HWY_SCALAR
  *to = Narrow<BFloat16>(hn::GetLane(x));
#else
  const hn::Rebind<std::uint16_t, D> narrow;
  const auto bits = hn::ShiftRight<16>(NarrowInUpperHalves(d, x));
  hn::StoreU(hn::TruncateTo(narrow, bits), narrow, reinterpret_cast<std::uint16_t*>(to));
#endif
}

template <class D>
HWY_INLINE void StoreNarrow([[maybe_unused]] D d, hn::Vec<D> x, Float16* to) {
#if HWY_TARGET == HWY_SCALAR
  *to = Narrow<Float16>(hn::GetLane(x));
#else
  const hn::Rebind<hwy::float16_t, D> narrow;
  hn::StoreU(hn::DemoteTo(narrow, x), narrow, reinterpret_cast<hwy::float16_t*>(to));
#endif
}

template <class To, class T>
void ConvertTo(const T* HWY_RESTRICT from, std::int64_t count, To* HWY_RESTRICT to) {
  std::int64_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  if constexpr (std::is_same_v<To, BFloat16> && std::is_same_v<T, float>) {
    const hn::ScalableTag<float> d;
    const hn::Repartition<std::uint16_t, decltype(d)> narrow;
    constexpr std::int64_t kLanes = hn::MaxLanes(hn::ScalableTag<float>());
    for (; i + 2 * kLanes <= count; i += 2 * kLanes) {
      const auto both = NarrowBoth(d, hn::LoadU(d, from + i), hn::LoadU(d, from + i + kLanes));
      hn::StoreU(both, narrow, reinterpret_cast<std::uint16_t*>(to + i));
    }
  }
#endif
  for (; i < count; ++i) to[i] = Narrow<To>(from[i]);
}

/// Elements begin .. begin + count of token t = from.
template <class T>
void StoreRow(const T* from, std::int64_t t, std::int64_t begin, std::int64_t count,
              const Rows& rows) {
  const std::int64_t offset = t * rows.stride + begin;
  switch (rows.dtype) {
    case DType::kFloat32: return ConvertTo(from, count, static_cast<float*>(rows.data) + offset);
    case DType::kFloat64: return ConvertTo(from, count, static_cast<double*>(rows.data) + offset);
    case DType::kFloat16: return ConvertTo(from, count, static_cast<Float16*>(rows.data) + offset);
    default: return ConvertTo(from, count, static_cast<BFloat16*>(rows.data) + offset);
  }
}

/// One number of token t.
template <class T>
T LoadOne(const Rows& rows, std::int64_t t) {
  T value;
  LoadRow(rows, t, 0, 1, &value);
  return value;
}

template <class T>
double SumOfSquares(const T* x, std::int64_t count) {
  return WideDot(count, x, x);
}

template <class T>
void Multiply(T* x, std::int64_t count, T factor) {
  for (std::int64_t i = 0; i < count; ++i) x[i] *= factor;
}

/// What makes a key or query x one of unit length, of |x|^2.
inline double UnitFactorOf(double square) { return 1 / std::sqrt(square + 1e-6); }
template <class T>
double UnitFactor(const T* x, std::int64_t count) {
  return UnitFactorOf(SumOfSquares(x, count));
}

/// x / sqrt(|x|^2 / length + eps), in place; a zero row stays zero.
template <class T>
void DivideByNorm(T* x, std::int64_t count, double length, double eps) {
  const double norm = std::sqrt(SumOfSquares(x, count) / length + eps);
  if (norm == 0) return;
  for (std::int64_t i = 0; i < count; ++i) x[i] = static_cast<T>(static_cast<double>(x[i]) / norm);
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::simd
HWY_AFTER_NAMESPACE();

#endif  // TTR_SIMD_ROWS_INL_H_
