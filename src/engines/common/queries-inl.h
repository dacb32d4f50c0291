// Queries over kept pairs, as they are compared. Compiled once for every target.

#if defined(TTR_COMMON_QUERIES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_COMMON_QUERIES_INL_H_
#undef TTR_COMMON_QUERIES_INL_H_
#else
#define TTR_COMMON_QUERIES_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"
#include "src/engines/common/pairs-inl.h"
#include "src/engines/common/queries.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::common {
namespace HWY_NAMESPACE {

/// A query times `scale`, of unit length before where keys are.
template <class T>
HWY_INLINE void LoadQuery(const QueriedPairs& m, const Place& place, double scale, T* to) {
  sn::LoadRow(m.q.Of(place.query), place.token, 0, m.key_dim, to);
  if (m.normalises) scale *= sn::UnitFactor(to, m.key_dim);
  if (scale != 1) sn::Multiply(to, m.key_dim, static_cast<T>(scale));
}

/// Rows first .. first + count, with zeros up to whole units of channels and `rows` rows.
template <class T>
void LoadQueries(const QueriedPairs& m, std::int64_t first, std::int64_t count, double scale,
                 std::int64_t rows, const Block<T>& to) {
  const std::int64_t wide = linalg::RoundUp(m.key_dim, linalg::kUnit);
  for (std::int64_t i = 0; i < count; ++i) {
    LoadQuery(m, Place::Of(m, first + i), scale, to.Row(i));
    std::fill(to.Row(i) + m.key_dim, to.Row(i) + wide, T(0));
  }
  linalg::ZeroRows(to, count, rows, wide);
}

/// to[j] = f(|t - s|, s), s = first + j: what a function of places is for a query at place t.
template <class T, class F>
HWY_INLINE void FillBias(double place, std::int64_t first, std::int64_t count, T* to, const F& f) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto t = hn::Set(d, static_cast<T>(place));
  std::int64_t j = 0;
  const auto at = [&](std::int64_t i) HWY_ATTR {
    const auto s = hn::Add(hn::Iota(d, T(0)), hn::Set(d, static_cast<T>(first + i)));
    return f(d, hn::Abs(hn::Sub(t, s)), s);
  };
  for (; j + lanes <= count; j += lanes) hn::StoreU(at(j), d, to + j);
  if (j < count) sn::StoreSome(at(j), d, to + j, count - j);
}

/// The bias of a query for pairs first .. first + count. A place has all digits in float32 up to
/// 2^24.
template <class T>
void LoadBias(const QueriedPairs& m, const Place& query, std::int64_t first, std::int64_t count,
              T* to) {
  const QueryBias& bias = m.bias;
  const double place = bias.PlaceOf(query.token);
  const auto inverse = static_cast<T>(1 / bias.extent), exponent = static_cast<T>(bias.exponent);
  const auto extent = static_cast<T>(bias.extent);
  constexpr T kNone = -std::numeric_limits<T>::infinity();
  switch (bias.kind) {
    case BiasKind::kNone: std::fill(to, to + count, T(0)); return;
    case BiasKind::kRows:
      return sn::LoadRow(bias.rows.Of(query.query), query.token, first, count, to);
    case BiasKind::kDistance:
      return FillBias(place, first, count, to, [&](auto d, auto distance, auto) HWY_ATTR {
        return hn::Mul(distance, hn::Set(d, -inverse));
      });
    case BiasKind::kPower:
      return FillBias(place, first, count, to, [&](auto d, auto distance, auto) HWY_ATTR {
        const auto by = hn::MulAdd(distance, hn::Set(d, inverse), hn::Set(d, T(1)));
        return hn::Mul(hn::Log(d, by), hn::Set(d, -exponent));
      });
    case BiasKind::kBlock: {
      const T block = static_cast<T>(std::floor(place / bias.extent));
      return FillBias(place, first, count, to, [&](auto d, auto, auto s) HWY_ATTR {
        const auto own = hn::Eq(hn::Floor(hn::Div(s, hn::Set(d, extent))), hn::Set(d, block));
        return hn::IfThenElse(own, hn::Zero(d), hn::Set(d, kNone));
      });
    }
    case BiasKind::kPrefix:
      return FillBias(place, first, count, to, [&](auto d, auto, auto s) HWY_ATTR {
        const auto seen =
            hn::Or(hn::Le(s, hn::Set(d, static_cast<T>(place))), hn::Lt(s, hn::Set(d, extent)));
        return hn::IfThenElse(seen, hn::Zero(d), hn::Set(d, kNone));
      });
  }
}

/// The logarithm of the weight that a pair has for a query beside their similarity, where its
/// offset (PairWeights) counts from `reference`. -inf hides the pair, whatever the other part is.
HWY_INLINE double LogWeightOf(const QueriedPairs& m, const Place& query, std::int64_t pair,
                              double reference = 0) {
  constexpr double kNone = -std::numeric_limits<double>::infinity();
  const double own = OffsetOf(m, pair) - reference;
  if (!m.bias || own == kNone) return own;
  double bias = 0;
  LoadBias(m, query, pair, 1, &bias);
  return bias == kNone ? kNone : own + bias;
}

/// Fills weights.references, once the other weights are there.
inline void ReferQueriesAs(const QueriedPairs& m) {
  constexpr double kNone = -std::numeric_limits<double>::infinity();
  if (!m.weighted || m.rows == 0) return;
  std::int64_t next = 0, heaviest = -1;
  double most = kNone;
  for (std::int64_t t = 0; t < m.rows / m.queries; ++t) {
    const Range seen = m.SeenAt(t);
    if (heaviest < seen.first) {  // it has left the visible range
      next = seen.first;
      most = kNone;
    }
    for (; next < seen.end; ++next) {
      const double offset = OffsetOf(m, next);
      if (!(offset >= most) || !std::isfinite(offset)) continue;
      most = offset;
      heaviest = next;
    }
    m.weights.references[t] = most == kNone ? 0 : most;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::common
HWY_AFTER_NAMESPACE();

#endif  // TTR_COMMON_QUERIES_INL_H_
