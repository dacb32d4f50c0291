// Rows of per-token inputs and outputs: conversion to and from the arithmetic's type, norms.
// Compiled once for every target; the loops are plain, and the compiler vectorises them.

#if defined(TTR_FAST_WEIGHTS_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_FAST_WEIGHTS_ROWS_INL_H_
#undef TTR_FAST_WEIGHTS_ROWS_INL_H_
#else
#define TTR_FAST_WEIGHTS_ROWS_INL_H_
#endif

#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "hwy/highway.h"
#include "src/engines/fast_weights/layout.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::fast_weights {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

template <class T>
T Widen(T x) {
  return x;
}
inline float Widen(BFloat16 x) { return std::bit_cast<float>(std::uint32_t{x.bits} << 16); }

template <class To, class From>
To Narrow(From x) {
  if constexpr (!std::is_same_v<To, BFloat16>) {
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

template <class T, class From>
void ConvertFrom(const From* HWY_RESTRICT from, std::int64_t count, T* HWY_RESTRICT to) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = static_cast<T>(Widen(from[i]));
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
    default: return ConvertFrom(static_cast<const BFloat16*>(rows.data) + offset, count, to);
  }
}

template <class T>
void StoreRow(const T* HWY_RESTRICT from, std::int64_t count, void* data, DType dtype,
              std::int64_t offset) {
  switch (dtype) {
    case DType::kFloat32: {
      float* HWY_RESTRICT to = static_cast<float*>(data) + offset;
      for (std::int64_t i = 0; i < count; ++i) to[i] = Narrow<float>(from[i]);
      return;
    }
    case DType::kFloat64: {
      double* HWY_RESTRICT to = static_cast<double*>(data) + offset;
      for (std::int64_t i = 0; i < count; ++i) to[i] = Narrow<double>(from[i]);
      return;
    }
    default: {
      BFloat16* HWY_RESTRICT to = static_cast<BFloat16*>(data) + offset;
      for (std::int64_t i = 0; i < count; ++i) to[i] = Narrow<BFloat16>(from[i]);
      return;
    }
  }
}

/// One gate of token t.
template <class T>
T LoadGate(const Rows& rows, std::int64_t t) {
  T value;
  LoadRow(rows, t, 0, 1, &value);
  return value;
}

/// Is any element of a row equal to `value`?
template <class T>
HWY_INLINE bool AnyEquals(const T* row, std::int64_t count, double value) {
  std::int64_t i = 0;
  if constexpr (!std::is_same_v<T, BFloat16>) {
    const hn::ScalableTag<T> d;
    const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
    const auto wanted = hn::Set(d, static_cast<T>(value));
    auto found = hn::Zero(d);  // a sum of lanes that are 1 where it is
    for (; i + lanes <= count; i += lanes) {
      found = hn::Add(found,
                      hn::IfThenElseZero(hn::Eq(hn::LoadU(d, row + i), wanted), hn::Set(d, T(1))));
    }
    if (!hn::AllTrue(d, hn::Eq(found, hn::Zero(d)))) return true;
  }
  for (; i < count; ++i) {
    if (static_cast<double>(Widen(row[i])) == value) return true;
  }
  return false;
}

/// The same of token t's row.
inline bool AnyEquals(const Rows& rows, std::int64_t t, std::int64_t count, double value) {
  const std::int64_t offset = t * rows.stride;
  switch (rows.dtype) {
    case DType::kFloat32:
      return AnyEquals(static_cast<const float*>(rows.data) + offset, count, value);
    case DType::kFloat64:
      return AnyEquals(static_cast<const double*>(rows.data) + offset, count, value);
    default: return AnyEquals(static_cast<const BFloat16*>(rows.data) + offset, count, value);
  }
}

/// x . y, whole vectors.
template <class T>
HWY_INLINE T Dot(const T* x, const T* y, std::int64_t count) {
  const hn::ScalableTag<T> d;
  auto sum = hn::Zero(d);
  for (std::int64_t i = 0; i < count; i += static_cast<std::int64_t>(hn::Lanes(d))) {
    sum = hn::MulAdd(hn::Load(d, x + i), hn::Load(d, y + i), sum);
  }
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

/// In four sums, so that the additions need not wait for each other; in double, so that squares
/// neither overflow nor vanish for float.
template <class T>
double SumOfSquares(const T* x, std::int64_t count) {
  double sums[4] = {0, 0, 0, 0};
  std::int64_t i = 0;
  for (; i + 4 <= count; i += 4) {
    for (int j = 0; j < 4; ++j) {
      sums[j] += static_cast<double>(x[i + j]) * static_cast<double>(x[i + j]);
    }
  }
  for (; i < count; ++i) sums[0] += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

template <class T>
void Multiply(T* x, std::int64_t count, T factor) {
  for (std::int64_t i = 0; i < count; ++i) x[i] *= factor;
}

/// x -= factor times token t's row.
template <class T>
void SubtractRow(const Rows& rows, std::int64_t t, std::int64_t count, T factor, T* x) {
  for (std::int64_t i = 0; i < count; ++i) {
    T element;
    LoadRow(rows, t, i, 1, &element);
    x[i] -= factor * element;
  }
}

/// Row t of keys or queries in T, normalised if asked for.
template <class T>
void LoadKey(const Options& options, const Rows& rows, std::int64_t t, std::int64_t count, T* to) {
  LoadRow(rows, t, 0, count, to);
  if (options.normalise_qk) {
    Multiply(to, count, static_cast<T>(1 / std::sqrt(SumOfSquares(to, count) + 1e-6)));
  }
}

/// The output norm of a whole row; a zero row stays zero.
template <class T>
void NormaliseOutput(const Options& options, T* y, std::int64_t count) {
  if (options.output_norm == OutputNorm::kNone) return;
  double sum = SumOfSquares(y, count);
  if (options.output_norm == OutputNorm::kRms) sum /= static_cast<double>(count);
  const double norm = std::sqrt(sum + options.output_norm_eps);
  if (norm != 0) {
    for (std::int64_t i = 0; i < count; ++i) {
      y[i] = static_cast<T>(static_cast<double>(y[i]) / norm);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::fast_weights
HWY_AFTER_NAMESPACE();

#endif  // TTR_FAST_WEIGHTS_ROWS_INL_H_
