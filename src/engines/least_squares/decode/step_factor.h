/// What a Decoder keeps of one memory between single tokens: a factor of A, and which A it belongs
/// to.
#pragma once

#include <cstdint>

#include "src/engines/common/scratch_layout.h"
#include "src/engines/least_squares/memory.h"

namespace ttr::least_squares {

/// A + R = U^T diag(d) U, U with ones on its diagonal, and where writes are deferred
/// (MemoryState::deferred) B = U^T diag(d) W. U is stored row after row. Every kUnit rows begin at
/// the column of the first row's diagonal, and so store some zeros below the diagonal.
template <class T>
struct FactorLayout {
  std::int64_t unit;     // rows and columns of U, rows of W: D rounded up
  std::int64_t values;   // columns of W: Dv rounded up, or none
  std::int64_t numbers;  // of T, all together
  T* u;
  T* w;
  T* inverse;   // 1 / d; zero at first: there is no factor
  T* diagonal;  // of A + R
  T* seal;      // whole vectors: the bits of A and R that this is a factor of, added up

  FactorLayout(std::int64_t key_dim, std::int64_t value_dim, void* memory = nullptr)
      : unit(RoundUp(key_dim, kUnit)), values(RoundUp(value_dim, kUnit)) {
    common::ScratchLayout layout(static_cast<std::byte*>(memory));
    u = layout.Take<T>(Begin(unit));
    w = layout.Take<T>(unit * values);
    layout.Take<T>(unit, {&inverse, &diagonal});
    seal = layout.Take<T>(kUnit);
    numbers = static_cast<std::int64_t>(layout.bytes() / sizeof(T));
  }
  explicit FactorLayout(const MemoryState& memory)
      : FactorLayout(memory.key_dim, memory.deferred ? memory.value_dim : 0, memory.factor) {}

  bool holds() const { return inverse[0] > 0; }
  void Drop() const { inverse[0] = 0; }

  /// The first column that is stored of row i, and how many numbers its row has.
  static std::int64_t FirstColumn(std::int64_t i) { return i / kUnit * kUnit; }
  std::int64_t Columns(std::int64_t i) const { return unit - FirstColumn(i); }
  /// Where row i begins.
  std::int64_t Begin(std::int64_t i) const {
    const std::int64_t first = FirstColumn(i);
    return first * unit - first * (first - kUnit) / 2 + (i - first) * Columns(i);
  }
  /// Element (i, j) of U is Row(i)[j].
  T* Row(std::int64_t i) const { return u + Begin(i) - FirstColumn(i); }
};

/// TakeValues() and Flush() serve a memory whose writes are deferred. TakeValues() computes W from
/// B, once U and d are there. Flush() computes A and B from U, d and W, which then are no longer
/// needed: D^2 (D + Dv) sums in double.
template <class T>
void TakeValues(const MemoryState& memory);
template <class T>
void Flush(const MemoryState& memory);

}  // namespace ttr::least_squares
