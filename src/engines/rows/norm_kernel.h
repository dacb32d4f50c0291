/// What the glue of the norms asks of their kernels.
#pragma once

#include <cstdint>

#include "src/engines/rows/norm.h"
#include "src/simd/rows.h"
#include "ttr/dtype.h"

namespace ttr::rows {

/// Rows of one head. Parameters and their gradients are contiguous and of the arithmetic's type, as
/// is `scratch`: kNormScratch rows.
struct NormTask {
  NormKind kind = NormKind::kRms;
  double eps = 0;
  GateKind gate_kind = GateKind::kSilu;
  bool gate_first = false;
  simd::Rows x, gate;
  simd::Rows y;  ///< backward: dy
  simd::Rows dx, dgate;
  const void* weight = nullptr;
  const void* bias = nullptr;
  void* dweight = nullptr;  ///< added to
  void* dbias = nullptr;
  std::int64_t tokens = 0;
  std::int64_t dim = 0;
  void* scratch = nullptr;
};

inline constexpr std::int64_t kNormScratch = 5;

void RunNorm(DType arithmetic, const NormTask& task);
void RunNormGradient(DType arithmetic, const NormTask& task);

}  // namespace ttr::rows
