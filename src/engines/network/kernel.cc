// Forwards, compiled for every target.

#include "src/engines/network/task.h"
#include "src/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/engines/network/kernel.cc"
#include "hwy/foreach_target.h"
//
#include "hwy/highway.h"
#include "src/engines/network/forward-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::network {
namespace HWY_NAMESPACE {

template <class T>
void RunAs(const Task& task) {
  ScratchLayout layout(task.scratch);
  const Scratch<T> scratch(task.options, task.shape, layout);
  ForwardKernel<T>(task, scratch).Run();
}

void RunAny(const Task& task, DType dtype) {
  dtype == DType::kFloat64 ? RunAs<double>(task) : RunAs<float>(task);
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::network
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ttr::network {

HWY_EXPORT(RunAny);

void Run(const Task& task, DType dtype) { TTR_DISPATCH(RunAny)(task, dtype); }

}  // namespace ttr::network
#endif  // HWY_ONCE
