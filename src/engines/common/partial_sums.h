/// Gradients of what several tasks share: each task has a sum of its own, and totals are taken over
/// them in order, so that neither the number of threads nor their pace changes a bit.
#pragma once

#include <cstddef>
#include <cstdint>

#include "src/engines/common/scratch_layout.h"
#include "src/simd/rows.h"
#include "ttr/dtype.h"

namespace ttr::common {

/// Sums [part][row][width] of float32 or float64, in memory that somebody else owns.
class PartialSums {
 public:
  /// Sums that are absent.
  PartialSums() = default;
  PartialSums(void* memory, DType dtype, std::int64_t rows, std::int64_t width)
      : memory_(static_cast<std::byte*>(memory)), dtype_(dtype), rows_(rows), width_(width) {}
  /// `parts` of a layout's bytes; absent unless `wanted`.
  PartialSums(ScratchLayout& layout, bool wanted, DType dtype, std::int64_t parts,
              std::int64_t rows, std::int64_t width)
      : PartialSums(nullptr, dtype, rows, width) {
    if (wanted) memory_ = layout.TakeBytes(parts * rows * width * size());
  }

  explicit operator bool() const { return memory_ != nullptr; }
  std::int64_t rows() const { return rows_; }
  std::int64_t width() const { return width_; }

  /// Null where absent.
  std::byte* At(std::int64_t part, std::int64_t row, std::int64_t column = 0) const {
    return memory_ == nullptr ? nullptr
                              : memory_ + ((part * rows_ + row) * width_ + column) * size();
  }
  simd::Rows RowsAt(std::int64_t part, std::int64_t row, std::int64_t column = 0) const {
    return {At(part, row, column), dtype_, width_};
  }

  /// total[i] = the sum over the parts first, first + step, ... of element i of a row.
  void Total(std::int64_t first, std::int64_t count, std::int64_t step, std::int64_t row,
             double* total) const {
    for (std::int64_t i = 0; i < width_; ++i) total[i] = 0;
    for (std::int64_t p = 0; p < count; ++p) {
      const std::byte* const part = At(first + p * step, row);
      if (dtype_ == DType::kFloat64) {
        Add(reinterpret_cast<const double*>(part), total);
      } else {
        Add(reinterpret_cast<const float*>(part), total);
      }
    }
  }

 private:
  template <class T>
  void Add(const T* part, double* total) const {
    for (std::int64_t i = 0; i < width_; ++i) total[i] += static_cast<double>(part[i]);
  }
  std::int64_t size() const { return static_cast<std::int64_t>(SizeOf(dtype_)); }

  std::byte* memory_ = nullptr;
  DType dtype_ = DType::kFloat32;
  std::int64_t rows_ = 0, width_ = 0;
};

}  // namespace ttr::common
