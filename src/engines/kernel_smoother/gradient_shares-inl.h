// The backward pass: from scores of a query to its shares, and gradients by its scores. Compiled
// once for every target.

#if defined(TTR_KERNEL_SMOOTHER_GRADIENT_SHARES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_KERNEL_SMOOTHER_GRADIENT_SHARES_INL_H_
#undef TTR_KERNEL_SMOOTHER_GRADIENT_SHARES_INL_H_
#else
#define TTR_KERNEL_SMOOTHER_GRADIENT_SHARES_INL_H_
#endif

#include <cmath>
#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/common/closeness-inl.h"
#include "src/engines/kernel_smoother/gradient.h"
#include "src/engines/kernel_smoother/load-inl.h"
#include "src/simd/elementary-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::kernel_smoother {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// Where a query's numbers are: its row of p and e, that of scores and slopes, the first column.
struct SharePlace {
  std::int64_t row, strip, column;
};

template <class T>
class GradientShares {
 public:
  GradientShares(const GradientTask& task, const GradientScratch<T>& scratch)
      : options_(task.options), m_(task.memory), g_(task.gradient), s_(scratch) {}

  /// p, the shares of pairs, and e, gradients by scores (of distances: times the kernel's slope),
  /// from scores and dy . v. `seen`: columns of scores. `offsets`: where pairs have weights.
  void Take(std::int64_t query, const SharePlace& at, std::int64_t columns, const Range& seen,
            const cn::ColumnOffsets<T>& offsets) {
    cn::WithKernel(options_.kernel, [&](auto kernel) HWY_ATTR {
      TakeOf<decltype(kernel)>(query, at, columns, seen, offsets);
    });
  }

  /// Adds what Take() has summed to the sums of its query; `e_sum` is that of e.
  void AddTo(std::int64_t query, T* e_sum) const {
    if (common::IsByDistance(options_.kernel)) {
      *e_sum += e_sum_;
      g_.width_sums[query] += width_sum_;
    }
    if (m_.weighted && !options_.normalised) g_.query_sums[query] += ds_sum_;
  }

 private:
  using D = hn::ScalableTag<T>;
  using V = hn::Vec<D>;

  template <class KERNEL>
  HWY_INLINE void TakeOf(std::int64_t query, const SharePlace& at, std::int64_t columns,
                         const Range& seen, const cn::ColumnOffsets<T>& offsets) {
    const D d;
    const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
    const Query q = Of(query, at.row);
    const V dot = hn::Set(d, q.dot), width = hn::Set(d, width_);
    V e_sum = hn::Zero(d), ds_sum = hn::Zero(d), width_sum = hn::Zero(d);
    for (std::int64_t j = 0; j < columns; j += lanes) {
      const std::int64_t c = at.column + j;
      const V x = hn::Load(d, s_.scores.Row(at.strip) + j);
      V p = Share<KERNEL>(q, x, {j, seen.first, seen.end}, offsets);
      const V dp = hn::Load(d, s_.slopes.Row(at.strip) + j);
      V ds = hn::IfThenZeroElse(hn::Eq(p, hn::Zero(d)), hn::Mul(p, hn::Sub(dp, dot)));
      if (m_.weighted) {
        Add(ds, s_.sums.ds + c);
        const auto marked = hn::Ne(hn::Load(d, s_.marks + c), hn::Zero(d));
        p = hn::IfThenZeroElse(marked, p);
        ds = hn::IfThenZeroElse(marked, ds);
        ds_sum = hn::Add(ds_sum, ds);
        hn::Store(ds, d, s_.ds + c);
      }
      hn::Store(p, d, s_.p.Row(at.row) + c);
      V e = ds;
      if constexpr (KERNEL::kByDistance) {
        const auto nothing = hn::Eq(p, hn::Zero(d));
        e = hn::IfThenZeroElse(nothing, hn::Mul(ds, KERNEL::Along(d, x, width)));
        e_sum = hn::Add(e_sum, e);
        Add(e, s_.sums.e + c);
        const V by_width = hn::Mul(ds, KERNEL::ByWidth(d, x, width));
        width_sum = hn::Add(width_sum, hn::IfThenZeroElse(nothing, by_width));
      }
      hn::Store(e, d, s_.e.Row(at.row) + c);
    }
    e_sum_ = hn::GetLane(hn::SumOfLanes(d, e_sum));
    ds_sum_ = hn::GetLane(hn::SumOfLanes(d, ds_sum));
    width_sum_ = hn::GetLane(hn::SumOfLanes(d, width_sum));
  }

  struct Query {
    T log_sum;
    T inverse;   // exp(-log_sum)
    T dot;       // dy . y; of a sum 0
    bool alone;  // without a neighbour there is no slope, nor where dy is zero
    bool hit;
  };
  /// A vector of columns from j on, of which [first, end) are seen.
  struct Columns {
    std::int64_t j, first, end;
  };

  Query Of(std::int64_t query, std::int64_t row) const {
    const T log_sum = static_cast<const T*>(g_.sums.logs)[query];
    return {
        .log_sum = log_sum,
        .inverse = common::IsCompact(options_.kernel) ? static_cast<T>(std::exp(-log_sum)) : T(0),
        .dot = options_.normalised ? static_cast<const T*>(g_.sums.dots)[query] : T(0),
        .alone = log_sum == cn::kNever<T> || s_.idle[row] != 0,
        .hit = common::HasHits(options_.kernel) && static_cast<const T*>(g_.sums.hits)[query] != 0};
  }

  HWY_INLINE void Add(V x, T* to) const {
    const D d;
    hn::Store(hn::Add(hn::Load(d, to), x), d, to);
  }

  template <class KERNEL>
  HWY_INLINE V Share(const Query& q, V x, const Columns& of,
                     const cn::ColumnOffsets<T>& offsets) const {
    const D d;
    const bool whole = of.j >= of.first && of.j + static_cast<std::int64_t>(hn::Lanes(d)) <= of.end;
    const V width = hn::Set(d, width_), never = hn::Set(d, cn::kNever<T>);
    if (q.alone) return hn::Zero(d);
    if constexpr (common::IsCompact(KERNEL::kKernel)) {
      if (!m_.weighted) {
        const V weight = KERNEL::Weight(d, x, width);
        const V p = hn::Mul(hn::Set(d, q.inverse), weight);
        return whole ? p : hn::IfThenElseZero(cn::Inside(d, of.j, of.first, of.end), p);
      }
    }
    V log = KERNEL::Of(d, x, width);
    if constexpr (common::HasHits(KERNEL::kKernel)) {
      if (q.hit) log = hn::IfThenElse(hn::Gt(x, hn::Zero(d)), never, x);
    }
    if (m_.weighted) {
      const V offset = cn::LoadOffsets(d, offsets, of.j);
      log = hn::IfThenElse(hn::Eq(offset, never), never, hn::Add(log, offset));
    }
    if (!whole) log = hn::IfThenElse(cn::Inside(d, of.j, of.first, of.end), log, never);
    const V under = hn::Sub(log, hn::Set(d, q.log_sum));
    const V share = options_.normalised ? sn::ExpFlushed(d, under) : sn::Exp(d, under);
    return hn::IfThenZeroElse(hn::Eq(log, never), share);
  }

  const Options& options_;
  const Memory& m_;
  const MemoryGradient& g_;
  const GradientScratch<T>& s_;
  const T width_ = cn::WidthOf<T>(options_.kernel, m_.bandwidth);
  T e_sum_ = 0, ds_sum_ = 0, width_sum_ = 0;  // of the last query
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::kernel_smoother
HWY_AFTER_NAMESPACE();

#endif  // TTR_KERNEL_SMOOTHER_GRADIENT_SHARES_INL_H_
