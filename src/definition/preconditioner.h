/// What multiplies the gradient of least squares: an approximation P of A^-1, between the identity
/// (gradient descent) and A^-1 itself (Newton's method). Source: Wang, Shi, Fox (2025), Vignette 3.
#pragma once

#include "src/definition/memory.h"

namespace ttr::definition {

///     none            P = I
///     diagonal        P = diag(A)^-1, 0 where A_ii = 0
///     block_diagonal  P = the inverses of the diagonal blocks of size `block` (the last one may be
///                     smaller); of a singular block the pseudo-inverse
///     low_rank        P = U L^-1 U^T + (I - U U^T) / s, with L, U the `rank` largest eigenvalues
///                     and their eigenvectors and s the largest of the others: P A has all its
///                     eigenvalues in [0, 1], so that a step of eta = 1 never overshoots. An
///                     eigenvalue that is zero to rounding is inverted to 0.
///     chunk_factor    P = A^-1: every token is a chunk of its own. An engine shares a factor among
///                     more tokens and takes more steps to the same tolerance.
class Preconditioning {
 public:
  Preconditioning(const Matrix& a, const Optimizer& optimizer);

  Vector Apply(const Vector& x) const { return identity_ ? x : Vector(p_ * x); }

 private:
  bool identity_;
  Matrix p_;
};

}  // namespace ttr::definition
