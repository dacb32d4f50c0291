// The gradient kernels in float and double, for every target.

#include "src/engines/least_squares/gradient/scratch.h"
#include "src/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/engines/least_squares/gradient/kernel.cc"
#include "hwy/foreach_target.h"
//
#include "hwy/highway.h"
#include "src/engines/least_squares/gradient/backward-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::least_squares {
namespace HWY_NAMESPACE {

void RunFloat(const Options& options, const GradientMemory& memory, const Sizes& sizes,
              std::byte* scratch) {
  RunGradient<float>(options, memory, sizes, scratch);
}
void RunDouble(const Options& options, const GradientMemory& memory, const Sizes& sizes,
               std::byte* scratch) {
  RunGradient<double>(options, memory, sizes, scratch);
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::least_squares
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ttr::least_squares {

HWY_EXPORT(RunFloat);
HWY_EXPORT(RunDouble);

void RunGradientFloat(const Options& options, const GradientMemory& memory, const Sizes& sizes,
                      std::byte* scratch) {
  TTR_DISPATCH(RunFloat)(options, memory, sizes, scratch);
}

void RunGradientDouble(const Options& options, const GradientMemory& memory, const Sizes& sizes,
                       std::byte* scratch) {
  TTR_DISPATCH(RunDouble)(options, memory, sizes, scratch);
}

}  // namespace ttr::least_squares
#endif  // HWY_ONCE
