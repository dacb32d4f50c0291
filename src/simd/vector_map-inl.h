// Loops over rows of any length and alignment, a vector at a time: maps, sums, dot products.
// Compiled once for every target.

#if defined(TTR_SIMD_VECTOR_MAP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_SIMD_VECTOR_MAP_INL_H_
#undef TTR_SIMD_VECTOR_MAP_INL_H_
#else
#define TTR_SIMD_VECTOR_MAP_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::simd {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// The first `count` (fewer than the lanes) elements at `from`, and zeros. Reads no others: where
/// masked loads of the target may touch them, by way of the stack.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> LoadSome(D d, const T* from, std::int64_t count) {
#if HWY_MEM_OPS_MIGHT_FAULT
  HWY_ALIGN T lanes[hn::MaxLanes(d)] = {};
  for (std::int64_t i = 0; i < count; ++i) lanes[i] = from[i];
  return hn::Load(d, lanes);
#else
  return hn::MaskedLoad(hn::FirstN(d, static_cast<std::size_t>(count)), d, from);
#endif
}

template <class D, class T = hn::TFromD<D>>
HWY_INLINE void StoreSome(hn::Vec<D> v, D d, T* to, std::int64_t count) {
#if HWY_MEM_OPS_MIGHT_FAULT
  HWY_ALIGN T lanes[hn::MaxLanes(d)];
  hn::Store(v, d, lanes);
  for (std::int64_t i = 0; i < count; ++i) to[i] = lanes[i];
#else
  hn::BlendedStore(v, hn::FirstN(d, static_cast<std::size_t>(count)), d, to);
#endif
}

/// out[i] = op(d, in[i]...), i < count. `out` may be one of `in`. In the last vector `op` sees
/// zeros beyond the end.
template <class T, class Op, class... In>
HWY_INLINE void MapRows(std::int64_t count, T* out, const Op& op, const In*... in) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) hn::StoreU(op(d, hn::LoadU(d, in + i)...), d, out + i);
  if (i < count) StoreSome(op(d, LoadSome(d, in + i, count - i)...), d, out + i, count - i);
}

/// sum_i op(d, in[i]...), where `op` is zero of zeros. In two sums, so that the additions wait less
/// for each other.
template <class T, class Op, class... In>
HWY_INLINE T SumRows(std::int64_t count, const Op& op, const T* first, const In*... in) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  auto even = hn::Zero(d);
  auto odd = hn::Zero(d);
  std::int64_t i = 0;
  for (; i + 2 * lanes <= count; i += 2 * lanes) {
    even = op(d, even, hn::LoadU(d, first + i), hn::LoadU(d, in + i)...);
    odd = op(d, odd, hn::LoadU(d, first + i + lanes), hn::LoadU(d, in + i + lanes)...);
  }
  for (; i + lanes <= count; i += lanes) {
    even = op(d, even, hn::LoadU(d, first + i), hn::LoadU(d, in + i)...);
  }
  if (i < count) {
    odd = op(d, odd, LoadSome(d, first + i, count - i), LoadSome(d, in + i, count - i)...);
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(even, odd)));
}

template <class T>
HWY_INLINE T Sum(std::int64_t count, const T* x) {
  return SumRows(count, [](auto, auto sum, auto a) HWY_ATTR { return hn::Add(sum, a); }, x);
}

template <class T>
HWY_INLINE T Dot(std::int64_t count, const T* x, const T* y) {
  const auto add = [](auto, auto sum, auto a, auto b) HWY_ATTR { return hn::MulAdd(a, b, sum); };
  return SumRows(count, add, x, y);
}

/// sum_i term(double(x[i])), in double and in eight sums: for what must not overflow, vanish or
/// cancel in float.
template <class T, class Term>
HWY_INLINE double WideSum(std::int64_t count, const T* x, const Term& term) {
  double sums[8] = {};
  std::int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    for (int j = 0; j < 8; ++j) sums[j] += term(static_cast<double>(x[i + j]));
  }
  for (; i < count; ++i) sums[0] += term(static_cast<double>(x[i]));
  return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

/// sum_i x[i] y[i] in double, in two vectors of sums.
template <class T>
HWY_INLINE double WideDot(std::int64_t count, const T* x, const T* y) {
  const hn::ScalableTag<double> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  auto load = [&](const T* from) HWY_ATTR {
    if constexpr (sizeof(T) == sizeof(double)) {
      return hn::LoadU(d, from);
    } else {
      return hn::PromoteTo(d, hn::LoadU(hn::Rebind<T, decltype(d)>(), from));
    }
  };
  auto even = hn::Zero(d), odd = hn::Zero(d);
  std::int64_t i = 0;
  for (; i + 2 * lanes <= count; i += 2 * lanes) {
    even = hn::MulAdd(load(x + i), load(y + i), even);
    odd = hn::MulAdd(load(x + i + lanes), load(y + i + lanes), odd);
  }
  double sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(even, odd)));
  for (; i < count; ++i) sum += static_cast<double>(x[i]) * static_cast<double>(y[i]);
  return sum;
}

/// y += a x
template <class T>
HWY_INLINE void AddScaled(std::int64_t count, T a, const T* x, T* y) {
  const auto add = [a](auto d, auto u, auto v) HWY_ATTR { return hn::MulAdd(hn::Set(d, a), u, v); };
  MapRows(count, y, add, x, static_cast<const T*>(y));
}

// Products with a matrix are functions of their own: a call costs nothing beside them, and a copy
// in every feature map would.

/// Rows of a matrix that are taken together: what belongs to all of them is read once.
inline constexpr std::int64_t kRowsTogether = 8;

/// y += sum_r a_r w_r, rows w_r of length `dim` one after another.
template <class T>
HWY_NOINLINE void AddRows(const T* a, const T* w, std::int64_t dim, std::int64_t rows, T* y) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t r = 0;
  for (; r + kRowsTogether <= rows; r += kRowsTogether) {
    const T* const row = w + r * dim;
    std::int64_t c = 0;
    for (; c + lanes <= dim; c += lanes) {
      auto even = hn::LoadU(d, y + c);
      auto odd = hn::Zero(d);
      for (std::int64_t j = 0; j < kRowsTogether; j += 2) {
        even = hn::MulAdd(hn::Set(d, a[r + j]), hn::LoadU(d, row + j * dim + c), even);
        odd = hn::MulAdd(hn::Set(d, a[r + j + 1]), hn::LoadU(d, row + (j + 1) * dim + c), odd);
      }
      hn::StoreU(hn::Add(even, odd), d, y + c);
    }
    for (; c < dim; ++c) {
      for (std::int64_t j = 0; j < kRowsTogether; ++j) y[c] += a[r + j] * row[j * dim + c];
    }
  }
  for (; r < rows; ++r) AddScaled(dim, a[r], w + r * dim, y);
}

/// w_r += a_r x.
template <class T>
HWY_NOINLINE void AddOuter(const T* a, const T* x, std::int64_t dim, std::int64_t rows, T* w) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t r = 0;
  for (; r + kRowsTogether <= rows; r += kRowsTogether) {
    T* const row = w + r * dim;
    std::int64_t c = 0;
    for (; c + lanes <= dim; c += lanes) {
      const auto right = hn::LoadU(d, x + c);
      for (std::int64_t j = 0; j < kRowsTogether; ++j) {
        T* const to = row + j * dim + c;
        hn::StoreU(hn::MulAdd(hn::Set(d, a[r + j]), right, hn::LoadU(d, to)), d, to);
      }
    }
    for (; c < dim; ++c) {
      for (std::int64_t j = 0; j < kRowsTogether; ++j) row[j * dim + c] += a[r + j] * x[c];
    }
  }
  for (; r < rows; ++r) AddScaled(dim, a[r], x, w + r * dim);
}

/// out[r] = w_r . x + b_r, rows w_r of length `dim` one after another; b may be null.
template <class T>
HWY_NOINLINE void MultiplyRows(const T* w, const T* b, const T* x, std::int64_t dim,
                               std::int64_t rows, T* out) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t r = 0;
  for (; r + kRowsTogether <= rows; r += kRowsTogether) {
    const T* row = w + r * dim;
    hn::Vec<decltype(d)> sums[kRowsTogether];
    for (auto& sum : sums) sum = hn::Zero(d);
    std::int64_t c = 0;
    for (; c + lanes <= dim; c += lanes) {
      const auto right = hn::LoadU(d, x + c);
      for (std::int64_t j = 0; j < kRowsTogether; ++j) {
        sums[j] = hn::MulAdd(hn::LoadU(d, row + j * dim + c), right, sums[j]);
      }
    }
    if (c < dim) {
      const auto right = LoadSome(d, x + c, dim - c);
      for (std::int64_t j = 0; j < kRowsTogether; ++j) {
        sums[j] = hn::MulAdd(LoadSome(d, row + j * dim + c, dim - c), right, sums[j]);
      }
    }
    for (std::int64_t j = 0; j < kRowsTogether; ++j) {
      out[r + j] = hn::GetLane(hn::SumOfLanes(d, sums[j]));
    }
  }
  for (; r < rows; ++r) out[r] = Dot(dim, w + r * dim, x);
  if (b != nullptr) {
    const auto add = [](auto, auto u, auto v) HWY_ATTR { return hn::Add(u, v); };
    MapRows(rows, out, add, static_cast<const T*>(out), b);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::simd
HWY_AFTER_NAMESPACE();

#endif  // TTR_SIMD_VECTOR_MAP_INL_H_
