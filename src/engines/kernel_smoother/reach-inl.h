// Blocks of pairs to which no query of a block gives weight, found without their scores. Compiled
// once for every target.

#if defined(TTR_KERNEL_SMOOTHER_REACH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_KERNEL_SMOOTHER_REACH_INL_H_
#undef TTR_KERNEL_SMOOTHER_REACH_INL_H_
#else
#define TTR_KERNEL_SMOOTHER_REACH_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "hwy/highway.h"
#include "src/engines/common/closeness-inl.h"
#include "src/engines/kernel_smoother/load-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::kernel_smoother {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// The least and the greatest of every channel of some rows, whose channels are whole units.
template <class T>
struct Box {
  T *low = nullptr, *high = nullptr;
  bool finite = false;  // are all rows?

  void Take(const Block<T>& rows, std::int64_t count, std::int64_t channels) {
    const hn::ScalableTag<T> d;
    const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
    auto broken = hn::Zero(d);  // x - x is 0, or NaN of what is not finite
    for (std::int64_t c = 0; c < channels; c += lanes) {
      auto least = hn::Load(d, rows.Row(0) + c), most = least;
      for (std::int64_t i = 0; i < count; ++i) {
        const auto x = hn::Load(d, rows.Row(i) + c);
        least = hn::Min(least, x);
        most = hn::Max(most, x);
        broken = hn::Add(broken, hn::Sub(x, x));
      }
      hn::Store(least, d, low + c);
      hn::Store(most, d, high + c);
    }
    finite = hn::AllTrue(d, hn::Eq(broken, hn::Zero(d)));
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

/// Bounds scores: a compact kernel gives no weight between boxes that are a bandwidth apart, and a
/// decay none to scores far below the logarithm of a sum.
template <class T>
class Reach {
 public:
  Reach(common::Kernel kernel, const Memory& memory, const BoxRoom<T>& room)
      : kernel_(kernel),
        m_(memory),
        queries_{room.query_low, room.query_high},
        keys_{room.key_low, room.key_high} {}

  /// Rows of a block of queries, as they are compared.
  void TakeQueries(const Block<T>& rows, std::int64_t count) {
    Take(rows, count, queries_, longest_query_);
  }
  /// Rows of a block of pairs' keys.
  void TakeKeys(const Block<T>& rows, std::int64_t count) {
    Take(rows, count, keys_, longest_key_);
  }

  /// Does no query give any of these pairs weight? `least`: what scores have to make up for, where
  /// pairs have weights: the logarithm of a query's sum of weights, or of its greatest, less that
  /// of the greatest weight of these pairs, of the query where it is least; NaN: unknown.
  bool IsEmpty(T least) const {
    if (common::IsCompact(kernel_)) {
      if (!keys_.finite || !queries_.finite) return false;
      const double gap = keys_.SquaredGap(queries_, m_.key_dim);
      // Distances round, too.
      return gap * (1 - 1e-4) > m_.bandwidth * m_.bandwidth;
    }
    if (!m_.weighted || common::HasHits(kernel_)) return false;
    const T nothing = least + sn::kLowestExponent<T>;
    if (!(0 < nothing)) return false;
    if (!std::isfinite(longest_key_)) return false;  // NaN is for those who see it
    const double score = common::IsByDistance(kernel_) ? 0 : longest_key_ * longest_query_;
    return score < static_cast<double>(nothing);
  }

 private:
  void Take(const Block<T>& rows, std::int64_t count, Box<T>& box, double& longest) const {
    if (common::IsCompact(kernel_)) {
      box.Take(rows, count, linalg::RoundUp(m_.key_dim, kUnit));
    } else if (m_.weighted && !common::HasHits(kernel_)) {
      longest = LongestOf(rows, count, m_.key_dim);
    }
  }

  const common::Kernel kernel_;
  const Memory& m_;
  Box<T> queries_, keys_;
  double longest_query_ = 0, longest_key_ = 0;
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::kernel_smoother
HWY_AFTER_NAMESPACE();

#endif  // TTR_KERNEL_SMOOTHER_REACH_INL_H_
