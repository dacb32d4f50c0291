// Vector memories, compiled for every target.

#include "src/engines/scan/vector/kernel.h"

#include "src/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/engines/scan/vector/kernel.cc"
#include "hwy/foreach_target.h"
//
#include "hwy/highway.h"
#include "src/engines/scan/vector/backward-inl.h"
#include "src/engines/scan/vector/forward-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::scan {
namespace HWY_NAMESPACE {

template <class T>
void Forward(const VectorTask& task) {
  ScratchLayout layout(task.scratch);
  const VectorScratch<T> scratch(task.sizes, layout);
  if (task.memory.v) {
    RunVector(task.options, task.memory, scratch);
  } else {
    ReadVector(task.options, task.memory, scratch);
  }
}

template <class T>
void Backward(const VectorTask& task) {
  const bool saved = task.memory.saved.re != nullptr;
  ScratchLayout layout(task.scratch);
  const VectorGradientScratch<T> scratch(task.sizes, saved ? 0 : task.memory.tokens,
                                         task.memory.complex(), layout);
  VectorBackward<T>(task, scratch).Run();
}

void VectorForwards(const VectorTask& task) {
  task.sizes.state == DType::kFloat64 ? Forward<double>(task) : Forward<float>(task);
}
void VectorBackwards(const VectorTask& task) {
  task.sizes.state == DType::kFloat64 ? Backward<double>(task) : Backward<float>(task);
}
const char* CompiledTarget() { return hwy::TargetName(HWY_TARGET); }

}  // namespace HWY_NAMESPACE
}  // namespace ttr::scan
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ttr::scan {

HWY_EXPORT(VectorForwards);
HWY_EXPORT(VectorBackwards);
HWY_EXPORT(CompiledTarget);

void ScanVector(const VectorTask& task) { TTR_DISPATCH(VectorForwards)(task); }
void ScanVectorBackward(const VectorTask& task) { TTR_DISPATCH(VectorBackwards)(task); }
const char* KernelTarget() { return TTR_DISPATCH(CompiledTarget)(); }

}  // namespace ttr::scan
#endif  // HWY_ONCE
