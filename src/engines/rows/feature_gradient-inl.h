// Gradients of the feature maps of one row, without scratch: what is needed of phi is computed
// again. Compiled once for every target.

#if defined(TTR_ROWS_FEATURE_GRADIENT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_ROWS_FEATURE_GRADIENT_INL_H_
#undef TTR_ROWS_FEATURE_GRADIENT_INL_H_
#else
#define TTR_ROWS_FEATURE_GRADIENT_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>

#include "hwy/highway.h"
#include "src/engines/rows/feature_rows-inl.h"
#include "src/engines/rows/features.h"
#include "src/simd/elementary-inl.h"
#include "src/simd/vector_map-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::rows {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace sn = ttr::simd::HWY_NAMESPACE;

/// One row of a map of W x, and where its gradients go. `dw` and `db` may be null.
template <class T>
struct LinearRow {
  const T* x;
  std::int64_t dim;
  const T* w;
  const T* b;
  std::int64_t features;
  T* dx;
  T* dw;
  T* db;
};

/// Features that are done together; their W x fits the stack.
inline constexpr std::int64_t kFeatureBlock = 128;

/// Calls visit(first, count, u) for u = (W x + b)[first .. first + count], all of them in order.
template <class T, class Visit>
HWY_INLINE void ForFeatures(const LinearRow<T>& row, const Visit& visit) {
  T u[kFeatureBlock];
  for (std::int64_t first = 0; first < row.features; first += kFeatureBlock) {
    const std::int64_t count = std::min(kFeatureBlock, row.features - first);
    sn::MultiplyRows(row.w + first * row.dim, row.b == nullptr ? nullptr : row.b + first, row.x,
                     row.dim, count, u);
    visit(first, count, u);
  }
}

/// slope(first, count, u) turns u into the gradient g of u. dx = W^T g, dW += g x^T, db += g. What
/// is returned is the sum of g.
template <class T, class Slope>
HWY_INLINE T LinearGradient(const LinearRow<T>& row, const Slope& slope) {
  T sum = 0;
  std::fill(row.dx, row.dx + row.dim, T(0));
  ForFeatures(row, [&](std::int64_t first, std::int64_t count, T* u) HWY_ATTR {
    slope(first, count, u);
    sum += sn::Sum(count, u);
    sn::AddRows(static_cast<const T*>(u), row.w + first * row.dim, row.dim, count, row.dx);
    if (row.dw != nullptr) {
      sn::AddOuter(static_cast<const T*>(u), row.x, row.dim, count, row.dw + first * row.dim);
    }
    if (row.db != nullptr) sn::AddScaled(count, T(1), u, row.db + first);
  });
  return sum;
}

/// A softmax over all features and the gradient that comes to it, read block by block: the largest
/// exponent m, the sum of e = exp(u - m), and of e times the gradient.
template <class T>
struct RunningSoftmax {
  T largest = -std::numeric_limits<T>::infinity();
  T sum = 0;
  T product = 0;

  HWY_INLINE void Add(const T* u, T sign, const T* dout, std::int64_t count) {
    const T before = largest;
    largest = std::max(largest, Largest(u, count, sign));
    const T saved = before == largest ? T(1) : std::exp(before - largest);
    T e[kFeatureBlock];
    const T top = largest;
    const auto exponential = [=](auto d, auto v) HWY_ATTR {
      return sn::Exp(d, hn::MulSub(hn::Set(d, sign), v, hn::Set(d, top)));
    };
    sn::MapRows(count, e, exponential, u);
    sum = saved * sum + sn::Sum(count, e);
    product = saved * product + sn::Dot(count, e, dout);
  }

  /// The gradient of sign u from that of its softmax.
  template <class D, class V = hn::Vec<D>>
  HWY_INLINE V Slope(D d, V exponent, V dout) const {
    const V share = hn::Div(sn::Exp(d, hn::Sub(exponent, hn::Set(d, largest))), hn::Set(d, sum));
    return hn::Mul(share, hn::Sub(dout, hn::Set(d, product / sum)));
  }
};

template <class T>
void SoftmaxGradient(const LinearRow<T>& row, const T* dout) {
  const T* const dout_negative = dout + row.features;
  RunningSoftmax<T> positive, negative;
  ForFeatures(row, [&](std::int64_t first, std::int64_t count, const T* u) HWY_ATTR {
    positive.Add(u, T(1), dout + first, count);
    negative.Add(u, T(-1), dout_negative + first, count);
  });
  LinearGradient(row, [&](std::int64_t first, std::int64_t count, T* u) HWY_ATTR {
    const auto slope = [&](auto d, auto v, auto above, auto below) HWY_ATTR {
      return hn::Sub(positive.Slope(d, v, above), negative.Slope(d, hn::Neg(v), below));
    };
    sn::MapRows(count, u, slope, static_cast<const T*>(u), dout + first, dout_negative + first);
  });
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

/// For ReBased. The standardised row is made again in pieces of the stack: row i of the products
/// needs entry i and those behind it.
template <class T>
void RebasedGradient(const T* x, std::int64_t dim, const T* w, const T* b, const T* dout, T* dx,
                     T* dw, T* db) {
  constexpr std::int64_t kPiece = 256;
  const Moments moments = MomentsOf(x, dim);
  const T mixed = static_cast<T>(std::numbers::sqrt2);
  const auto part = [](const T* p, std::int64_t at) { return p == nullptr ? p : p + at; };
  std::fill(dx, dx + dim, T(0));
  // Products of piece p with piece q >= p; their rows in dout are of the entries of p.
  for (std::int64_t p = 0; p < dim; p += kPiece) {
    T left[kPiece], right[kPiece];
    const std::int64_t rows = std::min(kPiece, dim - p);
    Standardise(moments, x + p, part(w, p), part(b, p), rows, left);
    for (std::int64_t q = p; q < dim; q += kPiece) {
      const std::int64_t columns = std::min(kPiece, dim - q);
      Standardise(moments, x + q, part(w, q), part(b, q), columns, right);
      for (std::int64_t r = 0; r < rows; ++r) {
        const std::int64_t i = p + r;
        const T* const row = dout + i * dim - i * (i - 1) / 2 - i;  // (i, j) at row[j]
        if (p == q) dx[i] += 2 * row[i] * left[r];
        const std::int64_t from = std::max(i + 1, q);
        const std::int64_t count = q + columns - from;
        if (count <= 0) continue;
        dx[i] += mixed * sn::Dot(count, row + from, right + (from - q));
        sn::AddScaled(count, mixed * left[r], row + from, dx + from);
      }
    }
  }
  // dx holds the gradient of u = w (.) n + b; n = (x - mean) / sqrt(variance + 1e-5).
  double sum = 0, product = 0;
  for (std::int64_t i = 0; i < dim; ++i) {
    const double n = (static_cast<double>(x[i]) - moments.mean) * moments.inverse;
    if (dw != nullptr) dw[i] += dx[i] * static_cast<T>(n);
    if (db != nullptr) db[i] += dx[i];
    if (w != nullptr) dx[i] *= w[i];
    sum += static_cast<double>(dx[i]);
    product += static_cast<double>(dx[i]) * n;
  }
  const double mean = sum / static_cast<double>(dim);
  const double along = product / static_cast<double>(dim);
  for (std::int64_t i = 0; i < dim; ++i) {
    const double n = (static_cast<double>(x[i]) - moments.mean) * moments.inverse;
    dx[i] = static_cast<T>(moments.inverse * (static_cast<double>(dx[i]) - mean - n * along));
  }
}

template <class T>
void DpfpGradient(const T* x, std::int64_t dim, std::int64_t nu, const T* dout, T* dx) {
  std::fill(dx, dx + dim, T(0));
  for (std::int64_t j = 1; j <= nu; ++j, dout += 2 * dim) {
    ForRolls(dim, j, [&](std::int64_t a, std::int64_t b, std::int64_t count) HWY_ATTR {
      // First by the one factor, then by the other: their entries of dx may be the same ones.
      for (int turn = 0; turn < 2; ++turn) {
        const std::int64_t by = turn == 0 ? a : b;
        const std::int64_t with = turn == 0 ? b : a;
        const bool second_by = by >= dim;
        const bool second_with = with >= dim;
        const auto add = [=](auto d, auto sum, auto u, auto v, auto g) HWY_ATTR {
          const auto own = second_by ? hn::Neg(u) : u;
          const auto slope = hn::Mul(g, Half(d, v, second_with));
          const auto passed = hn::IfThenZeroElse(hn::Le(own, hn::Zero(d)), slope);
          return second_by ? hn::Sub(sum, passed) : hn::Add(sum, passed);
        };
        T* const to = dx + by % dim;
        sn::MapRows(count, to, add, static_cast<const T*>(to), x + by % dim, x + with % dim,
                    dout + a);
      }
    });
  }
}

/// Gradients of a loss by its gradient `dout` by phi(x). `dx` is overwritten; `dw` (as w) and `db`
/// (as b) are added to, or null. Where a map has a corner (ReLU at 0) its slope is 0.
template <class T>
void MapRowGradient(const FeatureOptions& options, const T* x, std::int64_t dim, const T* w,
                    const T* b, std::int64_t features, std::int64_t position, const T* dout, T* dx,
                    T* dw, T* db) {
  const LinearRow<T> row{x, dim, w, nullptr, features, dx, dw, nullptr};
  const LinearRow<T> biased{x, dim, w, b, features, dx, dw, db};
  const T root =
      static_cast<T>(1 / std::sqrt(static_cast<double>(std::max<std::int64_t>(features, 1))));
  switch (options.map) {
    case Map::kNone: std::copy(dout, dout + dim, dx); return;
    case Map::kElu1:
      sn::MapRows(
          dim, dx,
          [](auto d, auto v, auto g) HWY_ATTR {
            return hn::IfThenElse(hn::Gt(v, hn::Zero(d)), g, hn::Mul(g, sn::Exp(d, v)));
          },
          x, dout);
      return;
    case Map::kRelu:
      sn::MapRows(
          dim, dx,
          [](auto d, auto v, auto g)
              HWY_ATTR { return hn::IfThenZeroElse(hn::Le(v, hn::Zero(d)), g); },
          x, dout);
      return;
    case Map::kCosformer: {
      const Turn turn = TurnAt(position, options.max_length);
      const T cosine = static_cast<T>(turn.cosine);
      const T sine = static_cast<T>(turn.sine);
      const auto slope = [=](auto d, auto v, auto g, auto h) HWY_ATTR {
        const auto both = hn::MulAdd(hn::Set(d, cosine), g, hn::Mul(hn::Set(d, sine), h));
        return hn::IfThenZeroElse(hn::Le(v, hn::Zero(d)), both);
      };
      sn::MapRows(dim, dx, slope, x, dout, dout + dim);
      return;
    }
    case Map::kDpfp: DpfpGradient(x, dim, options.nu, dout, dx); return;
    case Map::kT2r:
      LinearGradient(biased, [=](std::int64_t first, std::int64_t count, T* u) HWY_ATTR {
        const auto slope = [](auto d, auto v, auto g)
                               HWY_ATTR { return hn::IfThenZeroElse(hn::Le(v, hn::Zero(d)), g); };
        sn::MapRows(count, u, slope, static_cast<const T*>(u), dout + first);
      });
      return;
    case Map::kHedgehogExp:
      LinearGradient(row, [=](std::int64_t first, std::int64_t count, T* u) HWY_ATTR {
        const auto slope = [](auto d, auto v, auto g, auto h) HWY_ATTR {
          return hn::Sub(hn::Mul(g, sn::Exp(d, v)), hn::Mul(h, sn::Exp(d, hn::Neg(v))));
        };
        sn::MapRows(count, u, slope, static_cast<const T*>(u), dout + first,
                    dout + features + first);
      });
      return;
    case Map::kHedgehogSoftmax: SoftmaxGradient(row, dout); return;
    case Map::kTaylor2: {
      const double d = static_cast<double>(dim);
      const T linear = static_cast<T>(1 / std::sqrt(std::sqrt(d)));
      const auto scale = [=](auto tag, auto g)
                             HWY_ATTR { return hn::Mul(hn::Set(tag, linear), g); };
      sn::MapRows(dim, dx, scale, dout + 1);
      PairProductsGradient(x, dim, static_cast<T>(1 / std::sqrt(2 * d)),
                           static_cast<T>(1 / std::sqrt(d)), dout + 1 + dim, dx);
      return;
    }
    case Map::kRebased: RebasedGradient(x, dim, w, b, dout, dx, dw, db); return;
    case Map::kPower2:
      std::fill(dx, dx + dim, T(0));
      PairProductsGradient(x, dim, T(1), static_cast<T>(std::numbers::sqrt2), dout, dx);
      return;
    case Map::kRfa:
      LinearGradient(row, [=](std::int64_t first, std::int64_t count, T* u) HWY_ATTR {
        const auto slope = [=](auto d, auto v, auto g, auto h) HWY_ATTR {
          const auto turned = hn::Sub(hn::Mul(g, sn::Cos(d, v)), hn::Mul(h, sn::Sin(d, v)));
          return hn::Mul(hn::Set(d, root), turned);
        };
        sn::MapRows(count, u, slope, static_cast<const T*>(u), dout + first,
                    dout + features + first);
      });
      return;
    case Map::kFavor: {
      const T half = static_cast<T>(HalfSquare(x, dim));
      const T sum = LinearGradient(row, [=](std::int64_t first, std::int64_t count, T* u) HWY_ATTR {
        const auto slope = [=](auto d, auto v, auto g) HWY_ATTR {
          const auto phi = hn::Mul(hn::Set(d, root), sn::Exp(d, hn::Sub(v, hn::Set(d, half))));
          return hn::Mul(g, phi);
        };
        sn::MapRows(count, u, slope, static_cast<const T*>(u), dout + first);
      });
      sn::AddScaled(dim, -sum, x, dx);
      return;
    }
    case Map::kDijiang:
      LinearGradient(biased, [=](std::int64_t first, std::int64_t count, T* u) HWY_ATTR {
        const auto slope = [](auto d, auto v, auto g)
                               HWY_ATTR { return hn::Mul(g, sn::Exp(d, v)); };
        sn::MapRows(count, u, slope, static_cast<const T*>(u), dout + first);
      });
      return;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::rows
HWY_AFTER_NAMESPACE();

#endif  // TTR_ROWS_FEATURE_GRADIENT_INL_H_
