// Outputs of a block of queries, over blocks of pairs from the latest to the first. Compiled once
// for every target.

#if defined(TTR_KERNEL_SMOOTHER_OUTPUTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_KERNEL_SMOOTHER_OUTPUTS_INL_H_
#undef TTR_KERNEL_SMOOTHER_OUTPUTS_INL_H_
#else
#define TTR_KERNEL_SMOOTHER_OUTPUTS_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "hwy/highway.h"
#include "src/engines/kernel_smoother/load-inl.h"
#include "src/engines/kernel_smoother/reach-inl.h"
#include "src/engines/kernel_smoother/store-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::kernel_smoother {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

template <class T>
class OutputsPass {
 public:
  OutputsPass(const Task& task, const Scratch<T>& scratch)
      : options_(task.options),
        m_(task.memory),
        task_(task),
        block_(m_, task.first),
        s_(scratch),
        offsets_(m_, scratch.offsets),
        reach_(options_.kernel, m_, scratch.boxes) {}

  void Run() {
    Start();
    const Range seen = block_.SeenBy(0, task_.count);
    // The latest pairs come first: with a decay they set the maximum, and the oldest count nothing.
    for (std::int64_t first = (seen.end - 1) / s_.pairs * s_.pairs;
         first >= 0 && first + s_.pairs > seen.first; first -= s_.pairs) {
      PairBlock(first, std::min(s_.pairs, seen.end - first));
    }
    for (std::int64_t i = 0; i < task_.count; ++i) Store(i);
  }

 private:
  static constexpr int kRows = ln::kTileRows;

  void Start() {
    LoadQueries(m_, task_.first, task_.count, ScaleOf(options_),
                linalg::RoundUp(task_.count, kStrip), s_.q);
    reach_.TakeQueries(s_.q, task_.count);
    const std::int64_t wide = linalg::RoundUp(m_.value_dim, kUnit);
    linalg::ZeroRows(s_.y, 0, linalg::RoundUp(task_.count, kStrip), wide);
    std::fill(s_.tops, s_.tops + kQueries, cn::kNever<T>);
    std::fill(s_.sums, s_.sums + kQueries, T(0));
    std::fill(s_.squares, s_.squares + kQueries, T(0));
    std::fill(s_.hits, s_.hits + kQueries, T(0));
  }

  void PairBlock(std::int64_t first, std::int64_t count) {
    if (m_.weighted) {
      offsets_.Start(first, count);
      if (offsets_.Hides(task_.first, task_.count)) return;
    }
    LoadPairs(KeysOf(m_), first, count, m_.key_dim, s_.rows);
    reach_.TakeKeys(s_.rows, count);
    if (reach_.IsEmpty(m_.weighted ? LeastTop() : T(0))) return;
    LoadPairs(ValuesOf(m_), first, count, m_.value_dim, s_.v);
    const std::int64_t dk = linalg::RoundUp(m_.key_dim, kUnit);
    ln::Transpose(s_.rows, linalg::RoundUp(count, kUnit), dk, s_.kt);
    nonfinite_ = SetNonfiniteAside(s_.v, count, linalg::RoundUp(m_.value_dim, kUnit), s_.nonfinite);
    for (std::int64_t i = 0; i < task_.count; i += kRows) Strip(i, first, count);
  }

  /// The least of the queries' greatest scores over the greatest weight of a block of pairs; NaN
  /// where not all see the block.
  T LeastTop() {
    if (!offsets_.FindGreatest(block_.TokenOf(0), block_.TokenOf(task_.count - 1))) {
      return std::numeric_limits<T>::quiet_NaN();
    }
    T least = std::numeric_limits<T>::infinity();
    for (std::int64_t i = 0; i < task_.count; ++i) {
      least = std::min(least, s_.tops[i] - offsets_.GreatestFor(block_.TokenOf(i)));
    }
    return least;
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
    if (common::IsByDistance(options_.kernel)) {
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
    const Range inside{seen.first - first, seen.end - first};
    if (common::IsCompact(options_.kernel) && !m_.weighted) {
      s_.sums[i] +=
          cn::CompactWeights(options_.kernel, columns, inside.first, inside.end, width_, scores);
      if (s_.sums[i] != 0) s_.tops[i] = 0;
      AddSquares(i, scores, columns, 1);
      return;
    }
    cn::ColumnOffsets<T> of_query{};
    if (m_.weighted) of_query = offsets_.For(block_.PlaceOf(i), first % s_.pairs);
    const auto* const offsets = m_.weighted ? &of_query : nullptr;
    if (common::HasHits(options_.kernel)) TakeHits(i, inside, columns, offsets, scores);
    const T greatest =
        cn::LogScores(options_.kernel, columns, inside.first, inside.end, width_, offsets, scores);
    cn::RunningSum<T> sum{s_.tops[i], s_.sums[i]};
    const T factor = sum.Add(columns, greatest, scores);
    s_.tops[i] = sum.top;
    s_.sums[i] = sum.sum;
    AddSquares(i, scores, columns, factor);
    if (factor != 1) {
      T* const y = s_.y.Row(i);
      const hn::ScalableTag<T> d;
      const auto by = hn::Set(d, factor);
      for (std::int64_t c = 0; c < m_.value_dim; c += static_cast<std::int64_t>(hn::Lanes(d))) {
        hn::Store(hn::Mul(by, hn::Load(d, y + c)), d, y + c);
      }
    }
  }

  /// Takes weights into the sum of their squares; `factor` is what sums before them are multiplied
  /// by.
  HWY_INLINE void AddSquares(std::int64_t i, const T* weights, std::int64_t columns,
                             T factor) const {
    if (!m_.effective_pairs) return;
    s_.squares[i] *= factor * factor;
    s_.squares[i] += static_cast<T>(sn::SumOfSquares(weights, columns));
  }

  /// A first hit throws away what was summed before.
  void TakeHits(std::int64_t i, const Range& seen, std::int64_t columns,
                const cn::ColumnOffsets<T>* offsets, T* squares) {
    if (s_.hits[i] == 0 && cn::HasHit(std::max<std::int64_t>(seen.first, 0),
                                      std::min(seen.end, columns), offsets, squares)) {
      s_.hits[i] = 1;
      s_.tops[i] = cn::kNever<T>;
      s_.sums[i] = s_.squares[i] = 0;
      std::fill(s_.y.Row(i), s_.y.Row(i) + m_.value_dim, T(0));
    }
    if (s_.hits[i] != 0) cn::KeepHits(columns, squares);
  }

  void AddValues(std::int64_t i, std::int64_t rows, const Range& seen, std::int64_t first) {
    const Block<T> y{s_.y.Row(i), s_.y.stride};
    ln::Multiply<ln::Into::kAdd>(
        linalg::Left<T>::Of(s_.scores), s_.v.Rows(seen.first), kRows,
        ln::Whole{linalg::RoundUp(m_.value_dim, kUnit), seen.end - seen.first}, y);
    // Values that are not finite go only to queries that give them weight.
    for (std::int64_t at = 0; at < nonfinite_; ++at) {
      const std::int64_t j = s_.nonfinite[at];
      if (j < seen.first || j >= seen.end) continue;
      ValuesOf(m_).Load(first + j, m_.value_dim, s_.row);
      for (std::int64_t r = 0; r < rows; ++r) {
        const T p = s_.scores.Row(r)[j - seen.first];
        if (p == 0) continue;
        for (std::int64_t c = 0; c < m_.value_dim; ++c) y.Row(r)[c] += p * s_.row[c];
      }
    }
  }

  /// log w of the query's reference.
  double TotalOf(std::int64_t i) const {
    if (!m_.weighted) return 0;
    const std::int64_t t = block_.TokenOf(i), written = block_.Written(t);
    const double reference = m_.weights.references[t];
    if (m_.visible.tokens == 0 || written < 0) return reference;
    return reference + m_.weights.totals[written];
  }

  void Store(std::int64_t i) {
    const Place place = Place::Of(m_, task_.first + i);
    const WeightSum<T> sum{s_.tops[i], s_.sums[i], TotalOf(i)};
    StoreOutput(options_, m_, place, sum, s_.y.Row(i));
    if (m_.effective_pairs) StoreEffectivePairs(i, place);
    if (task_.saved.logs != nullptr) Save(i, place, sum);
  }

  /// (sum w)^2 / sum w^2
  void StoreEffectivePairs(std::int64_t i, const Place& place) const {
    const double sum = s_.sums[i];
    const double pairs = sum == 0 ? 0 : sum * sum / static_cast<double>(s_.squares[i]);
    sn::StoreRow(&pairs, place.token, 0, 1, m_.effective_pairs.Of(place.query));
  }

  void Save(std::int64_t i, const Place& place, const WeightSum<T>& sum) {
    const std::int64_t at = task_.first + i, channels = m_.value_dim;
    const SavedQueries& saved = task_.saved;
    const T* const y = s_.y.Row(i);
    static_cast<T*>(saved.logs)[at] = options_.normalised
                                          ? sum.top + static_cast<T>(std::log(sum.sum))
                                          : static_cast<T>(-sum.total);
    if (saved.hits != nullptr) static_cast<T*>(saved.hits)[at] = s_.hits[i];
    if (saved.means != nullptr)
      std::copy_n(y, channels, static_cast<T*>(saved.means) + at * channels);
    if (saved.dots != nullptr) {
      sn::LoadRow(saved.dy.Of(place.query), place.token, 0, channels, s_.row);
      static_cast<T*>(saved.dots)[at] = static_cast<T>(sn::WideDot(channels, y, s_.row));
    }
  }

  const Options& options_;
  const Memory& m_;
  const Task& task_;
  const QueryBlock block_;
  const Scratch<T>& s_;
  cn::BlockOffsets<T> offsets_;
  Reach<T> reach_;
  std::int64_t nonfinite_ = 0;  // values of a block that are not finite
  const T width_ = cn::WidthOf<T>(options_.kernel, m_.bandwidth);
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::kernel_smoother
HWY_AFTER_NAMESPACE();

#endif  // TTR_KERNEL_SMOOTHER_OUTPUTS_INL_H_
