/// Tensors as an engine wants them, where the caller's are not so.
#pragma once

#include <cstdint>

#include "src/core/call_scratch.h"
#include "ttr/tensor.h"

namespace ttr {

enum class Layout : std::uint8_t { kAnyStrides, kContiguousRows, kContiguous };

/// A tensor in the dtype and the layout that an engine wants: `given`, the caller's tensor, where
/// it has these, else a copy, which WriteBack() copies into it. Absent where the caller's is.
///
///     const WorkingCopy second(call.second, dtype);                // read and written
///     const WorkingCopy w = WorkingCopy::Zeros(dinputs.w, dtype);  // a gradient that is added to
class WorkingCopy {
 public:
  WorkingCopy() = default;
  WorkingCopy(WorkingCopy&&) = default;
  WorkingCopy& operator=(WorkingCopy&&) = default;
  WorkingCopy(const TensorView& given, DType dtype, Layout layout = Layout::kAnyStrides);
  /// A copy that lies in the scratch.
  WorkingCopy(const TensorView& given, DType dtype, CallScratch& scratch);
  /// A copy in the dtype of `given`.
  WorkingCopy(const TensorView& given, Layout layout);

  /// Always a tensor of its own, contiguous and zero, which WriteBack() copies into the caller's.
  static WorkingCopy Zeros(const TensorView& given, DType dtype);

  /// For rows [B, T, heads, D] where the caller's tensor may have fewer heads, each shared by
  /// several: then WriteBack() leaves sums over those (SumSharedHeads).
  static WorkingCopy OfHeads(const TensorView& given, std::int64_t heads, DType dtype);

  const TensorView& view() const { return view_; }
  bool copied() const { return copied_; }
  void WriteBack() const;

 private:
  void Become(Tensor copy);

  TensorView given_, view_;
  bool copied_ = false;
  Tensor owned_;
};

/// to[b, t, h] = the sum of from[b, t, g] over the heads g that share h, taken in the dtype of
/// `from` (float32 or float64), rows of which are contiguous: [B, T, heads, D] to fewer heads.
void SumSharedHeads(const TensorView& from, const TensorView& to);

}  // namespace ttr
