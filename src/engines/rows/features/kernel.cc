// Feature maps of the rows of one head, compiled for every target.

#include "src/engines/rows/features_kernel.h"
#include "src/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/engines/rows/features/kernel.cc"
#include "hwy/foreach_target.h"
//
#include "hwy/highway.h"
#include "src/engines/rows/features/linear-inl.h"
#include "src/engines/rows/features/pointwise-inl.h"
#include "src/engines/rows/features/products-inl.h"
#include "src/engines/rows/row_access-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::rows {
namespace HWY_NAMESPACE {

/// run(the map that is asked for).
template <class Run>
void WithMap(const FeatureOptions& options, const Run& run) {
  switch (options.map) {
    case Map::kNone: return run(None());
    case Map::kElu1: return run(Elu1());
    case Map::kRelu: return run(Relu());
    case Map::kCosformer: return run(Cosformer{options.max_length});
    case Map::kDpfp: return run(Dpfp{options.nu});
    case Map::kT2r: return run(T2r());
    case Map::kHedgehogExp: return run(HedgehogExp());
    case Map::kHedgehogSoftmax: return run(HedgehogSoftmax());
    case Map::kTaylor2: return run(Taylor2());
    case Map::kRebased: return run(Rebased());
    case Map::kRfa: return run(Rfa());
    case Map::kFavor: return run(Favor());
    case Map::kDijiang: return run(Dijiang());
    case Map::kPower2: return run(Power2());
  }
}

template <class T>
MapRow<T> RowOf(const FeatureTask& task, std::int64_t t, T* scratch) {
  return {Read(task.x, t, task.dim, scratch), task.dim,      static_cast<const T*>(task.w),
          static_cast<const T*>(task.b),      task.features, task.position + t};
}

template <class T>
void Forward(const FeatureOptions& options, const FeatureTask& task) {
  T* const scratch_x = static_cast<T*>(task.scratch);
  T* const scratch_y = scratch_x + task.dim;
  WithMap(options, [&](const auto& map) HWY_ATTR {
    for (std::int64_t t = 0; t < task.tokens; ++t) {
      T* const y = Destination(task.y, t, scratch_y);
      map.Value(RowOf(task, t, scratch_x), y);
      Finish(y, t, task.phi_dim, task.y);
    }
  });
}

template <class T>
void Backward(const FeatureOptions& options, const FeatureTask& task) {
  T* const scratch_x = static_cast<T*>(task.scratch);
  T* const scratch_dx = scratch_x + task.dim;
  T* const scratch_dy = scratch_dx + task.dim;
  WithMap(options, [&](const auto& map) HWY_ATTR {
    for (std::int64_t t = 0; t < task.tokens; ++t) {
      T* const dx = task.dx ? Destination(task.dx, t, scratch_dx) : scratch_dx;
      const T* const dy = Read(task.y, t, task.phi_dim, scratch_dy);
      map.Gradient(RowOf(task, t, scratch_x), dy,
                   MapGradient<T>{dx, static_cast<T*>(task.dw), static_cast<T*>(task.db)});
      if (task.dx) Finish(dx, t, task.dim, task.dx);
    }
  });
}

void Features(DType arithmetic, const FeatureOptions& options, const FeatureTask& task) {
  arithmetic == DType::kFloat64 ? Forward<double>(options, task) : Forward<float>(options, task);
}
void FeaturesGradient(DType arithmetic, const FeatureOptions& options, const FeatureTask& task) {
  arithmetic == DType::kFloat64 ? Backward<double>(options, task) : Backward<float>(options, task);
}
const char* CompiledTarget() { return hwy::TargetName(HWY_TARGET); }

}  // namespace HWY_NAMESPACE
}  // namespace ttr::rows
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ttr::rows {

HWY_EXPORT(Features);
HWY_EXPORT(FeaturesGradient);
HWY_EXPORT(CompiledTarget);

void RunFeatures(DType arithmetic, const FeatureOptions& options, const FeatureTask& task) {
  TTR_DISPATCH(Features)(arithmetic, options, task);
}

void RunFeaturesGradient(DType arithmetic, const FeatureOptions& options, const FeatureTask& task) {
  TTR_DISPATCH(FeaturesGradient)(arithmetic, options, task);
}

const char* KernelTarget() { return TTR_DISPATCH(CompiledTarget)(); }

}  // namespace ttr::rows
#endif  // HWY_ONCE
