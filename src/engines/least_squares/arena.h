/// Memory of a worker, divided into aligned arrays and blocks.
#pragma once

#include <cstddef>
#include <cstdint>

#include "src/linalg/block.h"

namespace ttr::least_squares {

inline constexpr std::size_t kAlignment = 64;

/// Takes arrays one after the other from `memory`; without memory it only counts their bytes.
class Arena {
 public:
  explicit Arena(std::byte* memory) : memory_(memory) {}

  template <class T>
  T* Take(std::int64_t count) {
    std::byte* const at = memory_ == nullptr ? nullptr : memory_ + bytes_;
    const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(T);
    bytes_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    return reinterpret_cast<T*>(at);
  }
  /// Rows of `columns` numbers, linalg::StrideOf them apart.
  template <class T>
  linalg::Block<T> Rows(std::int64_t rows, std::int64_t columns) {
    return Strided<T>(rows, linalg::StrideOf<T>(columns));
  }
  template <class T>
  linalg::Block<T> Strided(std::int64_t rows, std::int64_t stride) {
    return {Take<T>(rows * stride), stride};
  }

  std::size_t bytes() const { return bytes_; }

 private:
  std::byte* memory_;
  std::size_t bytes_ = 0;
};

}  // namespace ttr::least_squares
