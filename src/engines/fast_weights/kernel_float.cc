// The kernels in float, for every target.

#include "src/engines/fast_weights/kernel.h"
#include "src/simd/processor.h"
#include "src/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/engines/fast_weights/kernel_float.cc"
#include "hwy/foreach_target.h"
//
#include "hwy/highway.h"
#include "src/engines/fast_weights/kernel-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::fast_weights {
namespace HWY_NAMESPACE {

void RunFloat(const Options& options, const Memory& memory, const Memory& next,
              Scratch<float>& scratch) {
  Run(options, memory, next, scratch);
}
void FlushFloat(const Options& options, const Memory& memory) {
  FlushWaiting<float>(options, memory);
}
// Without vectors one of either: not as many bytes.
std::int64_t LanesOf(DType dtype) {
  return dtype == DType::kFloat64 ? Lanes<double>() : Lanes<float>();
}
simd::Bf16Products ProductsOf(simd::Bf16Products chosen) {
  using enum simd::Bf16Products;
  const bool has = chosen == kTiles ? kHasBf16Tiles<float> : kHasBf16Pairs<float>;
  return has ? chosen : kFloat32;
}
const char* CompiledTarget() { return hwy::TargetName(HWY_TARGET); }

}  // namespace HWY_NAMESPACE
}  // namespace ttr::fast_weights
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ttr::fast_weights {

HWY_EXPORT(RunFloat);
HWY_EXPORT(FlushFloat);
HWY_EXPORT(LanesOf);
HWY_EXPORT(ProductsOf);
HWY_EXPORT(CompiledTarget);

template <>
RunMemory<float> ChosenKernel() {
  return &TTR_DISPATCH(RunFloat);
}
template <>
FlushMemory ChosenFlush<float>() {
  return &TTR_DISPATCH(FlushFloat);
}

simd::Bf16Products TargetBf16Products() {
  return TTR_DISPATCH(ProductsOf)(simd::ChosenBf16Products());
}

std::int64_t StripColumns(DType dtype) { return 2 * TTR_DISPATCH(LanesOf)(dtype); }

const char* KernelTarget() { return TTR_DISPATCH(CompiledTarget)(); }

}  // namespace ttr::fast_weights
#endif  // HWY_ONCE
