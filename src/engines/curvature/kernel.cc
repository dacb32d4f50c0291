// Some memories, compiled for every target.

#include "src/engines/curvature/task.h"
#include "src/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/engines/curvature/kernel.cc"
#include "hwy/foreach_target.h"
//
#include "hwy/highway.h"
#include "src/engines/curvature/backward-inl.h"
#include "src/engines/curvature/forward-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::curvature {
namespace HWY_NAMESPACE {

template <class Pass, class OwnScratch>
void RunAs(const Task& task) {
  ScratchLayout layout(task.scratch);
  OwnScratch scratch(task.sizes, layout);
  const std::int64_t together = Curvatures::Together();
  for (std::int64_t first = 0; first < task.count; first += together) {
    Pass(task, first, std::min(together, task.count - first), scratch).Run();
  }
}

void ForwardAny(const Task& task) { RunAs<Curvatures, Scratch>(task); }
void BackwardAny(const Task& task) { RunAs<CurvaturesBackward, BackwardScratch>(task); }

}  // namespace HWY_NAMESPACE
}  // namespace ttr::curvature
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace ttr::curvature {

HWY_EXPORT(ForwardAny);
HWY_EXPORT(BackwardAny);

void RunForward(const Task& task) { TTR_DISPATCH(ForwardAny)(task); }
void RunBackward(const Task& task) { TTR_DISPATCH(BackwardAny)(task); }

}  // namespace ttr::curvature

#endif  // HWY_ONCE
