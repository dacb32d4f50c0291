/// What the glue of the gates asks of their kernels.
#pragma once

#include <cstdint>

#include "src/simd/rows.h"
#include "ttr/dtype.h"

namespace ttr::rows {

/// A parameter of one head and its gradient, in the arithmetic's type: a row, or one number for all
/// of it.
struct HeadParameter {
  const void* data = nullptr;  ///< may be absent
  void* gradient = nullptr;    ///< added to; likewise
  bool one = false;
};

/// Rows of one head. `scratch`: kGateScratch rows.
struct SoftplusTask {
  simd::Rows x;
  simd::Rows y;  ///< backward: dy
  simd::Rows dx;
  HeadParameter a, bias;
  double low = 0, high = 0;
  std::int64_t tokens = 0, dim = 0;
  void* scratch = nullptr;
};

struct SkipTask {
  simd::Rows y, x, z;
  simd::Rows out;  ///< backward: dout
  simd::Rows dy, dx, dz;
  HeadParameter d;
  std::int64_t tokens = 0, dim = 0;
  void* scratch = nullptr;
};

inline constexpr std::int64_t kGateScratch = 6;

void RunSoftplus(DType arithmetic, const SoftplusTask& task);
void RunSoftplusGradient(DType arithmetic, const SoftplusTask& task);
void RunSkip(DType arithmetic, const SkipTask& task);
void RunSkipGradient(DType arithmetic, const SkipTask& task);

}  // namespace ttr::rows
