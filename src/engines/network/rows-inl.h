// One token's row: norms with their gradients, keys and queries as the network sees them, what a
// matrix makes of it. Compiled once for every target.

#if defined(TTR_NETWORK_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_NETWORK_ROWS_INL_H_
#undef TTR_NETWORK_ROWS_INL_H_
#else
#define TTR_NETWORK_ROWS_INL_H_
#endif

#include <cmath>
#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/network/task.h"
#include "src/simd/rows-inl.h"
#include "src/simd/unroll.h"
#include "src/simd/vector_map-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::network {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace sn = ttr::simd::HWY_NAMESPACE;

inline constexpr double kNormEps = 1e-6;

/// Row t of keys or queries, of unit length where the options say so, times `scale`.
template <class T>
HWY_INLINE void LoadKey(const Options& options, const Rows& rows, std::int64_t t,
                        std::int64_t count, double scale, T* to) {
  sn::LoadRow(rows, t, 0, count, to);
  const double factor = options.normalise_qk ? scale * sn::UnitFactor(to, count) : scale;
  if (factor != 1) sn::Multiply(to, count, static_cast<T>(factor));
}

/// z <- (z - mean z) / sqrt(variance + eps). Returns the inverse of the root.
template <class T>
HWY_INLINE T Standardise(std::int64_t count, T* z) {
  const T mean = sn::Sum(count, z) / static_cast<T>(count);
  const T* const from = z;
  const auto square = [mean](auto tag, auto total, auto x, auto one) HWY_ATTR {
    const auto centred = hn::NegMulAdd(one, hn::Set(tag, mean), x);
    return hn::MulAdd(centred, centred, total);
  };
  // `one` is 0 beyond the end, where nothing is to be added.
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  auto sum = hn::Zero(d);
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    sum = square(d, sum, hn::LoadU(d, from + i), hn::Set(d, T(1)));
  }
  if (i < count) {
    const auto rest = hn::FirstN(d, static_cast<std::size_t>(count - i));
    sum = square(d, sum, sn::LoadSome(d, from + i, count - i),
                 hn::IfThenElseZero(rest, hn::Set(d, T(1))));
  }
  const T variance = hn::GetLane(hn::SumOfLanes(d, sum)) / static_cast<T>(count);
  const T inverse = 1 / std::sqrt(variance + static_cast<T>(kNormEps));
  const auto scale = [=](auto tag, auto x) HWY_ATTR {
    return hn::Mul(hn::Sub(x, hn::Set(tag, mean)), hn::Set(tag, inverse));
  };
  sn::MapRows(count, z, scale, from);
  return inverse;
}

/// g <- (g - mean g - z mean(g (.) z)) inverse, z standardised: what Standardise passes back.
template <class T>
HWY_INLINE void PassBack(std::int64_t count, const T* z, T inverse, T* g) {
  const T mean = sn::Sum(count, g) / static_cast<T>(count);
  const T along = sn::Dot(count, g, z) / static_cast<T>(count);
  const auto project = [=](auto d, auto x, auto at) HWY_ATTR {
    const auto rest = hn::NegMulAdd(at, hn::Set(d, along), hn::Sub(x, hn::Set(d, mean)));
    return hn::Mul(rest, hn::Set(d, inverse));
  };
  sn::MapRows(count, g, project, static_cast<const T*>(g), z);
}

template <class T>
HWY_INLINE void MultiplyRow(std::int64_t count, const T* by, T* x) {
  const auto multiply = [](auto, auto a, auto b) HWY_ATTR { return hn::Mul(a, b); };
  sn::MapRows(count, x, multiply, static_cast<const T*>(x), by);
}

/// to += x (.) y
template <class T>
HWY_INLINE void AddProduct(std::int64_t count, const T* x, const T* y, T* to) {
  const auto add = [](auto, auto sum, auto a, auto b) HWY_ATTR { return hn::MulAdd(a, b, sum); };
  sn::MapRows(count, to, add, static_cast<const T*>(to), x, y);
}
template <class T>
HWY_INLINE void AddRow(std::int64_t count, const T* x, T* to) {
  const auto add = [](auto, auto sum, auto a) HWY_ATTR { return hn::Add(sum, a); };
  sn::MapRows(count, to, add, static_cast<const T*>(to), x);
}

/// to <- factor from
template <class T>
HWY_INLINE void ScaleRow(std::int64_t count, T factor, const T* from, T* to) {
  const auto scale = [factor](auto d, auto x) HWY_ATTR { return hn::Mul(x, hn::Set(d, factor)); };
  sn::MapRows(count, to, scale, from);
}

/// y += sum_r a_r w_r, rows w_r `stride` numbers apart.
template <class T>
HWY_INLINE void AddRows(const T* a, const T* w, std::int64_t stride, std::int64_t count,
                        std::int64_t rows, T* y) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  constexpr std::int64_t kRows = sn::kRowsTogether;
  std::int64_t r = 0;
  for (; r + kRows <= rows; r += kRows) {
    const T* const row = w + r * stride;
    std::int64_t c = 0;
    for (; c + lanes <= count; c += lanes) {
      auto even = hn::LoadU(d, y + c);
      auto odd = hn::Zero(d);
      for (std::int64_t j = 0; j < kRows; j += 2) {
        even = hn::MulAdd(hn::Set(d, a[r + j]), hn::LoadU(d, row + j * stride + c), even);
        odd = hn::MulAdd(hn::Set(d, a[r + j + 1]), hn::LoadU(d, row + (j + 1) * stride + c), odd);
      }
      hn::StoreU(hn::Add(even, odd), d, y + c);
    }
    for (; c < count; ++c) {
      for (std::int64_t j = 0; j < kRows; ++j) y[c] += a[r + j] * row[j * stride + c];
    }
  }
  for (; r < rows; ++r) sn::AddScaled(count, a[r], w + r * stride, y);
}

/// out_r = w_r . x, rows w_r `stride` numbers apart.
template <class T>
HWY_INLINE void DotRows(const T* w, std::int64_t stride, const T* x, std::int64_t count,
                        std::int64_t rows, T* out) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  constexpr std::int64_t kRows = sn::kRowsTogether;
  std::int64_t r = 0;
  for (; r + kRows <= rows; r += kRows) {
    const T* const row = w + r * stride;
    hn::Vec<decltype(d)> sums[kRows];
    TTR_UNROLL
    for (std::int64_t j = 0; j < kRows; ++j) sums[j] = hn::Zero(d);
    std::int64_t c = 0;
    for (; c + lanes <= count; c += lanes) {
      const auto right = hn::LoadU(d, x + c);
      TTR_UNROLL
      for (std::int64_t j = 0; j < kRows; ++j) {
        sums[j] = hn::MulAdd(hn::LoadU(d, row + j * stride + c), right, sums[j]);
      }
    }
    TTR_UNROLL
    for (std::int64_t j = 0; j < kRows; ++j) {
      T sum = hn::GetLane(hn::SumOfLanes(d, sums[j]));
      for (std::int64_t i = c; i < count; ++i) sum += row[j * stride + i] * x[i];
      out[r + j] = sum;
    }
  }
  for (; r < rows; ++r) out[r] = sn::Dot(count, w + r * stride, x);
}

/// sum |x|: not finite where a number is not.
template <class T>
HWY_INLINE T Mass(std::int64_t count, const T* x) {
  return sn::SumRows(
      count, [](auto, auto sum, auto a) HWY_ATTR { return hn::Add(sum, hn::Abs(a)); }, x);
}

/// Are all numbers of these rows, `stride` apart, finite?
template <class T>
HWY_INLINE bool AllFinite(const T* w, std::int64_t stride, std::int64_t count, std::int64_t rows) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  auto sum = hn::Zero(d);  // x - x is 0, or NaN of what is not finite
  for (std::int64_t r = 0; r < rows; ++r, w += stride) {
    std::int64_t c = 0;
    for (; c + lanes <= count; c += lanes) {
      const auto x = hn::LoadU(d, w + c);
      sum = hn::Add(sum, hn::Sub(x, x));
    }
    if (c == count) continue;
    const auto x = sn::LoadSome(d, w + c, count - c);
    sum = hn::Add(sum, hn::Sub(x, x));
  }
  return hn::AllTrue(d, hn::Eq(sum, hn::Zero(d)));
}
template <class T>
HWY_INLINE bool AllFinite(std::int64_t count, const T* x) {
  return AllFinite(x, 0, count, 1);
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::network
HWY_AFTER_NAMESPACE();

#endif  // TTR_NETWORK_ROWS_INL_H_
