/// The layout of many small systems side by side (panels-inl.h).
#pragma once

#include <cstdint>

namespace ttr::linalg {

/// The lower triangle of a matrix is stored in panels of four rows. Panel I has the columns up to
/// its last row, one after the other, four elements each; every element is a vector, a system in
/// each lane. Squares on the diagonal are whole.
inline constexpr std::int64_t kPanelRows = 4;

constexpr std::int64_t PanelsOf(std::int64_t rows) { return (rows + kPanelRows - 1) / kPanelRows; }

/// Vectors before panel `panel`: 16 (1 + 2 + ... + panel). With the number of panels, it is the
/// size of a whole matrix.
constexpr std::int64_t VectorsBefore(std::int64_t panel) {
  return kPanelRows * kPanelRows * panel * (panel + 1) / 2;
}

/// Systems side by side: as many as a vector has lanes, and these are 64 bytes at most.
template <class T>
inline constexpr std::int64_t kMostSystems = 64 / sizeof(T);

}  // namespace ttr::linalg
