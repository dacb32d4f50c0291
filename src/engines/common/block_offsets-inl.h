// Logarithms of weights of a block of pairs, for one query after the other. Compiled once for every
// target.

#if defined(TTR_COMMON_BLOCK_OFFSETS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_COMMON_BLOCK_OFFSETS_INL_H_
#undef TTR_COMMON_BLOCK_OFFSETS_INL_H_
#else
#define TTR_COMMON_BLOCK_OFFSETS_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "hwy/highway.h"
#include "src/engines/common/block_offsets.h"
#include "src/engines/common/closeness-inl.h"
#include "src/engines/common/pairs-inl.h"
#include "src/engines/common/queries-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::common {
namespace HWY_NAMESPACE {

/// The greatest of those that are finite, else 0.
inline double GreatestFinite(const double* x, std::int64_t count) {
  const hn::ScalableTag<double> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  constexpr double kNone = -std::numeric_limits<double>::infinity();
  const auto none = hn::Set(d, kNone);
  auto most = none;
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto one = hn::LoadU(d, x + i);
    const auto finite = hn::Eq(hn::Sub(one, one), hn::Zero(d));
    most = hn::Max(most, hn::IfThenElse(finite, one, none));
  }
  double greatest = hn::GetLane(hn::MaxOfLanes(d, most));
  for (; i < count; ++i) {
    if (std::isfinite(x[i])) greatest = std::max(greatest, x[i]);
  }
  return greatest == kNone ? 0 : greatest;
}

/// With o the offsets (PairWeights) and r the reference of a query,
///
///     log w_j - log w_r = (o_j - R) + (R - r),    R = the greatest o_j of a span of the block
///
/// in the type of the arithmetic, each difference taken in double. Neither is positive, so that
/// their sum has all digits. A span ends before the query's own unit of pairs, and many queries
/// share it; pairs of that unit are counted from r, for each query. So nothing that a query does
/// not see has a part in its numbers.
template <class T>
class BlockOffsets {
 public:
  BlockOffsets(const QueriedPairs& pairs, const OffsetRoom<T>& room) : m_(pairs), s_(room) {}

  /// Pairs first .. first + count.
  void Start(std::int64_t first, std::int64_t count) {
    first_ = first;
    count_ = count;
    span_ = {-1, -1};
    for (std::int64_t j = 0; j < count; ++j) s_.offsets[j] = OffsetOf(m_, first + j);
  }
  /// Counts pair j of the block as if its importance were 1.
  void SetWhole(std::int64_t j) {
    s_.offsets[j] = -m_.weights.totals[first_ + j - m_.visible.held];
  }

  /// The offsets that a query has for columns of the block from `begin` on, a whole unit.
  HWY_INLINE ColumnOffsets<T> For(const Place& query, std::int64_t begin) {
    const ColumnOffsets<T> of_token = ForToken(query.token, begin);
    return m_.bias ? Biased(query, begin, of_token) : of_token;
  }

  /// The greatest logarithm of a weight in the block for a query of token t, which sees all of it.
  T GreatestFor(std::int64_t t) const { return static_cast<T>(most_ - m_.weights.references[t]); }
  /// Finds what GreatestFor() returns for tokens t to `last`. False where they do not all see the
  /// whole block, or one of its weights is NaN, or every query has weights of its own.
  bool FindGreatest(std::int64_t t, std::int64_t last) {
    if (m_.bias) return false;
    if (m_.visible.End(t) < first_ + count_ || m_.ForgottenAt(last) > first_) return false;
    most_ = -std::numeric_limits<double>::infinity();
    for (std::int64_t j = 0; j < count_; ++j) {
      if (std::isnan(s_.offsets[j])) return false;
      most_ = std::max(most_, s_.offsets[j]);
    }
    return true;
  }

  /// Does the bias hide the block from all of these rows of queries?
  bool Hides(std::int64_t row, std::int64_t rows) const {
    for (std::int64_t i = 0; i < rows; ++i) {
      if (!m_.bias) return false;
      LoadBias(m_, Place::Of(m_, row + i), first_, count_, s_.biased);
      const auto hidden = [](T bias) { return bias == kNever<T>; };
      if (!std::all_of(s_.biased, s_.biased + count_, hidden)) return false;
    }
    return true;
  }

 private:
  /// The offsets that pairs have for all queries of token t.
  HWY_INLINE ColumnOffsets<T> ForToken(std::int64_t t, std::int64_t begin) {
    const Range seen = m_.SeenAt(t);
    const std::int64_t end = std::min(seen.end - first_, count_);
    const std::int64_t whole = linalg::RoundUp(count_, linalg::kUnit);
    const std::int64_t split =
        end == count_ ? whole : std::max(end / linalg::kUnit * linalg::kUnit, begin);
    // Forgotten pairs count from another origin, and pairs that left a window may hold anything.
    const std::int64_t left = std::max<std::int64_t>(seen.first - first_, 0);
    const std::int64_t least = std::max(left / linalg::kUnit * linalg::kUnit, begin);
    CountFrom({std::max(least, m_.ForgottenAt(t) - first_), std::min(split, count_)});
    const double reference = m_.weights.references[t];
    if (split < end) CountRest(split, end, reference);
    return {.main = s_.main + begin,
            .shift = static_cast<T>(greatest_ - reference),
            .split = split - begin,
            .rest = s_.rest};
  }

  /// With the bias of a query. -inf hides a pair, whatever its weight is, and a pair without weight
  /// has none, whatever the bias is.
  ColumnOffsets<T> Biased(const Place& query, std::int64_t begin,
                          const ColumnOffsets<T>& of_token) const {
    const hn::ScalableTag<T> d;
    const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
    const std::int64_t whole = linalg::RoundUp(count_, linalg::kUnit) - begin;
    T* const to = s_.biased + begin;
    LoadBias(m_, query, first_ + begin, count_ - begin, to);
    std::fill(to + (count_ - begin), to + whole, T(0));
    const auto never = hn::Set(d, kNever<T>);
    for (std::int64_t j = 0; j < whole; j += lanes) {
      const auto bias = hn::Load(d, to + j), own = LoadOffsets(d, of_token, j);
      const auto none = hn::Or(hn::Eq(bias, never), hn::Eq(own, never));
      hn::Store(hn::IfThenElse(none, never, hn::Add(own, bias)), d, to + j);
    }
    return {.main = to, .split = whole};
  }

  struct Span {
    std::int64_t first, end;
    bool operator==(const Span&) const = default;
  };

  /// Fills s.main from the greatest finite offset of these pairs.
  void CountFrom(const Span& span) {
    if (span == span_) return;
    span_ = span;
    greatest_ = GreatestFinite(s_.offsets + span.first, span.end - span.first);
    for (std::int64_t j = span.first / linalg::kUnit * linalg::kUnit; j < span.end; ++j) {
      s_.main[j] = static_cast<T>(s_.offsets[j] - greatest_);
    }
    std::fill(s_.main + span.end, s_.main + linalg::RoundUp(span.end, linalg::kUnit), T(0));
  }

  void CountRest(std::int64_t split, std::int64_t end, double reference) const {
    for (std::int64_t j = split; j < end; ++j) {
      s_.rest[j - split] = static_cast<T>(s_.offsets[j] - reference);
    }
    std::fill(s_.rest + (end - split), s_.rest + linalg::kUnit, T(0));
  }

  const QueriedPairs& m_;
  const OffsetRoom<T> s_;
  std::int64_t first_ = 0, count_ = 0;
  Span span_{-1, -1};
  double greatest_ = 0;  // of the span
  double most_ = 0;      // of the block
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::common
HWY_AFTER_NAMESPACE();

#endif  // TTR_COMMON_BLOCK_OFFSETS_INL_H_
