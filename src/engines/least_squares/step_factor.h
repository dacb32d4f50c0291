/// What one memory keeps between steps of a token: a factor of A, and of which A it is one.
#pragma once

#include <cstdint>

#include "src/engines/least_squares/layout.h"

namespace ttr::least_squares {

/// A + R = U^T diag(d) U, U with ones on its diagonal. Of every kUnit rows what lies from their
/// first column on is kept, zeros below the diagonal among it, rows one behind the other.
template <class T>
struct FactorLayout {
  std::int64_t unit;     // rows and columns: D rounded up
  std::int64_t numbers;  // of T, all together
  T* u;
  T* inverse;   // 1 / d
  T* diagonal;  // of A + R
  T* seal;      // whole vectors: the bits of A and R that this is a factor of, added up

  explicit FactorLayout(std::int64_t key_dim, void* memory = nullptr)
      : unit(RoundUp(key_dim, kUnit)) {
    std::int64_t used = 0;
    const auto take = [&](std::int64_t count) {
      T* const at = memory == nullptr ? nullptr : static_cast<T*>(memory) + used;
      used += RoundUp(count, static_cast<std::int64_t>(kAlignment / sizeof(T)));
      return at;
    };
    u = take(Begin(unit));
    inverse = take(unit);
    diagonal = take(unit);
    seal = take(kUnit);
    numbers = used;
  }

  /// The first column that is kept of row i, and how many are.
  static std::int64_t FirstColumn(std::int64_t i) { return i / kUnit * kUnit; }
  std::int64_t Columns(std::int64_t i) const { return unit - FirstColumn(i); }
  /// Where row i begins.
  std::int64_t Begin(std::int64_t i) const {
    const std::int64_t first = FirstColumn(i);
    return first * unit - first * (first - kUnit) / 2 + (i - first) * Columns(i);
  }
  /// Element (i, j) is Row(i)[j].
  T* Row(std::int64_t i) const { return u + Begin(i) - FirstColumn(i); }
};

}  // namespace ttr::least_squares
