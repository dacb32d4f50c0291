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
