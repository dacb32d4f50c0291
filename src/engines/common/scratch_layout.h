/// The arrays of a worker's scratch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "ttr/dtype.h"

namespace ttr::common {

/// Bytes of a cache line. Every array of a scratch begins with one.
inline constexpr std::int64_t kLineBytes = 64;

/// Numbers of T on a cache line.
template <class T>
inline constexpr std::int64_t kLine = kLineBytes / static_cast<std::int64_t>(sizeof(T));

constexpr std::int64_t CeilDiv(std::int64_t n, std::int64_t unit) { return (n + unit - 1) / unit; }
constexpr std::int64_t RoundUp(std::int64_t n, std::int64_t unit) {
  return CeilDiv(n, unit) * unit;
}

/// Numbers from one row to the next: an odd number of lines, so that rows of a power of two do not
/// compete for the same few sets of a cache.
template <class T>
constexpr std::int64_t OddLines(std::int64_t columns) {
  return (CeilDiv(columns, kLine<T>) | 1) * kLine<T>;
}

/// Hands out arrays one after the other. Without memory it only counts their bytes, so that the
/// code that divides a scratch is also the code that measures it (ScratchBytesOf).
///
///     struct Scratch {
///       float *keys, *values;
///       Scratch(const Sizes& sizes, ScratchLayout& layout) {
///         keys = layout.Take<float>(sizes.key_dim);
///         values = layout.Take<float>(sizes.needs_values ? sizes.value_dim : 0);
///       }
///     };
class ScratchLayout {
 public:
  /// `memory`: at a multiple of kLineBytes, or null.
  explicit ScratchLayout(std::byte* memory) : memory_(memory) {}
  ScratchLayout(const ScratchLayout&) = delete;
  ScratchLayout& operator=(const ScratchLayout&) = delete;

  /// `count` numbers, not initialised; null where that is 0, and without memory.
  template <class T>
  T* Take(std::int64_t count) {
    if (count == 0) return nullptr;
    return reinterpret_cast<T*>(TakeBytes(count * static_cast<std::int64_t>(sizeof(T))));
  }

  /// `count` numbers for each of several arrays.
  template <class T>
  void Take(std::int64_t count, std::initializer_list<T**> arrays) {
    for (T** array : arrays) *array = Take<T>(count);
  }

  std::byte* TakeBytes(std::int64_t bytes) {
    std::byte* const start = memory_ == nullptr ? nullptr : memory_ + used_;
    used_ += RoundUp(bytes, kLineBytes) + gap_;
    return start;
  }

  /// From now on leaves three lines free after every array: those of the size of a page would
  /// compete for the same sets of the first-level cache.
  void LeaveGaps() { gap_ = 3 * kLineBytes; }

  /// Makes room for `copies` of everything taken so far, one after the other; the first is what was
  /// taken. Returns the bytes from one to the next.
  std::int64_t Repeat(std::int64_t copies) {
    const std::int64_t one = used_;
    used_ *= copies;
    return one;
  }

  std::size_t bytes() const { return static_cast<std::size_t>(used_); }

 private:
  std::byte* memory_;
  std::int64_t gap_ = 0;
  std::int64_t used_ = 0;
};

/// The bytes that Scratch(args..., layout) takes.
template <class Scratch, class... Args>
std::size_t ScratchBytesOf(const Args&... args) {
  ScratchLayout counter(nullptr);
  const Scratch scratch(args..., counter);
  return counter.bytes();
}

/// The bytes that Scratch<T>(args..., layout) takes, where T is the type of the arithmetic.
template <template <class> class Scratch, class... Args>
std::size_t ScratchBytesOf(DType arithmetic, const Args&... args) {
  return arithmetic == DType::kFloat64 ? ScratchBytesOf<Scratch<double>>(args...)
                                       : ScratchBytesOf<Scratch<float>>(args...);
}

}  // namespace ttr::common
