// The kernels in float and double, for every target.

#include "src/engines/least_squares/kernel.h"

#include "src/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/engines/least_squares/kernel.cc"
#include "hwy/foreach_target.h"
//
#include "hwy/highway.h"
#include "src/engines/least_squares/run-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::least_squares {
namespace HWY_NAMESPACE {

void RunFloat(const Options& options, const Memory& memory, const Sizes& sizes,
              std::byte* scratch) {
  Run<float>(options, memory, sizes, scratch);
}
void RunDouble(const Options& options, const Memory& memory, const Sizes& sizes,
               std::byte* scratch) {
  Run<double>(options, memory, sizes, scratch);
}
const char* CompiledTarget() { return hwy::TargetName(HWY_TARGET); }

}  // namespace HWY_NAMESPACE
}  // namespace ttr::least_squares
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ttr::least_squares {

HWY_EXPORT(RunFloat);
HWY_EXPORT(RunDouble);
HWY_EXPORT(CompiledTarget);

void RunMemoryFloat(const Options& options, const Memory& memory, const Sizes& sizes,
                    std::byte* scratch) {
  TTR_DISPATCH(RunFloat)(options, memory, sizes, scratch);
}

void RunMemoryDouble(const Options& options, const Memory& memory, const Sizes& sizes,
                     std::byte* scratch) {
  TTR_DISPATCH(RunDouble)(options, memory, sizes, scratch);
}

const char* KernelTarget() { return TTR_DISPATCH(CompiledTarget)(); }

}  // namespace ttr::least_squares
#endif  // HWY_ONCE
