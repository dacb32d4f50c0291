// Gradients of weights. Compiled once for every target.

#if defined(TTR_KERNEL_REGRESSION_WEIGHTS_GRADIENT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_KERNEL_REGRESSION_WEIGHTS_GRADIENT_INL_H_
#undef TTR_KERNEL_REGRESSION_WEIGHTS_GRADIENT_INL_H_
#else
#define TTR_KERNEL_REGRESSION_WEIGHTS_GRADIENT_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/kernel_regression/gradient.h"
#include "src/simd/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::kernel_regression {
namespace HWY_NAMESPACE {

namespace sn = ttr::simd::HWY_NAMESPACE;

/// The gradient by the logarithm of a pair's weight, which the final state has, too, where the pair
/// has a part.
inline void StoreWeightGradient(const Memory& m, const MemoryGradient& g, std::int64_t pair,
                                double gradient, bool has_part) {
  if (g.final_log_weight && has_part) gradient += sn::LoadOne<double>(g.final_log_weight, pair);
  if (pair < m.visible.held) {
    if (g.dstate_log_weight) sn::StoreRow(&gradient, pair, 0, 1, g.dstate_log_weight);
    return;
  }
  const std::int64_t t = pair - m.visible.held;
  if (g.dlog_importance) sn::StoreRow(&gradient, t, 0, 1, g.dlog_importance);
  if (g.dimportance) {
    const double importance = m.importance ? sn::LoadOne<double>(m.importance, t) : 1;
    const double by = importance == 0 ? 0 : gradient / importance;
    sn::StoreRow(&by, t, 0, 1, g.dimportance);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::kernel_regression
HWY_AFTER_NAMESPACE();

#endif  // TTR_KERNEL_REGRESSION_WEIGHTS_GRADIENT_INL_H_
