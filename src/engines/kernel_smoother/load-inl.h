// Queries into a worker's scratch. Compiled once for every target.

#if defined(TTR_KERNEL_SMOOTHER_LOAD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_KERNEL_SMOOTHER_LOAD_INL_H_
#undef TTR_KERNEL_SMOOTHER_LOAD_INL_H_
#else
#define TTR_KERNEL_SMOOTHER_LOAD_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "hwy/highway.h"
#include "src/engines/common/closeness-inl.h"
#include "src/engines/common/pairs-inl.h"
#include "src/engines/kernel_smoother/task.h"
#include "src/linalg/blocks-inl.h"
#include "src/simd/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::kernel_smoother {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace sn = ttr::simd::HWY_NAMESPACE;
namespace ln = ttr::linalg::HWY_NAMESPACE;
namespace cn = ttr::common::HWY_NAMESPACE;

using cn::IsFinite;
using cn::KeysOf;
using cn::LoadPairs;
using cn::OffsetOf;
using cn::SetOddAside;
using cn::ValuesOf;

/// What the queries of a block see, counted from its first.
class QueryBlock {
 public:
  QueryBlock(const Memory& memory, std::int64_t first) : m_(memory), first_(first) {}

  std::int64_t TokenOf(std::int64_t query) const { return (first_ + query) / m_.queries; }

  /// The last token of the call that is written before token t is read.
  std::int64_t Written(std::int64_t t) const {
    return m_.sight.causal ? t - (m_.sight.before ? 1 : 0) : m_.sight.tokens - 1;
  }

  Range SeenByOne(std::int64_t query) const {
    const std::int64_t t = TokenOf(query);
    const std::int64_t end = m_.sight.End(t);
    std::int64_t first = m_.sight.First(t);
    if (m_.weights.forgotten != nullptr && m_.sight.tokens > 0) {
      const std::int64_t written = Written(t);
      if (written >= 0) first = std::max(first, m_.weights.forgotten[written]);
    }
    return {std::min(first, end), end};
  }

  /// By any of some queries: both ends rise with the token.
  Range SeenBy(std::int64_t begin, std::int64_t end) const {
    return {SeenByOne(begin).first, SeenByOne(end - 1).end};
  }

  /// The greatest offset that is seen, from which others are counted: their differences keep their
  /// digits.
  double ReferenceOf(const Range& seen) const {
    if (!m_.weighted) return 0;
    double most = -std::numeric_limits<double>::infinity();
    for (std::int64_t i = seen.first; i < seen.end; ++i) most = std::max(most, OffsetOf(m_, i));
    return std::isfinite(most) ? most : 0;
  }

 private:
  const Memory& m_;
  std::int64_t first_;
};

/// Whose query or answer it is.
struct Place {
  std::int64_t query, token;
};

/// A query as it is compared: of unit length where the options say so, scaled under the exponential
/// kernel.
template <class T>
HWY_INLINE void LoadQuery(const Options& options, const Memory& m, const Place& place, T* to) {
  sn::LoadRow(m.q.Of(place.query), place.token, 0, m.key_dim, to);
  double factor = options.kernel == common::Kernel::kExponential ? options.scale : 1;
  if (options.normalise_qk) factor *= sn::UnitFactor(to, m.key_dim);
  if (factor != 1) sn::Multiply(to, m.key_dim, static_cast<T>(factor));
}

/// Queries first .. first + count, those of a token side by side; zeros up to whole strips.
template <class T>
void LoadQueries(const Task& task, const Block<T>& to) {
  const Memory& m = task.memory;
  const std::int64_t wide = linalg::RoundUp(m.key_dim, kUnit);
  for (std::int64_t i = 0; i < task.count; ++i) {
    const std::int64_t at = task.first + i, t = at / m.queries;
    LoadQuery(task.options, m, {at - t * m.queries, t}, to.Row(i));
    std::fill(to.Row(i) + m.key_dim, to.Row(i) + wide, T(0));
  }
  linalg::ZeroRows(to, task.count, linalg::RoundUp(task.count, kStrip), wide);
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::kernel_smoother
HWY_AFTER_NAMESPACE();

#endif  // TTR_KERNEL_SMOOTHER_LOAD_INL_H_
