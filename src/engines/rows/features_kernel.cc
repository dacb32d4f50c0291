// Feature maps of the rows of one head, compiled for every target.

#include "src/engines/rows/features_kernel.h"

#include "src/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/engines/rows/features_kernel.cc"
#include "hwy/foreach_target.h"
//
#include "hwy/highway.h"
#include "src/engines/rows/feature_gradient-inl.h"
#include "src/engines/rows/feature_rows-inl.h"
#include "src/engines/rows/row_access-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::rows {
namespace HWY_NAMESPACE {

template <class T>
void Forward(const FeatureOptions& options, const FeatureTask& task) {
  T* const scratch_x = static_cast<T*>(task.scratch);
  T* const scratch_y = scratch_x + task.dim;
  for (std::int64_t t = 0; t < task.tokens; ++t) {
    T* const y = Destination(task.y, t, scratch_y);
    MapRow(options, Read(task.x, t, task.dim, scratch_x), task.dim, static_cast<const T*>(task.w),
           static_cast<const T*>(task.b), task.features, task.position + t, y);
    Finish(y, t, task.phi_dim, task.y);
  }
}

template <class T>
void Backward(const FeatureOptions& options, const FeatureTask& task) {
  T* const scratch_x = static_cast<T*>(task.scratch);
  T* const scratch_dx = scratch_x + task.dim;
  T* const scratch_dy = scratch_dx + task.dim;
  for (std::int64_t t = 0; t < task.tokens; ++t) {
    T* const dx = task.dx ? Destination(task.dx, t, scratch_dx) : scratch_dx;
    MapRowGradient(options, Read(task.x, t, task.dim, scratch_x), task.dim,
                   static_cast<const T*>(task.w), static_cast<const T*>(task.b), task.features,
                   task.position + t, Read(task.y, t, task.phi_dim, scratch_dy), dx,
                   static_cast<T*>(task.dw), static_cast<T*>(task.db));
    if (task.dx) Finish(dx, t, task.dim, task.dx);
  }
}

void ForwardFloat(const FeatureOptions& options, const FeatureTask& task) {
  Forward<float>(options, task);
}
void ForwardDouble(const FeatureOptions& options, const FeatureTask& task) {
  Forward<double>(options, task);
}
void BackwardFloat(const FeatureOptions& options, const FeatureTask& task) {
  Backward<float>(options, task);
}
void BackwardDouble(const FeatureOptions& options, const FeatureTask& task) {
  Backward<double>(options, task);
}
const char* CompiledTarget() { return hwy::TargetName(HWY_TARGET); }

}  // namespace HWY_NAMESPACE
}  // namespace ttr::rows
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ttr::rows {

HWY_EXPORT(ForwardFloat);
HWY_EXPORT(ForwardDouble);
HWY_EXPORT(BackwardFloat);
HWY_EXPORT(BackwardDouble);
HWY_EXPORT(CompiledTarget);

void RunFeatures(DType arithmetic, const FeatureOptions& options, const FeatureTask& task) {
  if (arithmetic == DType::kFloat64) {
    TTR_DISPATCH(ForwardDouble)(options, task);
  } else {
    TTR_DISPATCH(ForwardFloat)(options, task);
  }
}

void RunFeaturesGradient(DType arithmetic, const FeatureOptions& options, const FeatureTask& task) {
  if (arithmetic == DType::kFloat64) {
    TTR_DISPATCH(BackwardDouble)(options, task);
  } else {
    TTR_DISPATCH(BackwardFloat)(options, task);
  }
}

const char* KernelTarget() { return TTR_DISPATCH(CompiledTarget)(); }

}  // namespace ttr::rows
#endif  // HWY_ONCE
