// Rows of per-token inputs and outputs under this engine's options. Compiled once for every target.

#if defined(TTR_FAST_WEIGHTS_OPERANDS_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_FAST_WEIGHTS_OPERANDS_ROWS_INL_H_
#undef TTR_FAST_WEIGHTS_OPERANDS_ROWS_INL_H_
#else
#define TTR_FAST_WEIGHTS_OPERANDS_ROWS_INL_H_
#endif

#include <cstdint>
#include <type_traits>

#include "hwy/highway.h"
#include "src/engines/fast_weights/layout.h"
#include "src/simd/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::fast_weights {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

namespace sn = ttr::simd::HWY_NAMESPACE;

using sn::LoadOne;
using sn::LoadRow;
using sn::StoreRow;

/// Is any element of a row less than `value`?
template <class T>
HWY_INLINE bool AnyBelow(const T* row, std::int64_t count, double value) {
  std::int64_t i = 0;
  if constexpr (!std::is_same_v<T, BFloat16>) {
    const hn::ScalableTag<T> d;
    const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
    const auto limit = hn::Set(d, static_cast<T>(value));
    auto found = hn::Zero(d);  // a sum of lanes that are 1 where it is
    for (; i + lanes <= count; i += lanes) {
      found = hn::Add(found,
                      hn::IfThenElseZero(hn::Lt(hn::LoadU(d, row + i), limit), hn::Set(d, T(1))));
    }
    if (!hn::AllTrue(d, hn::Eq(found, hn::Zero(d)))) return true;
  }
  for (; i < count; ++i) {
    if (static_cast<double>(sn::Widen(row[i])) < value) return true;
  }
  return false;
}

/// Is any element of token t's row less than `value`?
inline bool AnyBelow(const Rows& rows, std::int64_t t, std::int64_t count, double value) {
  const std::int64_t offset = t * rows.stride;
  switch (rows.dtype) {
    case DType::kFloat32:
      return AnyBelow(static_cast<const float*>(rows.data) + offset, count, value);
    case DType::kFloat64:
      return AnyBelow(static_cast<const double*>(rows.data) + offset, count, value);
    default: return AnyBelow(static_cast<const BFloat16*>(rows.data) + offset, count, value);
  }
}

/// Zeros from `count` to `stride`.
template <class T>
HWY_INLINE void Pad(T* row, std::int64_t count, std::int64_t stride) {
  for (std::int64_t i = count; i < stride; ++i) row[i] = 0;
}

/// to = x (.) y, whole vectors; x of any alignment.
template <class T>
HWY_INLINE void MultiplyRows(const T* x, const T* y, std::int64_t count, T* to) {
  const hn::ScalableTag<T> d;
  for (std::int64_t i = 0; i < count; i += static_cast<std::int64_t>(hn::Lanes(d))) {
    hn::Store(hn::Mul(hn::LoadU(d, x + i), hn::Load(d, y + i)), d, to + i);
  }
}

/// to = x + factor y (.) z, whole vectors; `to` may be x.
template <class T>
HWY_INLINE void AddProduct(const T* x, T factor, const T* y, const T* z, std::int64_t count,
                           T* to) {
  const hn::ScalableTag<T> d;
  for (std::int64_t i = 0; i < count; i += static_cast<std::int64_t>(hn::Lanes(d))) {
    const auto product =
        hn::Mul(hn::Mul(hn::Set(d, factor), hn::Load(d, y + i)), hn::Load(d, z + i));
    hn::Store(hn::Add(hn::Load(d, x + i), product), d, to + i);
  }
}

/// x += factor y, whole vectors.
template <class T>
HWY_INLINE void AddMultiple(T factor, const T* y, std::int64_t count, T* x) {
  const hn::ScalableTag<T> d;
  for (std::int64_t i = 0; i < count; i += static_cast<std::int64_t>(hn::Lanes(d))) {
    hn::Store(hn::MulAdd(hn::Set(d, factor), hn::Load(d, y + i), hn::Load(d, x + i)), d, x + i);
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

/// x . y over the first `count` numbers, which need not fill whole vectors.
template <class T>
HWY_INLINE T DotFirst(const T* x, const T* y, std::int64_t count) {
  const std::int64_t whole =
      count - count % static_cast<std::int64_t>(hn::MaxLanes(hn::ScalableTag<T>()));
  T sum = Dot(x, y, whole);
  for (std::int64_t i = whole; i < count; ++i) sum += x[i] * y[i];
  return sum;
}

/// to = factor from, whole rows of one type.
template <class T>
HWY_INLINE void CopyScaled(const T* HWY_RESTRICT from, std::int64_t count, T factor,
                           T* HWY_RESTRICT to) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto factors = hn::Set(d, factor);
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    hn::StoreU(hn::Mul(factors, hn::LoadU(d, from + i)), d, to + i);
  }
  for (; i < count; ++i) to[i] = factor * from[i];
}

/// to = from, whole rows of one type.
template <class T>
HWY_INLINE void Copy(const T* HWY_RESTRICT from, std::int64_t count, T* HWY_RESTRICT to) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) hn::StoreU(hn::LoadU(d, from + i), d, to + i);
  for (; i < count; ++i) to[i] = from[i];
}

/// to = from, whole cache lines, stored past the caches.
template <class T>
HWY_INLINE void CopyPast(const T* HWY_RESTRICT from, std::int64_t count, T* HWY_RESTRICT to) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t i = 0; i < count; i += lanes) hn::Stream(hn::LoadU(d, from + i), d, to + i);
}

/// The first `count` numbers of row t, which are mostly of T already.
template <class T>
HWY_INLINE void LoadFirst(const Rows& rows, std::int64_t t, std::int64_t count, T* to) {
  if (rows.dtype != DTypeOf<T>()) return LoadRow(rows, t, 0, count, to);
  Copy(static_cast<const T*>(rows.data) + t * rows.stride, count, to);
}

/// The first numbers of token t's row, padded to `stride` with zeros.
template <class T>
HWY_INLINE void LoadPadded(const Rows& rows, std::int64_t t, std::int64_t count,
                           std::int64_t stride, T* to) {
  LoadFirst(rows, t, count, to);
  Pad(to, count, stride);
}

/// Row t of keys or queries in T, normalised if asked for.
template <class T>
void LoadKey(const Options& options, const Rows& rows, std::int64_t t, std::int64_t count, T* to) {
  LoadFirst(rows, t, count, to);
  if (options.normalise_qk) {
    sn::Multiply(to, count, static_cast<T>(sn::UnitFactor(to, count)));
  }
}

/// The output norm of a whole row; a zero row stays zero.
template <class T>
void NormaliseOutput(const Options& options, T* y, std::int64_t count) {
  if (options.output_norm == OutputNorm::kNone) return;
  const bool mean = options.output_norm == OutputNorm::kRms;
  sn::DivideByNorm(y, count, mean ? static_cast<double>(count) : 1, options.output_norm_eps);
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::fast_weights
HWY_AFTER_NAMESPACE();

#endif  // TTR_FAST_WEIGHTS_OPERANDS_ROWS_INL_H_
