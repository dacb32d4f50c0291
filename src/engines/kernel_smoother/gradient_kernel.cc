// The backward pass, compiled for every target.

#include "src/engines/kernel_smoother/gradient.h"
#include "src/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/engines/kernel_smoother/gradient_kernel.cc"
#include "hwy/foreach_target.h"
//
#include "hwy/highway.h"
#include "src/engines/kernel_smoother/gradient-inl.h"
#include "src/engines/kernel_smoother/weights_gradient-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::kernel_smoother {
namespace HWY_NAMESPACE {

template <class T>
void DifferentiateAs(const GradientTask& task) {
  ScratchLayout layout(task.scratch);
  const GradientScratch<T> scratch(task.memory.key_dim, task.memory.value_dim, layout);
  GradientPass<T>(task, scratch).Run();
}

void DifferentiateAny(const GradientTask& task, DType dtype) {
  dtype == DType::kFloat64 ? DifferentiateAs<double>(task) : DifferentiateAs<float>(task);
}
void TakeSumsAny(const GradientTask& task, const void* means, DType dtype) {
  dtype == DType::kFloat64 ? TakeSumsAs<double>(task, means) : TakeSumsAs<float>(task, means);
}
void FinishAny(const GradientTask& task) { FinishAs(task); }

}  // namespace HWY_NAMESPACE
}  // namespace ttr::kernel_smoother
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ttr::kernel_smoother {

HWY_EXPORT(DifferentiateAny);
HWY_EXPORT(TakeSumsAny);
HWY_EXPORT(FinishAny);

void Differentiate(const GradientTask& task, DType dtype) {
  TTR_DISPATCH(DifferentiateAny)(task, dtype);
}
void TakeSums(const GradientTask& task, const void* means, DType dtype) {
  TTR_DISPATCH(TakeSumsAny)(task, means, dtype);
}
void FinishWeights(const GradientTask& task) { TTR_DISPATCH(FinishAny)(task); }

}  // namespace ttr::kernel_smoother
#endif  // HWY_ONCE
