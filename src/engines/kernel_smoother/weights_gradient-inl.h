// Gradients of decays, importance and the bandwidth from sums of ds. Compiled once for every
// target.

#if defined(TTR_KERNEL_SMOOTHER_WEIGHTS_GRADIENT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_KERNEL_SMOOTHER_WEIGHTS_GRADIENT_INL_H_
#undef TTR_KERNEL_SMOOTHER_WEIGHTS_GRADIENT_INL_H_
#else
#define TTR_KERNEL_SMOOTHER_WEIGHTS_GRADIENT_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/common/pair_gradients-inl.h"
#include "src/engines/kernel_smoother/gradient.h"
#include "src/engines/kernel_smoother/load-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::kernel_smoother {
namespace HWY_NAMESPACE {

inline void FinishAs(const GradientTask& task) {
  const Memory& m = task.memory;
  const MemoryGradient& g = task.gradient;
  if (g.dbandwidth != nullptr) {
    double sum = 0;
    for (std::int64_t i = 0; i < m.rows; ++i) sum += g.width_sums[i];
    *g.dbandwidth = m.bandwidth == 0 ? 0 : sum / m.bandwidth;
  }
  cn::WeightsGradient(m, g, g.pair_sums, g.query_sums).Run();
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::kernel_smoother
HWY_AFTER_NAMESPACE();

#endif  // TTR_KERNEL_SMOOTHER_WEIGHTS_GRADIENT_INL_H_
