// Feature maps of one row, without scratch. Compiled once for every target; other engines include
// this to map keys and queries while they load them.

#if defined(TTR_ROWS_FEATURE_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_ROWS_FEATURE_ROWS_INL_H_
#undef TTR_ROWS_FEATURE_ROWS_INL_H_
#else
#define TTR_ROWS_FEATURE_ROWS_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>

#include "hwy/highway.h"
#include "src/engines/rows/features.h"
#include "src/simd/elementary-inl.h"
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

/// Mean of x and 1 / sqrt(variance + 1e-5), in double.
struct Moments {
  double mean, inverse;
};

template <class T>
Moments MomentsOf(const T* x, std::int64_t dim) {
  const double mean = sn::WideSum(dim, x, [](double v) { return v; }) / static_cast<double>(dim);
  const double squares = sn::WideSum(dim, x, [=](double v) { return (v - mean) * (v - mean); });
  return {mean, 1 / std::sqrt(squares / static_cast<double>(dim) + 1e-5)};
}

/// u = w (.) (x - mean) inverse + b. The mean is taken off in double: it may be far larger than
/// what it leaves.
template <class T>
void Standardise(const Moments& moments, const T* x, const T* w, const T* b, std::int64_t dim,
                 T* u) {
  for (std::int64_t i = 0; i < dim; ++i) {
    u[i] = static_cast<T>((static_cast<double>(x[i]) - moments.mean) * moments.inverse);
  }
  const auto multiply = [](auto, auto p, auto q) HWY_ATTR { return hn::Mul(p, q); };
  const auto add = [](auto, auto p, auto q) HWY_ATTR { return hn::Add(p, q); };
  if (w != nullptr) sn::MapRows(dim, u, multiply, static_cast<const T*>(u), w);
  if (b != nullptr) sn::MapRows(dim, u, add, static_cast<const T*>(u), b);
}

/// The angle of cosFormer at a position.
struct Turn {
  double cosine, sine;
};

inline Turn TurnAt(std::int64_t position, std::int64_t max_length) {
  const double angle =
      std::numbers::pi * static_cast<double>(position) / (2 * static_cast<double>(max_length));
  return {std::cos(angle), std::sin(angle)};
}

/// Calls piece(a, b, at, count) for runs in which r_i and r_{i-j} are halves of r = [x, -x] that do
/// not change: r_{at + i} is element a % dim + i of the half a / dim, r_{at + i - j} of b / dim.
template <class Piece>
HWY_INLINE void ForRolls(std::int64_t dim, std::int64_t j, const Piece& piece) {
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
HWY_INLINE V Half(D d, V x, bool second) {
  return sn::Relu(d, second ? hn::Neg(x) : x);
}

template <class T>
void Dpfp(const T* x, std::int64_t dim, std::int64_t nu, T* out) {
  for (std::int64_t j = 1; j <= nu; ++j, out += 2 * dim) {
    ForRolls(dim, j, [&](std::int64_t a, std::int64_t b, std::int64_t count) HWY_ATTR {
      const bool second_a = a >= dim;
      const bool second_b = b >= dim;
      const auto product = [=](auto d, auto u, auto v) HWY_ATTR {
        return hn::Mul(Half(d, u, second_a), Half(d, v, second_b));
      };
      sn::MapRows(count, out + a, product, x + a % dim, x + b % dim);
    });
  }
}

/// The largest entry; of no meaning where there are NaN.
template <class T>
T Largest(const T* x, std::int64_t count, T sign) {
  T largest = sign * x[0];
  for (std::int64_t i = 1; i < count; ++i) largest = std::max(largest, sign * x[i]);
  return largest;
}

/// out = softmax(sign u). `out` may be u.
template <class T>
void Softmax(const T* u, std::int64_t count, T sign, T* out) {
  const T largest = Largest(u, count, sign);
  const auto exponential = [=](auto d, auto v) HWY_ATTR {
    return sn::Exp(d, hn::MulSub(hn::Set(d, sign), v, hn::Set(d, largest)));
  };
  sn::MapRows(count, out, exponential, u);
  const T sum = sn::Sum(count, out);
  const auto divide = [=](auto d, auto v) HWY_ATTR { return hn::Div(v, hn::Set(d, sum)); };
  sn::MapRows(count, out, divide, static_cast<const T*>(out));
}

/// |x|^2 / 2, summed in double.
template <class T>
double HalfSquare(const T* x, std::int64_t dim) {
  return sn::WideSum(dim, x, [](double v) { return v * v; }) / 2;
}

/// out = phi(x), FeatureDim() numbers. `w` is [features][dim], null where the map has none (for
/// kRebased one row, or null); `b` [features] or null. Any alignment; `out` overlaps nothing.
template <class T>
void MapRow(const FeatureOptions& options, const T* x, std::int64_t dim, const T* w, const T* b,
            std::int64_t features, std::int64_t position, T* out) {
  const T* const u = out;  // W x is formed in place
  switch (options.map) {
    case Map::kNone: std::copy(x, x + dim, out); return;
    case Map::kElu1:
      sn::MapRows(
          dim, out,
          [](auto d, auto v) HWY_ATTR {
            const auto above = hn::Add(v, hn::Set(d, T(1)));
            return hn::IfThenElse(hn::Gt(v, hn::Zero(d)), above, sn::Exp(d, v));
          },
          x);
      return;
    case Map::kRelu:
      sn::MapRows(dim, out, [](auto d, auto v) HWY_ATTR { return sn::Relu(d, v); }, x);
      return;
    case Map::kCosformer: {
      const Turn turn = TurnAt(position, options.max_length);
      const T factors[] = {static_cast<T>(turn.cosine), static_cast<T>(turn.sine)};
      for (int half = 0; half < 2; ++half) {
        const auto turned = [=](auto d, auto v) HWY_ATTR {
          return hn::Mul(hn::Set(d, factors[half]), sn::Relu(d, v));
        };
        sn::MapRows(dim, out + half * dim, turned, x);
      }
      return;
    }
    case Map::kDpfp: Dpfp(x, dim, options.nu, out); return;
    case Map::kT2r:
      sn::MultiplyRows(w, b, x, dim, features, out);
      sn::MapRows(features, out, [](auto d, auto v) HWY_ATTR { return sn::Relu(d, v); }, u);
      return;
    case Map::kHedgehogExp:
      sn::MultiplyRows(w, static_cast<const T*>(nullptr), x, dim, features, out);
      sn::MapRows(
          features, out + features, [](auto d, auto v) HWY_ATTR { return sn::Exp(d, hn::Neg(v)); },
          u);
      sn::MapRows(features, out, [](auto d, auto v) HWY_ATTR { return sn::Exp(d, v); }, u);
      return;
    case Map::kHedgehogSoftmax:
      sn::MultiplyRows(w, static_cast<const T*>(nullptr), x, dim, features, out);
      Softmax(u, features, T(-1), out + features);
      Softmax(u, features, T(1), out);
      return;
    case Map::kTaylor2: {
      const double d = static_cast<double>(dim);
      out[0] = T(1);
      const T linear = static_cast<T>(1 / std::sqrt(std::sqrt(d)));
      const auto scale = [=](auto tag, auto v)
                             HWY_ATTR { return hn::Mul(hn::Set(tag, linear), v); };
      sn::MapRows(dim, out + 1, scale, x);
      PairProducts(x, dim, static_cast<T>(1 / std::sqrt(2 * d)), static_cast<T>(1 / std::sqrt(d)),
                   out + 1 + dim);
      return;
    }
    case Map::kRebased:
      Standardise(MomentsOf(x, dim), x, w, b, dim, out);
      PairProducts(u, dim, T(1), static_cast<T>(std::numbers::sqrt2), out);
      return;
    case Map::kPower2: PairProducts(x, dim, T(1), static_cast<T>(std::numbers::sqrt2), out); return;
    case Map::kRfa: {
      sn::MultiplyRows(w, static_cast<const T*>(nullptr), x, dim, features, out);
      const T root = static_cast<T>(1 / std::sqrt(static_cast<double>(features)));
      const auto cosine = [=](auto d, auto v)
                              HWY_ATTR { return hn::Mul(hn::Set(d, root), sn::Cos(d, v)); };
      const auto sine = [=](auto d, auto v)
                            HWY_ATTR { return hn::Mul(hn::Set(d, root), sn::Sin(d, v)); };
      sn::MapRows(features, out + features, cosine, u);
      sn::MapRows(features, out, sine, u);
      return;
    }
    case Map::kFavor: {
      sn::MultiplyRows(w, static_cast<const T*>(nullptr), x, dim, features, out);
      const T half = static_cast<T>(HalfSquare(x, dim));
      const T root = static_cast<T>(1 / std::sqrt(static_cast<double>(features)));
      const auto positive = [=](auto d, auto v) HWY_ATTR {
        return hn::Mul(hn::Set(d, root), sn::Exp(d, hn::Sub(v, hn::Set(d, half))));
      };
      sn::MapRows(features, out, positive, u);
      return;
    }
    case Map::kDijiang:
      sn::MultiplyRows(w, b, x, dim, features, out);
      sn::MapRows(features, out, [](auto d, auto v) HWY_ATTR { return sn::Exp(d, v); }, u);
      return;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::rows
HWY_AFTER_NAMESPACE();

#endif  // TTR_ROWS_FEATURE_ROWS_INL_H_
