/// Which pivots of a factorization are numbers, and which are rounding.
#pragma once

#include <cstdint>

namespace ttr::linalg {

/// The share of its diagonal up to which a pivot is rounding: its direction then counts as never
/// seen. Double may take the definition's margin; float cannot afford it.
template <class T>
constexpr double Rounding(std::int64_t size) {
  constexpr double kEpsilon = sizeof(T) == 4 ? 0x1p-23 : 0x1p-52;
  return (sizeof(T) == 4 ? 4 : 64) * static_cast<double>(size) * kEpsilon;
}

/// Below this a diagonal has faded away: its digits are gone.
template <class T>
inline constexpr double kFaded = sizeof(T) == 4 ? 1e-30 : 1e-290;

}  // namespace ttr::linalg
