/// The memory of symmetric eigenproblems that are solved side by side.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ttr::linalg {

/// Matrices whose eigenvalues are found side by side, at the most.
inline constexpr std::int64_t kEigensystemsTogether = 8;

/// A rotation of a row and the next one, in every lane.
struct alignas(64) Rotation {
  double sine[kEigensystemsTogether], cosine[kEigensystemsTogether];
};

/// Rotations that make tridiagonal matrices of n rows diagonal: 1 to 1.5 n^2; this is a bound.
constexpr std::int64_t MostRotations(std::int64_t n) { return 4 * n * n; }

/// `unit`: n rounded up to kUnit. Only eigenvectors need rotations: MostRotations(n).
struct EigenScratch {
  double* a;                              // kEigensystemsTogether matrices of unit x unit
  double *diagonal, *off_diagonal, *tau;  // kEigensystemsTogether times unit numbers
  double* scale;                          // kEigensystemsTogether
  double* p;                              // 3 unit
  std::int64_t* order;                    // unit: of the eigenvalues of one, largest first
  Rotation* rotations;
  std::int32_t* rotated;  // their rows
};

}  // namespace ttr::linalg
