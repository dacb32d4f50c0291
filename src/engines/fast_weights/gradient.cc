#include "src/engines/fast_weights/gradient.h"

#include "src/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/engines/fast_weights/gradient.cc"
#include "hwy/foreach_target.h"
//
#include "hwy/highway.h"
#include "src/engines/fast_weights/gradient_backward-inl.h"
#include "src/engines/fast_weights/gradient_forward-inl.h"
#include "src/engines/fast_weights/gradient_layout.h"
#include "src/engines/fast_weights/gradient_state-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::fast_weights::gradient {
namespace HWY_NAMESPACE {

template <class T>
void Run(const GradientCall<T>& call, std::byte* memory) {
  const GradientSizes& sizes = call.sizes;
  const Scratch<T> scratch(sizes, memory);
  // Rows of memories beyond the last value are read, and have to be numbers.
  if (scratch.values > sizes.value_dim) {
    std::fill(scratch.checkpoints, scratch.checkpoints + (scratch.blocks + 3) * scratch.state,
              T(0));
  }
  LoadState(sizes, scratch, call.initial, call.initial_stride, scratch.checkpoints);
  ForwardPass(call, scratch);
  LoadState(sizes, scratch, call.d_final, call.d_final_stride, scratch.adjoint);
  const std::int64_t last = (sizes.tokens - 1) / scratch.block * scratch.block;
  for (std::int64_t begin = last; sizes.tokens > 0 && begin >= 0; begin -= scratch.block) {
    BackwardBlock(call, begin, scratch);
  }
  if (call.d_initial != nullptr) {
    StoreState(sizes, scratch, scratch.adjoint, call.d_initial, call.d_initial_stride);
  }
}

void RunFloat(const GradientCall<float>& call, std::byte* scratch) { Run(call, scratch); }
void RunDouble(const GradientCall<double>& call, std::byte* scratch) { Run(call, scratch); }

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
  return gradient::Scratch<T>(sizes, nullptr).bytes;
}
template std::size_t GradientScratchBytes<float>(const GradientSizes& sizes);
template std::size_t GradientScratchBytes<double>(const GradientSizes& sizes);

void RunGradient(const GradientCall<float>& call, std::byte* scratch) {
  using namespace gradient;
  TTR_DISPATCH(RunFloat)(call, scratch);
}

void RunGradient(const GradientCall<double>& call, std::byte* scratch) {
  using namespace gradient;
  TTR_DISPATCH(RunDouble)(call, scratch);
}

}  // namespace ttr::fast_weights
#endif  // HWY_ONCE
