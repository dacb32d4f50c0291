// Feature maps of one row. A map is a struct with its formula, phi(x), beside its slope:
//
//     void Value(const MapRow<T>& row, T* phi) const;
//     void Gradient(const MapRow<T>& row, const T* dphi, const MapGradient<T>& out) const;
//
// Here those of every entry by itself. Compiled once for every target.

#if defined(TTR_ROWS_FEATURES_POINTWISE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_ROWS_FEATURES_POINTWISE_INL_H_
#undef TTR_ROWS_FEATURES_POINTWISE_INL_H_
#else
#define TTR_ROWS_FEATURES_POINTWISE_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>

#include "hwy/highway.h"
#include "src/simd/elementary-inl.h"
#include "src/simd/vector_map-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::rows {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace sn = ttr::simd::HWY_NAMESPACE;

/// `w` is [features][dim], null where the map has none (for kRebased one row, or null); `b` has
/// `features` numbers, or is null. Any alignment; results overlap nothing.
template <class T>
struct MapRow {
  const T* x;
  std::int64_t dim;
  const T* w;
  const T* b;
  std::int64_t features;
  std::int64_t position;
};

/// `dx` is overwritten; `dw` (as w) and `db` (as b) are added to, or null. Where a map has a corner
/// (ReLU at 0) its slope is 0.
template <class T>
struct MapGradient {
  T *dx, *dw, *db;
};

// Functions of a vector u, and their slopes times the gradient g of their values.

struct ReluOf {
  HWY_INLINE auto Of(auto d, auto u) const { return sn::Relu(d, u); }
  HWY_INLINE auto Slope(auto d, auto u, auto g) const {
    return hn::IfThenZeroElse(hn::Le(u, hn::Zero(d)), g);
  }
};

/// u + 1 where u > 0, else exp(u)
struct EluOf {
  HWY_INLINE auto Of(auto d, auto u) const {
    const auto above = hn::Add(u, hn::Set(d, hn::TFromD<decltype(d)>(1)));
    return hn::IfThenElse(hn::Gt(u, hn::Zero(d)), above, sn::Exp(d, u));
  }
  HWY_INLINE auto Slope(auto d, auto u, auto g) const {
    return hn::IfThenElse(hn::Gt(u, hn::Zero(d)), g, hn::Mul(g, sn::Exp(d, u)));
  }
};

struct ExpOf {
  HWY_INLINE auto Of(auto d, auto u) const { return sn::Exp(d, u); }
  HWY_INLINE auto Slope(auto d, auto u, auto g) const { return hn::Mul(g, sn::Exp(d, u)); }
};

/// phi_i = f(x_i)
template <class Function>
struct Pointwise {
  template <class T>
  void Value(const MapRow<T>& row, T* phi) const {
    const auto value = [](auto d, auto v) HWY_ATTR { return Function().Of(d, v); };
    sn::MapRows(row.dim, phi, value, row.x);
  }
  template <class T>
  void Gradient(const MapRow<T>& row, const T* dphi, const MapGradient<T>& out) const {
    const auto slope = [](auto d, auto v, auto g) HWY_ATTR { return Function().Slope(d, v, g); };
    sn::MapRows(row.dim, out.dx, slope, row.x, dphi);
  }
};
using Elu1 = Pointwise<EluOf>;
using Relu = Pointwise<ReluOf>;

struct None {
  template <class T>
  void Value(const MapRow<T>& row, T* phi) const {
    std::copy(row.x, row.x + row.dim, phi);
  }
  template <class T>
  void Gradient(const MapRow<T>& row, const T* dphi, const MapGradient<T>& out) const {
    std::copy(dphi, dphi + row.dim, out.dx);
  }
};

/// [relu(x) cos(angle), relu(x) sin(angle)], angle = pi t / 2m
struct Cosformer {
  std::int64_t max_length;

  template <class T>
  void Value(const MapRow<T>& row, T* phi) const {
    const double angle = AngleOf(row.position);
    const T factors[] = {static_cast<T>(std::cos(angle)), static_cast<T>(std::sin(angle))};
    for (int half = 0; half < 2; ++half) {
      const auto value = [=](auto d, auto v) HWY_ATTR {
        return hn::Mul(hn::Set(d, factors[half]), sn::Relu(d, v));
      };
      sn::MapRows(row.dim, phi + half * row.dim, value, row.x);
    }
  }
  template <class T>
  void Gradient(const MapRow<T>& row, const T* dphi, const MapGradient<T>& out) const {
    const double angle = AngleOf(row.position);
    const T cosine = static_cast<T>(std::cos(angle)), sine = static_cast<T>(std::sin(angle));
    const auto slope = [=](auto d, auto v, auto g, auto h) HWY_ATTR {
      return ReluOf().Slope(d, v, hn::MulAdd(hn::Set(d, cosine), g, hn::Mul(hn::Set(d, sine), h)));
    };
    sn::MapRows(row.dim, out.dx, slope, row.x, dphi, dphi + row.dim);
  }

 private:
  double AngleOf(std::int64_t position) const {
    return std::numbers::pi * static_cast<double>(position) / (2 * static_cast<double>(max_length));
  }
};

/// r (.) roll(r, j) for j = 1 .. nu, r = [relu(x), relu(-x)]
struct Dpfp {
  std::int64_t nu;

  template <class T>
  void Value(const MapRow<T>& row, T* phi) const {
    const T* const x = row.x;
    const std::int64_t dim = row.dim;
    for (std::int64_t j = 1; j <= nu; ++j, phi += 2 * dim) {
      ForRolls(dim, j, [&](std::int64_t a, std::int64_t b, std::int64_t count) HWY_ATTR {
        const bool second_a = a >= dim, second_b = b >= dim;
        const auto product = [=](auto d, auto u, auto v) HWY_ATTR {
          return hn::Mul(Half(d, u, second_a), Half(d, v, second_b));
        };
        sn::MapRows(count, phi + a, product, x + a % dim, x + b % dim);
      });
    }
  }

  template <class T>
  void Gradient(const MapRow<T>& row, const T* dphi, const MapGradient<T>& out) const {
    const std::int64_t dim = row.dim;
    std::fill(out.dx, out.dx + dim, T(0));
    for (std::int64_t j = 1; j <= nu; ++j, dphi += 2 * dim) {
      ForRolls(dim, j, [&](std::int64_t a, std::int64_t b, std::int64_t count) HWY_ATTR {
        // One factor after the other: their entries of dx may be the same ones.
        AddSlope(row, a, b, count, dphi + a, out.dx);
        AddSlope(row, b, a, count, dphi + a, out.dx);
      });
    }
  }

 private:
  /// Calls piece(a, b, count) for runs in which r_i and r_{i-j} are halves of r that do not change:
  /// r_{a + i} is element a % dim + i of the half a / dim, r_{a + i - j} is b % dim + i of b / dim.
  template <class Piece>
  static HWY_INLINE void ForRolls(std::int64_t dim, std::int64_t j, const Piece& piece) {
    const std::int64_t n = 2 * dim;
    const std::int64_t shift = j % n;
    for (std::int64_t at = 0; at < n;) {
      const std::int64_t other = (at + n - shift) % n;
      const std::int64_t count = std::min(dim - at % dim, dim - other % dim);
      piece(at, other, count);
      at += count;
    }
  }

  /// relu(x), or relu(-x) in the second half.
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE V Half(D d, V x, bool second) {
    return sn::Relu(d, second ? hn::Neg(x) : x);
  }

  /// The gradient of the factors from `by` on, whose products with those from `with` on have the
  /// gradient g.
  template <class T>
  static HWY_INLINE void AddSlope(const MapRow<T>& row, std::int64_t by, std::int64_t with,
                                  std::int64_t count, const T* g, T* dx) {
    const bool second_by = by >= row.dim, second_with = with >= row.dim;
    const auto add = [=](auto d, auto sum, auto u, auto v, auto dproduct) HWY_ATTR {
      const auto own = second_by ? hn::Neg(u) : u;
      const auto slope = ReluOf().Slope(d, own, hn::Mul(dproduct, Half(d, v, second_with)));
      return second_by ? hn::Sub(sum, slope) : hn::Add(sum, slope);
    };
    T* const to = dx + by % row.dim;
    sn::MapRows(count, to, add, static_cast<const T*>(to), row.x + by % row.dim,
                row.x + with % row.dim, g);
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::rows
HWY_AFTER_NAMESPACE();

#endif  // TTR_ROWS_FEATURES_POINTWISE_INL_H_
