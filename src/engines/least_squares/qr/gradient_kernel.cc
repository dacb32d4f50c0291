// Gradients of rotations, compiled for every target.

#include "src/engines/least_squares/qr/gradient.h"
#include "src/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/engines/least_squares/qr/gradient_kernel.cc"
#include "hwy/foreach_target.h"
//
#include "hwy/highway.h"
#include "src/engines/least_squares/qr/gradient-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::least_squares {
namespace HWY_NAMESPACE {

void RotateBack(const Options& options, const GradientMemory& memory, const Sizes& sizes,
                std::byte* scratch) {
  common::ScratchLayout layout(scratch);
  const RotatedGradientScratch s(options, sizes, layout);
  RotatedGradient(options, memory, sizes, s).Run();
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::least_squares
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ttr::least_squares {

HWY_EXPORT(RotateBack);

void RunRotatedGradient(const Options& options, const GradientMemory& memory, const Sizes& sizes,
                        std::byte* scratch) {
  TTR_DISPATCH(RotateBack)(options, memory, sizes, scratch);
}

std::size_t RotatedGradientBytes(const Options& options, const Sizes& sizes) {
  common::ScratchLayout counter(nullptr);
  const RotatedGradientScratch scratch(options, sizes, counter);
  return counter.bytes();
}

}  // namespace ttr::least_squares
#endif  // HWY_ONCE
