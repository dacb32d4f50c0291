// The kernels in double, for every target.

#include "src/engines/fast_weights/kernel.h"
#include "src/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/engines/fast_weights/kernel_double.cc"
#include "hwy/foreach_target.h"
//
#include "hwy/highway.h"
#include "src/engines/fast_weights/kernel-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::fast_weights {
namespace HWY_NAMESPACE {

void RunDouble(const Options& options, const Memory& memory, const Memory& next,
               Scratch<double>& scratch) {
  Run(options, memory, next, scratch);
}
void FlushDouble(const Options& options, const Memory& memory) {
  FlushWaiting<double>(options, memory);
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::fast_weights
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ttr::fast_weights {

HWY_EXPORT(RunDouble);
HWY_EXPORT(FlushDouble);

template <>
RunMemory<double> ChosenKernel() {
  return &TTR_DISPATCH(RunDouble);
}
template <>
FlushMemory ChosenFlush<double>() {
  return &TTR_DISPATCH(FlushDouble);
}

}  // namespace ttr::fast_weights
#endif  // HWY_ONCE
