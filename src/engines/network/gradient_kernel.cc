// Backwards, compiled for every target.

#include "src/engines/network/gradient.h"
#include "src/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/engines/network/gradient_kernel.cc"
#include "hwy/foreach_target.h"
//
#include "hwy/highway.h"
#include "src/engines/network/gradient-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::network {
namespace HWY_NAMESPACE {

template <class T>
void RunAs(const GradientTask& task) {
  ScratchLayout layout(task.scratch);
  const GradientScratch<T> scratch(task.options, task.shape, task.levels, task.longest,
                                   task.saved != nullptr, layout);
  BackwardKernel<T>(task, scratch).Run();
}

void RunBackAny(const GradientTask& task, DType dtype) {
  dtype == DType::kFloat64 ? RunAs<double>(task) : RunAs<float>(task);
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::network
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ttr::network {

HWY_EXPORT(RunBackAny);

void RunBack(const GradientTask& task, DType dtype) { TTR_DISPATCH(RunBackAny)(task, dtype); }

}  // namespace ttr::network
#endif  // HWY_ONCE
