/// Which pivots of a factorization are numbers, and which are rounding.
#pragma once

#include <cstdint>

namespace ttr::linalg {

/// A pivot of at most this share of its diagonal is rounding: no key was seen in its direction.
/// Double takes the margin of the definition, for which float has too few digits.
template <class T>
constexpr double Rounding(std::int64_t size) {
  constexpr double kEpsilon = sizeof(T) == 4 ? 0x1p-23 : 0x1p-52;
  return (sizeof(T) == 4 ? 4 : 64) * static_cast<double>(size) * kEpsilon;
}

/// A diagonal below this has faded away: its digits are gone.
template <class T>
inline constexpr double kFaded = sizeof(T) == 4 ? 1e-30 : 1e-290;

}  // namespace ttr::linalg
