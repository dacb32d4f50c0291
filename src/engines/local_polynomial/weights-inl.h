// Shares of pairs in the fits of some queries, a block of pairs at a time. Compiled once for every
// target.

#if defined(TTR_LOCAL_POLYNOMIAL_WEIGHTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_LOCAL_POLYNOMIAL_WEIGHTS_INL_H_
#undef TTR_LOCAL_POLYNOMIAL_WEIGHTS_INL_H_
#else
#define TTR_LOCAL_POLYNOMIAL_WEIGHTS_INL_H_
#endif

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/common/block_offsets-inl.h"
#include "src/engines/common/closeness-inl.h"
#include "src/engines/common/queries-inl.h"
#include "src/engines/local_polynomial/task.h"
#include "src/linalg/blocks-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::local_polynomial {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace sn = ttr::simd::HWY_NAMESPACE;
namespace ln = ttr::linalg::HWY_NAMESPACE;
namespace cn = ttr::common::HWY_NAMESPACE;

/// Blocks of pairs begin with the first that is seen, wherever it lies: what is summed does not
/// depend on which rows a state has dropped.
template <class T>
class Weights {
 public:
  /// Weights of the task's queries, whose sums are known or are still to be taken.
  Weights(const Task& task, const WeightScratch<T>& scratch)
      : m_(task.memory),
        count_(task.count),
        block_(m_, task.first),
        seen_(block_.SeenBy(0, task.count)),
        kernel_(task.options.kernel),
        width_(cn::WidthOf<T>(kernel_, m_.bandwidth)),
        s_(scratch),
        offsets_(m_, scratch.offsets) {
    cn::LoadQueries(m_, task.first, count_, 1, kQueries, s_.q);
    const double scale = common::IsByDistance(kernel_) ? 1 : task.options.scale;
    cn::LoadQueries(m_, task.first, count_, scale, kQueries, s_.scaled);
  }

  void Start() const {
    std::fill(s_.tops, s_.tops + kQueries, cn::kNever<T>);
    std::fill(s_.sums, s_.sums + kQueries, T(0));
    std::fill(s_.hits, s_.hits + kQueries, T(0));
    std::fill(s_.near, s_.near + kQueries, std::int64_t{0});
  }

  /// Queries that are marked take no part: they see no pair.
  void LeaveOut(const std::array<bool, kQueries>& idle) { idle_ = idle; }

  const Range& seen() const { return seen_; }
  std::int64_t count() const { return count_; }
  T width() const { return width_; }

  /// Calls each(first, count) for all blocks; keys are loaded: s.k, finite, and s.kt.
  template <class Each>
  void ForBlocks(const Each& each) {
    for (std::int64_t first = seen_.first; first < seen_.end; first += kPairs) {
      const std::int64_t count = std::min(kPairs, seen_.end - first);
      LoadKeys(first, count);
      LoadOffsets(first, count);
      each(first, count);
    }
  }

  /// Takes a block into maxima and sums. rescale(query, by): what was summed over exp(top) has to
  /// be multiplied by this.
  template <class Rescale>
  void Sum(std::int64_t first, std::int64_t count, const Rescale& rescale) {
    const std::int64_t columns = linalg::RoundUp(count, kUnit);
    Score(columns);
    for (std::int64_t i = 0; i < count_; ++i) {
      const T by = SumRow(i, SeenByOne(i, first), columns);
      if (by != 1) rescale(i, by);
    }
    ClearRest(columns);
  }

  /// s.p: shares in sums that are complete. False where all are 0.
  bool Share(std::int64_t first, std::int64_t count) {
    const std::int64_t columns = linalg::RoundUp(count, kUnit);
    Score(columns);
    if (s_.x.data != nullptr) linalg::CopyRows(s_.scores, count_, columns, s_.x);
    bool any = false;
    for (std::int64_t i = 0; i < count_; ++i) any |= ShareRow(i, SeenByOne(i, first), columns);
    if (!any) return false;
    ClearRest(columns);
    ln::Transpose(s_.scores, kQueries, columns, s_.p);
    return true;
  }

  /// Does no pair have weight? Then the sum is 0.
  bool Alone(std::int64_t i) const { return s_.tops[i] == cn::kNever<T> && s_.sums[i] == 0; }

  /// Loads keys that are finite, without their transpose.
  void LoadRows(std::int64_t first, std::int64_t count) const {
    cn::LoadPairs(cn::KeysOf(m_), first, count, m_.key_dim, s_.k);
    cn::SetNonfiniteAside(s_.k, count, linalg::RoundUp(m_.key_dim, kUnit), nullptr);
  }

  void LoadKeys(std::int64_t first, std::int64_t count) const {
    const std::int64_t dk = linalg::RoundUp(m_.key_dim, kUnit);
    cn::LoadPairs(cn::KeysOf(m_), first, count, m_.key_dim, s_.k);
    ln::Transpose(s_.k, linalg::RoundUp(count, kUnit), dk, s_.kt);
    cn::SetNonfiniteAside(s_.k, count, dk, nullptr);
  }

  void LoadOffsets(std::int64_t first, std::int64_t count) {
    if (!m_.weighted) return;
    offsets_.Start(first, count);
    for (std::int64_t j = 0; s_.marks != nullptr && j < count; ++j) {
      const std::int64_t t = first + j - m_.visible.held;
      const bool marked = t >= 0 && m_.importance && sn::LoadOne<double>(m_.importance, t) == 0;
      if (marked) offsets_.SetWhole(j);
      s_.marks[j] = marked ? T(1) : T(0);
    }
  }

 private:
  /// The offsets of query i; null where pairs have no weights.
  const cn::ColumnOffsets<T>* OffsetsOf(std::int64_t i) {
    if (!m_.weighted) return nullptr;
    of_query_ = offsets_.For(block_.PlaceOf(i), 0);
    return &of_query_;
  }

  Range SeenByOne(std::int64_t i, std::int64_t first) const {
    const Range seen = block_.SeenByOne(i);
    return {seen.first - first, seen.end - first};
  }

  /// What was summed before has to be multiplied by the result.
  T SumRow(std::int64_t i, const Range& seen, std::int64_t columns) {
    T* const scores = s_.scores.Row(i);
    if (idle_[i]) {
      std::fill(scores, scores + columns, T(0));
      return 1;
    }
    const cn::ColumnOffsets<T>* const offsets = OffsetsOf(i);
    bool fresh = false;
    if (common::HasHits(kernel_)) {
      fresh = s_.hits[i] == 0 && cn::HasHit(std::max<std::int64_t>(seen.first, 0),
                                            std::min(seen.end, columns), offsets, scores);
      // A first hit throws away what was summed before.
      if (fresh) {
        s_.hits[i] = 1;
        s_.tops[i] = cn::kNever<T>;
        s_.sums[i] = 0;
        s_.near[i] = 0;
      }
      if (s_.hits[i] != 0) cn::KeepHits(columns, scores);
    }
    const T greatest =
        cn::LogScores(kernel_, columns, seen.first, seen.end, width_, offsets, scores);
    cn::RunningSum<T> sum{s_.tops[i], s_.sums[i]};
    const T factor = sum.Add(columns, greatest, scores);
    s_.tops[i] = sum.top;
    s_.sums[i] = sum.sum;
    s_.near[i] += CountWeights(columns, scores);
    return fresh ? T(0) : factor;
  }

  static std::int64_t CountWeights(std::int64_t columns, const T* weights) {
    const hn::ScalableTag<T> d;
    const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
    std::size_t count = 0;
    for (std::int64_t j = 0; j < columns; j += lanes) {
      count += hn::CountTrue(d, hn::Ne(hn::Load(d, weights + j), hn::Zero(d)));
    }
    return static_cast<std::int64_t>(count);
  }

  /// False where all shares are 0.
  bool ShareRow(std::int64_t i, const Range& seen, std::int64_t columns) {
    const hn::ScalableTag<T> d;
    const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
    T* const scores = s_.scores.Row(i);
    if (Alone(i)) {
      std::fill(scores, scores + columns, T(0));
      return false;
    }
    if (common::HasHits(kernel_) && s_.hits[i] != 0) cn::KeepHits(columns, scores);
    cn::LogScores(kernel_, columns, seen.first, seen.end, width_, OffsetsOf(i), scores);
    const auto top = hn::Set(d, s_.tops[i] == cn::kNever<T> ? T(0) : s_.tops[i]);
    const auto by = hn::Set(d, s_.sums[i] == 0 ? T(0) : 1 / s_.sums[i]);
    auto any = hn::Zero(d);
    for (std::int64_t j = 0; j < columns; j += lanes) {
      const auto w = sn::ExpFlushed(d, hn::Sub(hn::Load(d, scores + j), top));
      const auto p = hn::Mul(w, by);
      hn::Store(p, d, scores + j);
      any = hn::Or(any, p);
    }
    return !hn::AllTrue(d, hn::Eq(any, hn::Zero(d)));
  }

  void Score(std::int64_t columns) const {
    const bool by_distance = common::IsByDistance(kernel_);
    for (std::int64_t i = 0; i < count_; i += ln::kTileRows) {
      const Block<T> q = s_.scaled.Rows(i), to = s_.scores.Rows(i);
      if (by_distance) {
        cn::SquaredDistances(q, s_.kt, columns, m_.key_dim, to);
      } else {
        ln::Multiply<ln::Into::kSet>(linalg::Left<T>::Of(q), s_.kt, ln::kTileRows,
                                     ln::Whole{columns, m_.key_dim}, to);
      }
    }
  }

  /// Lanes without a query weigh nothing.
  void ClearRest(std::int64_t columns) const {
    linalg::ZeroRows(s_.scores, count_, kQueries, columns);
  }

  const Memory& m_;
  const std::int64_t count_;
  const common::QueryBlock block_;
  const Range seen_;
  const common::Kernel kernel_;
  const T width_;
  const WeightScratch<T>& s_;
  cn::BlockOffsets<T> offsets_;
  cn::ColumnOffsets<T> of_query_{};
  std::array<bool, kQueries> idle_{};
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::local_polynomial
HWY_AFTER_NAMESPACE();

#endif  // TTR_LOCAL_POLYNOMIAL_WEIGHTS_INL_H_
