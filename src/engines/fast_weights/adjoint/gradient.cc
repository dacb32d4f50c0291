#include "src/engines/fast_weights/adjoint/gradient.h"

#include "src/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/engines/fast_weights/adjoint/gradient.cc"
#include "hwy/foreach_target.h"
//
#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "src/engines/fast_weights/adjoint/block-inl.h"
#include "src/engines/fast_weights/adjoint/layout.h"
#include "src/engines/fast_weights/adjoint/rotation-inl.h"
#include "src/engines/fast_weights/adjoint/state-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::fast_weights::gradient {
namespace HWY_NAMESPACE {

template <class T>
void Begin(const GradientCall<T>& call, const Scratch<T>& scratch) {
  // Rows of memories beyond the last value are read, and have to be finite.
  if (scratch.values > call.sizes.value_dim) {
    std::fill_n(scratch.memories, 3 * scratch.state, T(0));
  }
  LoadAdjoint(call, scratch);
  if (call.overlap != nullptr) *call.overlap = Overlap(scratch, call.saved.last);
  if (call.rotation.frame != nullptr) AngleGradient(call, scratch, call.saved.last);
}

template <class T>
void Run(GradientStage stage, const GradientCall<T>& call, std::byte* memory) {
  common::ScratchLayout layout(memory);
  const Scratch<T> scratch(call.sizes, call.place, layout);
  switch (stage) {
    case GradientStage::kBegin: return Begin(call, scratch);
    case GradientStage::kBlock: return BackwardBlock(call, scratch);
    case GradientStage::kEnd: hwy::FlushStream(); return StoreAdjoint(call, scratch);
  }
}

void RunFloat(GradientStage stage, const GradientCall<float>& call, std::byte* scratch) {
  Run(stage, call, scratch);
}
void RunDouble(GradientStage stage, const GradientCall<double>& call, std::byte* scratch) {
  Run(stage, call, scratch);
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::fast_weights::gradient
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ttr::fast_weights {
namespace gradient {

HWY_EXPORT(RunFloat);
HWY_EXPORT(RunDouble);

}  // namespace gradient

template <class T>
std::size_t GradientScratchBytes(const GradientSizes& sizes) {
  return common::ScratchBytesOf<gradient::Scratch<T>>(sizes, 0);
}
template std::size_t GradientScratchBytes<float>(const GradientSizes& sizes);
template std::size_t GradientScratchBytes<double>(const GradientSizes& sizes);

void RunGradient(GradientStage stage, const GradientCall<float>& call, std::byte* scratch) {
  using namespace gradient;
  TTR_DISPATCH(RunFloat)(stage, call, scratch);
}

void RunGradient(GradientStage stage, const GradientCall<double>& call, std::byte* scratch) {
  using namespace gradient;
  TTR_DISPATCH(RunDouble)(stage, call, scratch);
}

}  // namespace ttr::fast_weights
#endif  // HWY_ONCE
