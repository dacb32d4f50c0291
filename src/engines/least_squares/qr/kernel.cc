// Rotations, compiled for every target.

#include "src/engines/least_squares/qr/kernel.h"

#include "src/engines/least_squares/qr/scratch.h"
#include "src/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/engines/least_squares/qr/kernel.cc"
#include "hwy/foreach_target.h"
//
#include "hwy/highway.h"
#include "src/engines/least_squares/qr/memory-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::least_squares {
namespace HWY_NAMESPACE {

void Rotate(const Options& options, const Memory& memory, const Sizes& sizes, std::byte* scratch) {
  common::ScratchLayout layout(scratch);
  const RotationScratch s(options, sizes, layout);
  RotatedMemory(options, memory, sizes.state, s).Run();
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::least_squares
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ttr::least_squares {

HWY_EXPORT(Rotate);

void RunRotations(const Options& options, const Memory& memory, const Sizes& sizes,
                  std::byte* scratch) {
  TTR_DISPATCH(Rotate)(options, memory, sizes, scratch);
}

std::size_t RotationBytes(const Options& options, const Sizes& sizes) {
  common::ScratchLayout counter(nullptr);
  const RotationScratch scratch(options, sizes, counter);
  return counter.bytes();
}

}  // namespace ttr::least_squares
#endif  // HWY_ONCE
