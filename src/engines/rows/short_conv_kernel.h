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

/// Rows of one number a channel, by strides: the weights of one head, or the inputs that a state
/// holds. Without rows: absent.
struct ConvColumns {
  void* data = nullptr;
  DType dtype = DType::kFloat32;
  std::int64_t rows = 0, row_stride = 0, channel_stride = 0;

  explicit operator bool() const { return rows > 0; }
  /// `count` rows from `first` on.
  ConvColumns Rows(std::int64_t first, std::int64_t count) const;
};

/// Where the gradients of one task go; that of the final state comes from `dfinal`.
struct ConvTaskGradients {
  simd::Rows dx;
  ConvColumns dinitial, dfinal;
  void* dweight = nullptr;          ///< [W][dim], added to; may be null
  std::int64_t dweight_stride = 0;  ///< between its rows
  void* dbias = nullptr;            ///< [dim], likewise
};

/// Tokens begin .. end of one sequence, and `dim` channels of one head. Rows count tokens from the
/// sequence's first one, rows of states from the oldest; absent ones are 0.
struct ConvTask {
  simd::Rows x;
  ConvColumns state;
  simd::Rows y;  ///< backward: dy
  ConvColumns weight;
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

/// Rows of a state that RunConvToken() takes.
inline constexpr std::int64_t kMaxTokenRows = 8;

/// A sequence's only token, which leaves the state, too: each channel of it is read and written
/// once. For states of up to kMaxTokenRows rows that are no wider than the arithmetic, which would
/// round them on their way through.
void RunConvToken(DType arithmetic, const ConvTask& task);

void RunConvGradient(DType arithmetic, const ConvTask& task);

/// Leaves the state as after the sequence's last token. Scratch: `dim` numbers.
void RunConvState(DType arithmetic, const ConvTask& task);

}  // namespace ttr::rows
