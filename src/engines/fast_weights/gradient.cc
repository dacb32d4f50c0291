#include "src/engines/fast_weights/gradient.h"

#include "src/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/engines/fast_weights/gradient.cc"
#include "hwy/foreach_target.h"
//
#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "src/engines/fast_weights/gradient_answers-inl.h"
#include "src/engines/fast_weights/gradient_backward-inl.h"
#include "src/engines/fast_weights/gradient_forward-inl.h"
#include "src/engines/fast_weights/gradient_layout.h"
#include "src/engines/fast_weights/gradient_state-inl.h"
#include "src/engines/fast_weights/gradient_turn-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::fast_weights::gradient {
namespace HWY_NAMESPACE {

template <class T>
void Run(GradientPart part, const GradientCall<T>& call, std::byte* memory) {
  const GradientSizes& sizes = call.sizes;
  const Scratch<T> scratch(sizes, memory);
  const T* const last = sizes.saved ? call.saved_last : scratch.memories;
  switch (part) {
    case GradientPart::kBegin:
      // Rows of memories beyond the last value are read, and have to be numbers.
      if (scratch.values > sizes.value_dim) {
        std::fill(scratch.checkpoints,
                  scratch.checkpoints + (scratch.intervals + 3) * scratch.state, T(0));
      }
      if (sizes.saved) return;
      return LoadState(call, scratch, call.initial, call.initial_stride, scratch.checkpoints);
    case GradientPart::kForward: return ForwardBlock(call, scratch);
    case GradientPart::kTurn:
      LoadState(call, scratch, call.d_final, call.d_final_stride, scratch.adjoint);
      if (call.overlap != nullptr) *call.overlap = Overlap(scratch, last);
      if (call.turned != nullptr) Turned(call, scratch, last);
      return;
    case GradientPart::kReplay:
      ReplayBlock(call, scratch);
      if (call.answers) AnswerBlock(call, scratch);
      return;
    case GradientPart::kBackward: return BackwardBlock(call, scratch);
    case GradientPart::kEnd:
      hwy::FlushStream();
      return StoreState(call, scratch, scratch.adjoint, call.d_initial, call.d_initial_stride);
  }
}

void RunFloat(GradientPart part, const GradientCall<float>& call, std::byte* scratch) {
  Run(part, call, scratch);
}
void RunDouble(GradientPart part, const GradientCall<double>& call, std::byte* scratch) {
  Run(part, call, scratch);
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
  return gradient::Scratch<T>(sizes, nullptr).bytes;
}
template std::size_t GradientScratchBytes<float>(const GradientSizes& sizes);
template std::size_t GradientScratchBytes<double>(const GradientSizes& sizes);

void RunGradient(GradientPart part, const GradientCall<float>& call, std::byte* scratch) {
  using namespace gradient;
  TTR_DISPATCH(RunFloat)(part, call, scratch);
}

void RunGradient(GradientPart part, const GradientCall<double>& call, std::byte* scratch) {
  using namespace gradient;
  TTR_DISPATCH(RunDouble)(part, call, scratch);
}

}  // namespace ttr::fast_weights
#endif  // HWY_ONCE
