// The kernels in float and double, for every target.

#include "src/engines/least_squares/kernel.h"

#include "src/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/engines/least_squares/kernel.cc"
#include "hwy/foreach_target.h"
//
#include "hwy/highway.h"
#include "src/engines/least_squares/decode/decoder-inl.h"
#include "src/engines/least_squares/exact/solver-inl.h"
#include "src/engines/least_squares/iterative/solver-inl.h"
#include "src/engines/least_squares/scratch.h"
#include "src/engines/least_squares/sequence/running_sums-inl.h"
#include "src/engines/least_squares/sequence/walk-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::least_squares {
namespace HWY_NAMESPACE {

template <class T>
void Run(const Options& options, const Memory& memory, const Sizes& sizes, std::byte* scratch) {
  ScratchLayout layout(scratch);
  Scratch<T> s(options, sizes, layout);
  const RunningSums<T> sums(memory, s);
  if (options.iterates()) {
    IterativeSolver<T> solver(options, memory, sizes, s, sums, layout);
    Walk<T, IterativeSolver<T>>(options, memory, s, sums, solver).Run();
  } else if (memory.tokens == 1 && (options.causal || !memory.writes())) {
    Decoder<T>(options, memory, s, sums).Run();
  } else {
    ExactSolver<T> solver(options, memory, sizes, s, sums, layout);
    Walk<T, ExactSolver<T>>(options, memory, s, sums, solver).Run();
  }
}

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
