// Feature maps of products of two entries. Compiled once for every target.

#if defined(TTR_ROWS_FEATURES_PRODUCTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_ROWS_FEATURES_PRODUCTS_INL_H_
#undef TTR_ROWS_FEATURES_PRODUCTS_INL_H_
#else
#define TTR_ROWS_FEATURES_PRODUCTS_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>

#include "hwy/highway.h"
#include "src/engines/rows/features/pointwise-inl.h"
#include "src/simd/unit_length-inl.h"
#include "src/simd/vector_map-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::rows {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace sn = ttr::simd::HWY_NAMESPACE;

/// out = x_i x_j for i <= j, row by row, times `square` where i = j and `mixed` elsewhere.
///
/// Rows go from the last to the first, and each from its end: vectors reach over the start of a row
/// into the one before, which is still to be written, so that no row has a tail of its own. `x` may
/// lie at the beginning of `out`: row 0 is written last, and row 1 can reach one element into it.
template <class T>
void PairProducts(const T* x, std::int64_t dim, T square, T mixed, T* out) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const bool in_place = x == out;
  std::int64_t at = dim * (dim + 1) / 2;
  for (std::int64_t i = dim - 1; i >= 0; --i) {
    at -= dim - i;
    T* const row = out + at - i;  // element (i, j) at row[j]
    const T left = x[i];
    const T reached = in_place && i == 1 ? out[dim - 1] : T(0);
    const auto factor = hn::Set(d, mixed * left);
    std::int64_t j = dim;
    for (; j > i && j >= lanes; j -= lanes) {
      hn::StoreU(hn::Mul(factor, hn::LoadU(d, x + j - lanes)), d, row + j - lanes);
    }
    for (; j > i; --j) row[j - 1] = mixed * left * x[j - 1];
    row[i] = square * left * left;
    if (in_place && i == 1) out[dim - 1] = reached;
  }
}

/// dx of PairProducts, added: each product is of two entries. `x` and `dx` do not overlap.
template <class T>
void PairProductsGradient(const T* x, std::int64_t dim, T square, T mixed, const T* dout, T* dx) {
  for (std::int64_t i = 0; i < dim; ++i) {
    const std::int64_t rest = dim - i - 1;
    dx[i] += 2 * square * dout[0] * x[i] + mixed * sn::Dot(rest, dout + 1, x + i + 1);
    sn::AddScaled(rest, mixed * x[i], dout + 1, dx + i + 1);
    dout += rest + 1;
  }
}

/// x_i^2 and sqrt(2) x_i x_j, i < j
struct Power2 {
  template <class T>
  static constexpr T kMixed = static_cast<T>(std::numbers::sqrt2);

  template <class T>
  void Value(const MapRow<T>& row, T* phi) const {
    PairProducts(row.x, row.dim, T(1), kMixed<T>, phi);
  }
  template <class T>
  void Gradient(const MapRow<T>& row, const T* dphi, const MapGradient<T>& out) const {
    std::fill(out.dx, out.dx + row.dim, T(0));
    PairProductsGradient(row.x, row.dim, T(1), kMixed<T>, dphi, out.dx);
  }
};

/// [1, x / d^(1/4), power2(x) / sqrt(2d)]
struct Taylor2 {
  template <class T>
  void Value(const MapRow<T>& row, T* phi) const {
    const Factors<T> factors(row.dim);
    phi[0] = T(1);
    Scale(row.dim, factors.linear, row.x, phi + 1);
    PairProducts(row.x, row.dim, factors.square, factors.mixed, phi + 1 + row.dim);
  }
  template <class T>
  void Gradient(const MapRow<T>& row, const T* dphi, const MapGradient<T>& out) const {
    const Factors<T> factors(row.dim);
    Scale(row.dim, factors.linear, dphi + 1, out.dx);
    PairProductsGradient(row.x, row.dim, factors.square, factors.mixed, dphi + 1 + row.dim, out.dx);
  }

 private:
  template <class T>
  struct Factors {
    T linear, square, mixed;
    explicit Factors(std::int64_t dim) {
      const double d = static_cast<double>(dim);
      linear = static_cast<T>(1 / std::sqrt(std::sqrt(d)));
      square = static_cast<T>(1 / std::sqrt(2 * d));
      mixed = static_cast<T>(1 / std::sqrt(d));
    }
  };
  template <class T>
  static void Scale(std::int64_t count, T factor, const T* x, T* out) {
    const auto scale = [=](auto d, auto v) HWY_ATTR { return hn::Mul(hn::Set(d, factor), v); };
    sn::MapRows(count, out, scale, x);
  }
};

/// power2(u), u = w (.) n + b, n = (x - mean) / sqrt(variance + 1e-5)
struct Rebased {
  template <class T>
  void Value(const MapRow<T>& row, T* phi) const {
    Units(MomentsOf(row), row, 0, row.dim, phi);
    PairProducts(static_cast<const T*>(phi), row.dim, T(1), Power2::kMixed<T>, phi);
  }

  template <class T>
  void Gradient(const MapRow<T>& row, const T* dphi, const MapGradient<T>& out) const {
    const Moments moments = MomentsOf(row);
    std::fill(out.dx, out.dx + row.dim, T(0));
    // Products of piece p with piece q >= p, u made again for each: there is no room for a row.
    for (std::int64_t p = 0; p < row.dim; p += kPiece) {
      for (std::int64_t q = p; q < row.dim; q += kPiece) {
        ProductsGradient(moments, row, p, q, dphi, out.dx);
      }
    }
    UnitsGradient(moments, row, out);
  }

 private:
  static constexpr std::int64_t kPiece = 256;

  struct Moments {
    double mean, inverse;
  };
  template <class T>
  static Moments MomentsOf(const MapRow<T>& row) {
    const double count = static_cast<double>(row.dim);
    const double mean = sn::WideSum(row.dim, row.x, [](double v) { return v; }) / count;
    const double squares =
        sn::WideSum(row.dim, row.x, [=](double v) { return (v - mean) * (v - mean); });
    return {mean, 1 / std::sqrt(squares / count + 1e-5)};
  }

  /// Entries first .. first + count of u.
  template <class T>
  static void Units(const Moments& moments, const MapRow<T>& row, std::int64_t first,
                    std::int64_t count, T* u) {
    sn::Standardise(count, row.x + first, moments.mean, moments.inverse, u);
    const auto multiply = [](auto, auto p, auto q) HWY_ATTR { return hn::Mul(p, q); };
    const auto add = [](auto, auto p, auto q) HWY_ATTR { return hn::Add(p, q); };
    if (row.w != nullptr) {
      sn::MapRows(count, u, multiply, static_cast<const T*>(u), row.w + first);
    }
    if (row.b != nullptr) sn::MapRows(count, u, add, static_cast<const T*>(u), row.b + first);
  }

  /// du, added, by the products of the piece from p on with that from q >= p on.
  template <class T>
  static void ProductsGradient(const Moments& moments, const MapRow<T>& row, std::int64_t p,
                               std::int64_t q, const T* dphi, T* du) {
    T left[kPiece], right[kPiece];
    const std::int64_t rows = std::min(kPiece, row.dim - p);
    const std::int64_t columns = std::min(kPiece, row.dim - q);
    Units(moments, row, p, rows, left);
    Units(moments, row, q, columns, right);
    for (std::int64_t r = 0; r < rows; ++r) {
      const std::int64_t i = p + r;
      const T* const products = dphi + i * row.dim - i * (i - 1) / 2 - i;  // (i, j) at [j]
      if (p == q) du[i] += 2 * products[i] * left[r];
      const std::int64_t from = std::max(i + 1, q);
      const std::int64_t count = q + columns - from;
      if (count <= 0) continue;
      du[i] += Power2::kMixed<T> * sn::Dot(count, products + from, right + (from - q));
      sn::AddScaled(count, Power2::kMixed<T> * left[r], products + from, du + from);
    }
  }

  /// out.dx from the gradient of u, which it holds, to that of x; those of w and b.
  template <class T>
  static void UnitsGradient(const Moments& moments, const MapRow<T>& row,
                            const MapGradient<T>& out) {
    const auto unit = [&](std::int64_t i) {
      return (static_cast<double>(row.x[i]) - moments.mean) * moments.inverse;
    };
    double sum = 0, product = 0;
    for (std::int64_t i = 0; i < row.dim; ++i) {
      if (out.dw != nullptr) out.dw[i] += out.dx[i] * static_cast<T>(unit(i));
      if (out.db != nullptr) out.db[i] += out.dx[i];
      if (row.w != nullptr) out.dx[i] *= row.w[i];
      sum += static_cast<double>(out.dx[i]);
      product += static_cast<double>(out.dx[i]) * unit(i);
    }
    const double mean = sum / static_cast<double>(row.dim);
    const double along = product / static_cast<double>(row.dim);
    for (std::int64_t i = 0; i < row.dim; ++i) {
      const double rest = static_cast<double>(out.dx[i]) - mean - unit(i) * along;
      out.dx[i] = static_cast<T>(moments.inverse * rest);
    }
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::rows
HWY_AFTER_NAMESPACE();

#endif  // TTR_ROWS_FEATURES_PRODUCTS_INL_H_
