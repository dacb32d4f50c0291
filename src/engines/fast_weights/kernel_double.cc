// The kernels in double, for every target.

#include "src/engines/fast_weights/kernel.h"
#include "src/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/engines/fast_weights/kernel_double.cc"
#include "hwy/foreach_target.h"
//
#include "hwy/highway.h"
#include "src/engines/fast_weights/run-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::fast_weights {
namespace HWY_NAMESPACE {

void RunDouble(const Options& options, const Memory& memory, const Memory& next,
               Scratch<double>& scratch) {
  Run(options, memory, next, scratch);
}
void SettleDouble(const Memory& memory) { SettleRows<double>(memory); }

}  // namespace HWY_NAMESPACE
}  // namespace ttr::fast_weights
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ttr::fast_weights {

HWY_EXPORT(RunDouble);
HWY_EXPORT(SettleDouble);

template <>
RunMemory<double> ChosenKernel() {
  return &TTR_DISPATCH(RunDouble);
}
template <>
SettleMemory ChosenSettle<double>() {
  return &TTR_DISPATCH(SettleDouble);
}

}  // namespace ttr::fast_weights
#endif  // HWY_ONCE
