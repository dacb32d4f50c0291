// Feature maps of W x + b. Compiled once for every target.

#if defined(TTR_ROWS_FEATURES_LINEAR_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_ROWS_FEATURES_LINEAR_INL_H_
#undef TTR_ROWS_FEATURES_LINEAR_INL_H_
#else
#define TTR_ROWS_FEATURES_LINEAR_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "hwy/highway.h"
#include "src/engines/rows/features/pointwise-inl.h"
#include "src/simd/elementary-inl.h"
#include "src/simd/vector_map-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::rows {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace sn = ttr::simd::HWY_NAMESPACE;

/// Features that the gradient takes together; their W x fits the stack.
inline constexpr std::int64_t kFeatureBlock = 128;

/// Calls visit(first, count, u) for u = (W x + b)[first .. first + count], all of them in order.
template <class T, class Visit>
HWY_INLINE void ForFeatures(const MapRow<T>& row, const T* b, const Visit& visit) {
  T u[kFeatureBlock];
  for (std::int64_t first = 0; first < row.features; first += kFeatureBlock) {
    const std::int64_t count = std::min(kFeatureBlock, row.features - first);
    sn::MultiplyRows(row.w + first * row.dim, b == nullptr ? nullptr : b + first, row.x, row.dim,
                     count, u);
    visit(first, count, u);
  }
}

/// slope(first, count, u) turns u into the gradient g of u. dx = W^T g, dW += g x^T, db += g. What
/// is returned is the sum of g.
template <class T, class Slope>
HWY_INLINE T LinearGradient(const MapRow<T>& row, const T* b, const MapGradient<T>& out,
                            const Slope& slope) {
  T sum = 0;
  std::fill(out.dx, out.dx + row.dim, T(0));
  ForFeatures(row, b, [&](std::int64_t first, std::int64_t count, T* u) HWY_ATTR {
    slope(first, count, u);
    sum += sn::Sum(count, u);
    sn::AddRows(static_cast<const T*>(u), row.w + first * row.dim, row.dim, count, out.dx);
    if (out.dw != nullptr) {
      sn::AddOuter(static_cast<const T*>(u), row.x, row.dim, count, out.dw + first * row.dim);
    }
    if (out.db != nullptr) sn::AddScaled(count, T(1), u, out.db + first);
  });
  return sum;
}

/// phi = f(W x + b), or [f(W x), h(W x)] where the functions, which F makes of a row, have
/// Second(). Gradient() returns the sum of the gradient of W x + b.
template <template <class> class F>
struct OfLinear {
  template <class T>
  void Value(const MapRow<T>& row, T* phi) const {
    const F<T> f(row);
    const T* const u = phi;  // in place
    sn::MultiplyRows(row.w, F<T>::kBiased ? row.b : nullptr, row.x, row.dim, row.features, phi);
    const auto first = [f](auto d, auto v) HWY_ATTR { return f.Of(d, v); };
    if constexpr (F<T>::kTwo) {
      const auto second = [f](auto d, auto v) HWY_ATTR { return f.Second(d, v); };
      sn::MapRows(row.features, phi + row.features, second, u);
    }
    sn::MapRows(row.features, phi, first, u);
  }
  template <class T>
  T Gradient(const MapRow<T>& row, const T* dphi, const MapGradient<T>& out) const {
    const F<T> f(row);
    const MapGradient<T> wanted{out.dx, out.dw, F<T>::kBiased ? out.db : nullptr};
    const auto slope = [&](std::int64_t first, std::int64_t count, T* u) HWY_ATTR {
      const T* const same = u;
      if constexpr (F<T>::kTwo) {
        const auto both = [f](auto d, auto v, auto g, auto h)
                              HWY_ATTR { return f.Slope(d, v, g, h); };
        sn::MapRows(count, u, both, same, dphi + first, dphi + row.features + first);
      } else {
        const auto one = [f](auto d, auto v, auto g) HWY_ATTR { return f.Slope(d, v, g); };
        sn::MapRows(count, u, one, same, dphi + first);
      }
    };
    return LinearGradient(row, F<T>::kBiased ? row.b : nullptr, wanted, slope);
  }
};

/// A function of u alone, with a bias.
template <class T, class Function>
struct Biased : Function {
  static constexpr bool kBiased = true, kTwo = false;
  explicit Biased(const MapRow<T>&) {}
};
template <class T>
using BiasedRelu = Biased<T, ReluOf>;
template <class T>
using BiasedExp = Biased<T, ExpOf>;
using T2r = OfLinear<BiasedRelu>;
using Dijiang = OfLinear<BiasedExp>;

/// exp(u) and exp(-u)
template <class T>
struct ExpOfBothSigns {
  static constexpr bool kBiased = false, kTwo = true;
  explicit ExpOfBothSigns(const MapRow<T>&) {}
  HWY_INLINE auto Of(auto d, auto u) const { return sn::Exp(d, u); }
  HWY_INLINE auto Second(auto d, auto u) const { return sn::Exp(d, hn::Neg(u)); }
  HWY_INLINE auto Slope(auto d, auto u, auto g, auto h) const {
    return hn::Sub(hn::Mul(g, sn::Exp(d, u)), hn::Mul(h, sn::Exp(d, hn::Neg(u))));
  }
};
using HedgehogExp = OfLinear<ExpOfBothSigns>;

/// 1 / sqrt(F)
template <class T>
T RootOf(const MapRow<T>& row) {
  return static_cast<T>(1 / std::sqrt(static_cast<double>(row.features)));
}

/// sin(u) / sqrt(F) and cos(u) / sqrt(F)
template <class T>
struct SineAndCosine {
  static constexpr bool kBiased = false, kTwo = true;
  T root;
  explicit SineAndCosine(const MapRow<T>& row) : root(RootOf(row)) {}
  HWY_INLINE auto Of(auto d, auto u) const { return hn::Mul(hn::Set(d, root), sn::Sin(d, u)); }
  HWY_INLINE auto Second(auto d, auto u) const { return hn::Mul(hn::Set(d, root), sn::Cos(d, u)); }
  HWY_INLINE auto Slope(auto d, auto u, auto g, auto h) const {
    const auto rotated = hn::Sub(hn::Mul(g, sn::Cos(d, u)), hn::Mul(h, sn::Sin(d, u)));
    return hn::Mul(hn::Set(d, root), rotated);
  }
};
using Rfa = OfLinear<SineAndCosine>;

/// exp(u - |x|^2 / 2) / sqrt(F)
template <class T>
struct PositiveOf {
  static constexpr bool kBiased = false, kTwo = false;
  T root, half_square;
  explicit PositiveOf(const MapRow<T>& row) : root(RootOf(row)) {
    half_square = static_cast<T>(sn::WideSum(row.dim, row.x, [](double v) { return v * v; }) / 2);
  }
  HWY_INLINE auto Of(auto d, auto u) const {
    return hn::Mul(hn::Set(d, root), sn::Exp(d, hn::Sub(u, hn::Set(d, half_square))));
  }
  HWY_INLINE auto Slope(auto d, auto u, auto g) const { return hn::Mul(g, Of(d, u)); }
};
struct Favor : OfLinear<PositiveOf> {
  template <class T>
  void Gradient(const MapRow<T>& row, const T* dphi, const MapGradient<T>& out) const {
    const T sum = OfLinear<PositiveOf>::Gradient(row, dphi, out);
    sn::AddScaled(row.dim, -sum, row.x, out.dx);  // by |x|^2
  }
};

/// [softmax(W x), softmax(-W x)]
struct HedgehogSoftmax {
  template <class T>
  void Value(const MapRow<T>& row, T* phi) const {
    sn::MultiplyRows(row.w, static_cast<const T*>(nullptr), row.x, row.dim, row.features, phi);
    const T* const u = phi;
    Softmax(u, row.features, T(-1), phi + row.features);
    Softmax(u, row.features, T(1), phi);
  }

  template <class T>
  void Gradient(const MapRow<T>& row, const T* dphi, const MapGradient<T>& out) const {
    const T *const none = nullptr, *const dphi_negative = dphi + row.features;
    Running<T> positive, negative;
    ForFeatures(row, none, [&](std::int64_t first, std::int64_t count, const T* u) HWY_ATTR {
      positive.Add(u, T(1), dphi + first, count);
      negative.Add(u, T(-1), dphi_negative + first, count);
    });
    LinearGradient(row, none, {out.dx, out.dw, nullptr},
                   [&](std::int64_t first, std::int64_t count, T* u) HWY_ATTR {
                     const auto slope = [&](auto d, auto v, auto above, auto below) HWY_ATTR {
                       return hn::Sub(positive.Slope(d, v, above),
                                      negative.Slope(d, hn::Neg(v), below));
                     };
                     sn::MapRows(count, u, slope, static_cast<const T*>(u), dphi + first,
                                 dphi_negative + first);
                   });
  }

 private:
  /// The largest entry; of no meaning where there are NaN.
  template <class T>
  static T Largest(const T* x, std::int64_t count, T sign) {
    T largest = sign * x[0];
    for (std::int64_t i = 1; i < count; ++i) largest = std::max(largest, sign * x[i]);
    return largest;
  }

  /// e = exp(sign u - largest)
  template <class T>
  static HWY_INLINE void Exponentials(const T* u, std::int64_t count, T sign, T largest, T* e) {
    const auto exponential = [=](auto d, auto v) HWY_ATTR {
      return sn::Exp(d, hn::MulSub(hn::Set(d, sign), v, hn::Set(d, largest)));
    };
    sn::MapRows(count, e, exponential, u);
  }

  /// out = softmax(sign u). `out` may be u.
  template <class T>
  static void Softmax(const T* u, std::int64_t count, T sign, T* out) {
    Exponentials(u, count, sign, Largest(u, count, sign), out);
    const T sum = sn::Sum(count, out);
    const auto divide = [=](auto d, auto v) HWY_ATTR { return hn::Div(v, hn::Set(d, sum)); };
    sn::MapRows(count, out, divide, static_cast<const T*>(out));
  }

  /// A softmax and the gradient that comes to it, read block by block: the largest exponent, the
  /// sum of e = exp(sign u - largest), and of e times the gradient.
  template <class T>
  struct Running {
    T largest = -std::numeric_limits<T>::infinity();
    T sum = 0;
    T product = 0;

    HWY_INLINE void Add(const T* u, T sign, const T* dout, std::int64_t count) {
      const T before = largest;
      largest = std::max(largest, Largest(u, count, sign));
      const T shrunk = before == largest ? T(1) : std::exp(before - largest);
      T e[kFeatureBlock];
      Exponentials(u, count, sign, largest, e);
      sum = shrunk * sum + sn::Sum(count, e);
      product = shrunk * product + sn::Dot(count, e, dout);
    }

    /// The gradient of sign u from that of its softmax.
    template <class D, class V = hn::Vec<D>>
    HWY_INLINE V Slope(D d, V exponent, V dout) const {
      const V share = hn::Div(sn::Exp(d, hn::Sub(exponent, hn::Set(d, largest))), hn::Set(d, sum));
      return hn::Mul(share, hn::Sub(dout, hn::Set(d, product / sum)));
    }
  };
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::rows
HWY_AFTER_NAMESPACE();

#endif  // TTR_ROWS_FEATURES_LINEAR_INL_H_
