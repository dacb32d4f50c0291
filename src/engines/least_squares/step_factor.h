/// What one memory keeps between steps of a token: a factor of A, and of which A it is one.
#pragma once

#include <cstdint>

#include "src/engines/least_squares/layout.h"

namespace ttr::least_squares {

/// A + R = U^T diag(d) U, U with ones on its diagonal and zeros below it.
template <class T>
struct FactorLayout {
  std::int64_t unit, stride;  // rows and columns: D rounded up
  std::int64_t numbers;       // of T, all together
  T* u;
  T* d;
  T* seal;  // whole vectors: the bits of A and R that this is a factor of, added up

  explicit FactorLayout(std::int64_t key_dim, void* memory = nullptr)
      : unit(RoundUp(key_dim, kUnit)), stride(StrideOf<T>(unit)) {
    std::int64_t used = 0;
    const auto take = [&](std::int64_t count) {
      T* const at = memory == nullptr ? nullptr : static_cast<T*>(memory) + used;
      used += RoundUp(count, static_cast<std::int64_t>(kAlignment / sizeof(T)));
      return at;
    };
    u = take(unit * stride);
    d = take(unit);
    seal = take(kUnit);
    numbers = used;
  }
};

}  // namespace ttr::least_squares
