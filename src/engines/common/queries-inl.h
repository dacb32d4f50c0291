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

/// The greatest offset that is seen, from which others are counted: their differences keep their
/// digits.
inline double ReferenceOf(const QueriedPairs& m, const Range& seen) {
  if (!m.weighted) return 0;
  double most = -std::numeric_limits<double>::infinity();
  for (std::int64_t i = seen.first; i < seen.end; ++i) most = std::max(most, OffsetOf(m, i));
  return std::isfinite(most) ? most : 0;
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::common
HWY_AFTER_NAMESPACE();

#endif  // TTR_COMMON_QUERIES_INL_H_
