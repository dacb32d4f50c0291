/// Solving A x = q for a symmetric A that may be singular, be it by nature (fewer keys than
/// channels) or because what kept it regular has faded to rounding.
#pragma once

#include "src/definition/decompositions.h"
#include "src/definition/memory.h"

namespace ttr::definition {

/// Eigenvalues below this fraction of the largest are taken for zero. A sum of t outer products
/// carries roundings of some sqrt(t n) eps of its size, an eigenvalue decomposition n eps: 64 n eps
/// stands above both for all t that a definition is run on.
double RankThreshold(Eigen::Index n);

/// x = A^+ q: the solution, and where A is singular the one of smallest norm.
///
/// Whether A is singular is judged after scaling its diagonal to ones, S = D^-1/2 A D^-1/2, so that
/// a channel of small keys is not mistaken for a missing one. Then
///
///     A = F J F^T,   F = D^1/2 U |L|^1/2,   S = U L U^T cut to its rank,   J = sign(L)
///     A^+ = (F^+)^T J F^+,   F^+ = R^-1 Q^T,   F = Q R
///
/// A matrix that is not finite gives solutions that are NaN.
class SymmetricSolver {
 public:
  SymmetricSolver() = default;
  explicit SymmetricSolver(const Matrix& a);

  Matrix Solve(const Matrix& right) const;
  Eigen::Index rank() const { return rank_; }
  bool singular() const { return rank_ < size_; }

 private:
  Eigen::Index size_ = 0;
  Eigen::Index rank_ = 0;
  bool finite_ = true;
  Vector scale_;           // D^-1/2
  CholeskyFactor factor_;  // of S, where A is regular
  ThinFactors f_;          // else Q (n x rank), R (rank x rank)
  Vector sign_;            // and J
};

}  // namespace ttr::definition
