/// What the glue of the feature maps asks of their kernels.
#pragma once

#include <cstdint>

#include "src/engines/rows/features.h"
#include "src/simd/rows.h"
#include "ttr/dtype.h"

namespace ttr::rows {

/// Rows of one head. `w`, `b`, `dw` and `db` are contiguous and of the arithmetic's type, as is
/// `scratch`: 2 dim + phi_dim numbers.
struct FeatureTask {
  simd::Rows x;
  simd::Rows y;   ///< forward: phi(x); backward: its gradient
  simd::Rows dx;  ///< backward; may be absent
  const void* w = nullptr;
  const void* b = nullptr;
  void* dw = nullptr;  ///< added to
  void* db = nullptr;
  std::int64_t tokens = 0;
  std::int64_t dim = 0;
  std::int64_t features = 0;
  std::int64_t phi_dim = 0;
  std::int64_t position = 0;  ///< of the first row
  void* scratch = nullptr;
};

void RunFeatures(DType arithmetic, const FeatureOptions& options, const FeatureTask& task);
void RunFeaturesGradient(DType arithmetic, const FeatureOptions& options, const FeatureTask& task);

}  // namespace ttr::rows
