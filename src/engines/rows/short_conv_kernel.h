/// What the glue of the short convolution asks of its kernels.
#pragma once

#include <cstdint>

#include "src/engines/rows/short_conv.h"
#include "src/simd/rows.h"
#include "ttr/dtype.h"

namespace ttr::rows {

/// Tokens whose dz the backward pass holds at a time.
inline constexpr std::int64_t kConvBlock = 64;
/// Outputs that the forward pass makes of one read of the weights.
inline constexpr std::int64_t kConvTogether = 4;

/// Weights [D][W] of one head, by strides.
struct ConvWeight {
  const void* data = nullptr;
  DType dtype = DType::kFloat32;
  std::int64_t channel_stride = 0, step_stride = 0;
};

/// Where the gradients of one task go; that of the final state comes from `dfinal`.
struct ConvTaskGradients {
  simd::Rows dx, dinitial, dfinal;
  void* dweight = nullptr;  ///< [W][D], added to; may be null
  void* dbias = nullptr;    ///< [D], likewise
};

/// Tokens begin .. end of one sequence and head. Rows count tokens from the sequence's first one,
/// rows of states from the oldest; absent ones are 0.
struct ConvTask {
  simd::Rows x, state;
  simd::Rows y;  ///< backward: dy
  ConvWeight weight;
  const void* bias = nullptr;  ///< of the arithmetic's type
  std::int64_t tokens = 0;     ///< of the sequence
  std::int64_t begin = 0, end = 0;
  std::int64_t dim = 0, width = 0;
  bool silu = false;
  void* scratch = nullptr;
  ConvTaskGradients gradients;  ///< backward alone
};

/// Numbers of scratch that one task needs.
std::int64_t ConvScratch(std::int64_t dim, std::int64_t width, bool backward);

void RunConv(DType arithmetic, const ConvTask& task);
void RunConvGradient(DType arithmetic, const ConvTask& task);

/// Leaves the state as after the sequence's last token. Scratch: `dim` numbers.
void RunConvState(DType arithmetic, const ConvTask& task);

}  // namespace ttr::rows
