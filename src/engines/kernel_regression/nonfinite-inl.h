// What is not finite in gradients. Compiled once for every target.

#if defined(TTR_KERNEL_REGRESSION_NONFINITE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_KERNEL_REGRESSION_NONFINITE_INL_H_
#undef TTR_KERNEL_REGRESSION_NONFINITE_INL_H_
#else
#define TTR_KERNEL_REGRESSION_NONFINITE_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <limits>

#include "hwy/highway.h"
#include "src/engines/common/pair_gradients-inl.h"
#include "src/engines/kernel_regression/gradient.h"
#include "src/engines/kernel_regression/weights_gradient-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::kernel_regression {
namespace HWY_NAMESPACE {

namespace cn = ttr::common::HWY_NAMESPACE;

/// Writes NaN into the gradients of all that queries from `first` on depend on, as their prefixes
/// are not finite; not for queries whose dy is zero.
template <class T>
void SpreadNonfinite(const Memory& m, const MemoryGradient& g, const GradientScratch<T>& s,
                     std::int64_t first) {
  constexpr T kNan = std::numeric_limits<T>::quiet_NaN();
  std::int64_t reach = 0;
  for (std::int64_t at = first; at < m.rows; ++at) {
    const common::Place place = common::Place::Of(m, at);
    sn::LoadRow(g.dy.Of(place.query), place.token, 0, m.value_dim, s.row);
    const auto zero = [](T x) { return x == 0; };
    const bool counts = !std::all_of(s.row, s.row + m.value_dim, zero);
    if (counts) reach = m.visible.End(place.token);
    std::fill(s.row, s.row + m.key_dim, counts ? kNan : T(0));
    if (g.dq) sn::StoreRow(s.row, place.token, 0, m.key_dim, g.dq.Of(place.query));
  }
  for (std::int64_t pair = 0; pair < reach; ++pair) {
    if (m.weighted && cn::OffsetOf(m, pair) == -std::numeric_limits<double>::infinity()) {
      continue;
    }
    std::fill(s.dk.Row(0), s.dk.Row(0) + m.key_dim, kNan);
    std::fill(s.dv.Row(0), s.dv.Row(0) + m.value_dim, kNan);
    cn::StorePairGradient(m, g, pair, s.dk.Row(0), s.dv.Row(0), s.row, s.spare);
    StoreWeightGradient(m, g, pair, static_cast<double>(kNan), true);
  }
  if (reach == 0) return;
  if (g.dridge != nullptr) *g.dridge = static_cast<double>(kNan);
  if (g.dbandwidth != nullptr) *g.dbandwidth = static_cast<double>(kNan);
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::kernel_regression
HWY_AFTER_NAMESPACE();

#endif  // TTR_KERNEL_REGRESSION_NONFINITE_INL_H_
