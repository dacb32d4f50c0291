// Answers of a block of queries, over blocks of pairs from the latest to the first. Compiled once
// for every target.

#if defined(TTR_KERNEL_SMOOTHER_ANSWER_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_KERNEL_SMOOTHER_ANSWER_INL_H_
#undef TTR_KERNEL_SMOOTHER_ANSWER_INL_H_
#else
#define TTR_KERNEL_SMOOTHER_ANSWER_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "hwy/highway.h"
#include "src/engines/kernel_smoother/load-inl.h"
#include "src/engines/kernel_smoother/store-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::kernel_smoother {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// The least and the greatest of every channel of some rows.
template <class T>
struct Box {
  T *low = nullptr, *high = nullptr;

  /// False where it has no sides: there is no room for them, or a row is not finite.
  bool Of(const Block<T>& rows, std::int64_t count, std::int64_t channels) const {
    if (low == nullptr) return false;
    std::copy_n(rows.Row(0), channels, low);
    std::copy_n(rows.Row(0), channels, high);
    for (std::int64_t i = 0; i < count; ++i) {
      const T* const row = rows.Row(i);
      for (std::int64_t c = 0; c < channels; ++c) {
        low[c] = row[c] < low[c] ? row[c] : low[c];
        high[c] = row[c] > high[c] ? row[c] : high[c];
      }
    }
    for (std::int64_t i = 0; i < count; ++i) {
      if (!IsFinite(rows.Row(i), linalg::RoundUp(channels, kUnit))) return false;
    }
    return true;
  }

  /// The least squared distance between points of two boxes.
  double SquaredGap(const Box& other, std::int64_t channels) const {
    double sum = 0;
    for (std::int64_t c = 0; c < channels; ++c) {
      const T gap = std::max({low[c] - other.high[c], other.low[c] - high[c], T(0)});
      sum += static_cast<double>(gap) * static_cast<double>(gap);
    }
    return sum;
  }
};

/// The greatest length of some rows; NaN of what is not finite.
template <class T>
double LongestOf(const Block<T>& rows, std::int64_t count, std::int64_t channels) {
  double most = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const double squares = sn::SumOfSquares(static_cast<const T*>(rows.Row(i)), channels);
    if (!std::isfinite(squares)) return std::numeric_limits<double>::quiet_NaN();
    most = std::max(most, squares);
  }
  return std::sqrt(most);
}

template <class T, class KERNEL>
class Answers {
 public:
  Answers(const Task& task, const Scratch<T>& scratch)
      : options_(task.options), m_(task.memory), task_(task), block_(m_, task.first), s_(scratch) {}

  void Run() {
    Start();
    const Range seen = block_.SeenBy(0, task_.count);
    reference_ = block_.ReferenceOf(seen);
    // The latest pairs tell the maximum, beside which a decay leaves nothing of the first.
    for (std::int64_t first = (seen.end - 1) / s_.pairs * s_.pairs;
         first >= 0 && first + s_.pairs > seen.first; first -= s_.pairs) {
      PairBlock(first, std::min(s_.pairs, seen.end - first));
    }
    if (task_.kept.reference != nullptr) *task_.kept.reference = reference_;
    for (std::int64_t i = 0; i < task_.count; ++i) Store(i);
  }

 private:
  static constexpr int kRows = ln::kTileRows;

  void Start() {
    LoadQueries(task_, s_.q);
    if (common::IsCompact(options_.kernel)) {
      queries_box_ = {s_.query_low, s_.query_high};
      keys_ = {s_.key_low, s_.key_high};
      if (!queries_box_.Of(s_.q, task_.count, m_.key_dim)) keys_ = {};
    } else if (m_.weighted) {
      longest_query_ = LongestOf(s_.q, task_.count, m_.key_dim);
    }
    const std::int64_t wide = linalg::RoundUp(m_.value_dim, kUnit);
    linalg::ZeroRows(s_.y, 0, linalg::RoundUp(task_.count, kStrip), wide);
    std::fill(s_.tops, s_.tops + kQueries, cn::kNever<T>);
    std::fill(s_.sums, s_.sums + kQueries, T(0));
    std::fill(s_.hits, s_.hits + kQueries, T(0));
  }

  void PairBlock(std::int64_t first, std::int64_t count) {
    if (m_.weighted) LoadOffsets(first, count);
    LoadPairs(KeysOf(m_), first, count, m_.key_dim, s_.rows);
    if (IsBeyondReach(first, count)) return;
    LoadPairs(ValuesOf(m_), first, count, m_.value_dim, s_.v);
    const std::int64_t dk = linalg::RoundUp(m_.key_dim, kUnit);
    ln::Transpose(s_.rows, linalg::RoundUp(count, kUnit), dk, s_.kt);
    odd_ = SetOddAside(s_.v, count, linalg::RoundUp(m_.value_dim, kUnit), s_.odd);
    for (std::int64_t i = 0; i < task_.count; i += kRows) Strip(i, first, count);
  }

  void LoadOffsets(std::int64_t first, std::int64_t count) {
    for (std::int64_t j = 0; j < count; ++j) {
      s_.offsets[j] = static_cast<T>(OffsetOf(m_, first + j) - reference_);
    }
    std::fill(s_.offsets + count, s_.offsets + linalg::RoundUp(count, kUnit), T(0));
  }

  /// Does no query give any of these pairs a weight that is more than 0? By a bound of their
  /// scores: a compact kernel leaves nothing between boxes that are a bandwidth apart, and a decay
  /// nothing of what is far below the maximum.
  bool IsBeyondReach(std::int64_t first, std::int64_t count) {
    if (common::IsCompact(options_.kernel)) {
      if (keys_.Of(s_.rows, count, m_.key_dim)) {
        const double gap = keys_.SquaredGap(queries_box_, m_.key_dim);
        // Distances round, too.
        return gap * (1 - 1e-4) > m_.bandwidth * m_.bandwidth;
      }
      return false;
    }
    if (!m_.weighted || KERNEL::kHasHits) return false;
    T most = *std::max_element(s_.offsets, s_.offsets + count);
    T least = std::numeric_limits<T>::infinity();  // of maxima
    for (std::int64_t i = 0; i < task_.count; ++i) {
      if (block_.SeenByOne(i).end > first) least = std::min(least, s_.tops[i]);
    }
    if (!(most < least + sn::kLowestExponent<T>)) return false;
    const double length = LongestOf(s_.rows, count, m_.key_dim);
    if (!std::isfinite(length)) return false;  // NaN is for those who see it
    const double score = KERNEL::kByDistance ? 0 : length * longest_query_;
    return static_cast<double>(most) + score < static_cast<double>(least + sn::kLowestExponent<T>);
  }

  /// Queries i .. i + kRows on a block of pairs.
  void Strip(std::int64_t i, std::int64_t first, std::int64_t count) {
    const std::int64_t rows = std::min<std::int64_t>(kRows, task_.count - i);
    const Range seen = block_.SeenBy(i, i + rows);
    const std::int64_t begin = std::max<std::int64_t>(seen.first - first, 0) / kUnit * kUnit;
    const std::int64_t end = std::min(seen.end - first, count);
    if (begin >= end) return;
    const std::int64_t columns = linalg::RoundUp(end, kUnit) - begin;
    const Block<T> q{s_.q.Row(i), s_.q.stride};
    if constexpr (KERNEL::kByDistance) {
      cn::SquaredDistances(q, s_.kt.Columns(begin), columns, m_.key_dim, s_.scores);
    } else {
      ln::Multiply<ln::Into::kSet>(linalg::Left<T>::Of(q), s_.kt.Columns(begin), kRows,
                                   ln::Whole{columns, m_.key_dim}, s_.scores);
    }
    for (std::int64_t r = 0; r < kRows; ++r) {
      if (r < rows) {
        Weigh(i + r, s_.scores.Row(r), first + begin, columns);
      } else {
        std::fill(s_.scores.Row(r), s_.scores.Row(r) + columns, T(0));
      }
    }
    AddValues(i, rows, {begin, end}, first);
  }

  /// A query's scores become weights over the maximum so far, and what was summed before follows.
  HWY_INLINE void Weigh(std::int64_t i, T* scores, std::int64_t first, std::int64_t columns) {
    const Range seen = block_.SeenByOne(i);
    const T* const offsets = m_.weighted ? s_.offsets + first % s_.pairs : nullptr;
    if constexpr (KERNEL::kHasHits)
      TakeHits(i, {seen.first - first, seen.end - first}, columns, offsets, scores);
    const T greatest = cn::LogScores<KERNEL>(columns, seen.first - first, seen.end - first, width_,
                                             offsets, scores);
    cn::RunningSum<T> sum{s_.tops[i], s_.sums[i]};
    const T factor = sum.Add(columns, greatest, scores);
    s_.tops[i] = sum.top;
    s_.sums[i] = sum.sum;
    if (factor != 1) {
      T* const y = s_.y.Row(i);
      const hn::ScalableTag<T> d;
      const auto by = hn::Set(d, factor);
      for (std::int64_t c = 0; c < m_.value_dim; c += static_cast<std::int64_t>(hn::Lanes(d))) {
        hn::Store(hn::Mul(by, hn::Load(d, y + c)), d, y + c);
      }
    }
  }

  /// A first hit throws away what was summed before.
  void TakeHits(std::int64_t i, const Range& seen, std::int64_t columns, const T* offsets,
                T* squares) {
    if (s_.hits[i] == 0 && cn::HasHit(std::max<std::int64_t>(seen.first, 0),
                                      std::min(seen.end, columns), offsets, squares)) {
      s_.hits[i] = 1;
      s_.tops[i] = cn::kNever<T>;
      s_.sums[i] = 0;
      std::fill(s_.y.Row(i), s_.y.Row(i) + m_.value_dim, T(0));
    }
    if (s_.hits[i] != 0) cn::KeepHits(columns, squares);
  }

  void AddValues(std::int64_t i, std::int64_t rows, const Range& seen, std::int64_t first) {
    const Block<T> y{s_.y.Row(i), s_.y.stride};
    ln::Multiply<ln::Into::kAdd>(
        linalg::Left<T>::Of(s_.scores), s_.v.Rows(seen.first), kRows,
        ln::Whole{linalg::RoundUp(m_.value_dim, kUnit), seen.end - seen.first}, y);
    // What is not finite goes to those alone that give it weight.
    for (std::int64_t at = 0; at < odd_; ++at) {
      const std::int64_t j = s_.odd[at];
      if (j < seen.first || j >= seen.end) continue;
      ValuesOf(m_).Load(first + j, m_.value_dim, s_.row);
      for (std::int64_t r = 0; r < rows; ++r) {
        const T p = s_.scores.Row(r)[j - seen.first];
        if (p == 0) continue;
        for (std::int64_t c = 0; c < m_.value_dim; ++c) y.Row(r)[c] += p * s_.row[c];
      }
    }
  }

  /// log w of a pair is an offset and this.
  double TotalOf(std::int64_t i) const {
    if (m_.weights.totals == nullptr || m_.sight.tokens == 0) return reference_;
    const std::int64_t t = block_.Written(block_.TokenOf(i));
    return t < 0 ? reference_ : reference_ + m_.weights.totals[t];
  }

  void Store(std::int64_t i) {
    const std::int64_t at = task_.first + i, t = at / m_.queries;
    const Place place{at - t * m_.queries, t};
    const WeightSum<T> sum{s_.tops[i], s_.sums[i], TotalOf(i)};
    StoreAnswer(options_, m_, place, sum, s_.y.Row(i));
    if (task_.kept.logs != nullptr) Keep(i, place, sum);
  }

  void Keep(std::int64_t i, const Place& place, const WeightSum<T>& sum) {
    const std::int64_t at = task_.first + i, channels = m_.value_dim;
    const Kept& kept = task_.kept;
    const T* const y = s_.y.Row(i);
    static_cast<T*>(kept.logs)[at] = options_.normalised
                                         ? sum.top + static_cast<T>(std::log(sum.sum))
                                         : static_cast<T>(-sum.total);
    if (kept.hits != nullptr) static_cast<T*>(kept.hits)[at] = s_.hits[i];
    if (kept.means != nullptr)
      std::copy_n(y, channels, static_cast<T*>(kept.means) + at * channels);
    if (kept.dots != nullptr) {
      sn::LoadRow(kept.dy.Of(place.query), place.token, 0, channels, s_.row);
      static_cast<T*>(kept.dots)[at] = static_cast<T>(sn::WideDot(channels, y, s_.row));
    }
  }

  const Options& options_;
  const Memory& m_;
  const Task& task_;
  const QueryBlock block_;
  const Scratch<T>& s_;
  double reference_ = 0;
  double longest_query_ = 0;
  Box<T> queries_box_, keys_;
  std::int64_t odd_ = 0;  // values of a block that are not finite
  const T width_ = cn::WidthOf<T>(options_.kernel, m_.bandwidth);
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::kernel_smoother
HWY_AFTER_NAMESPACE();

#endif  // TTR_KERNEL_SMOOTHER_ANSWER_INL_H_
