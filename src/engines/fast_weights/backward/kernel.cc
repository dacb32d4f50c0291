// The backward pass's ways between inputs and rows, for every target.

#include "src/engines/fast_weights/backward/rows.h"
#include "src/engines/fast_weights/backward/whole.h"
#include "src/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/engines/fast_weights/backward/kernel.cc"
#include "hwy/foreach_target.h"
//
#include "hwy/highway.h"
#include "src/engines/fast_weights/backward/gather-inl.h"
#include "src/engines/fast_weights/backward/outputs-inl.h"
#include "src/engines/fast_weights/backward/scatter-inl.h"
#include "src/engines/fast_weights/backward/whole-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::fast_weights {
namespace HWY_NAMESPACE {

template <class T>
void ScatterBlock(const Options& options, const Memory& memory, const GradientMemory& out,
                  Side side, BackwardRows<T>& rows) {
  Scatter<T>(options, memory, out, side, rows).Run();
}
template <class T>
void RunWhole(WholePass pass, const Options& options, BackwardRows<T>& rows) {
  WholeRows<T>(options, rows).Run(pass);
}

template <class T>
BackwardKernels<T> Kernels() {
  return {GatherBlock<T>, GatherOutputs<T>, ScatterBlock<T>, RunWhole<T>};
}
BackwardKernels<float> FloatKernels() { return Kernels<float>(); }
BackwardKernels<double> DoubleKernels() { return Kernels<double>(); }

}  // namespace HWY_NAMESPACE
}  // namespace ttr::fast_weights
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ttr::fast_weights {

HWY_EXPORT(FloatKernels);
HWY_EXPORT(DoubleKernels);

template <>
BackwardKernels<float> ChosenKernels() {
  return TTR_DISPATCH(FloatKernels)();
}
template <>
BackwardKernels<double> ChosenKernels() {
  return TTR_DISPATCH(DoubleKernels)();
}

}  // namespace ttr::fast_weights
#endif  // HWY_ONCE
