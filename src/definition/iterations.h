/// A x = q by steps, for a symmetric positive semi-definite A that is at hand.
#pragma once

#include <cstdint>

#include "src/definition/memory.h"
#include "src/definition/preconditioner.h"

namespace ttr::definition {

/// x after some iterations, and whether they reached what was asked of them.
struct Iterate {
  Vector x;
  std::int64_t steps;  // taken
  Status status = Status::kSolved;
};

/// d <- P (q - A x) + momentum d,  x <- x + eta d, a size eta a step, from x = d = 0.
Iterate GradientDescent(const Matrix& a, const Preconditioning& p, const Vector& eta,
                        double momentum, const Vector& q);

/// Conjugate gradients from x = 0 (Hestenes, Stiefel 1952), preconditioned by P:
///
///     alpha = r.z / d.Ad,  x += alpha d,  r -= alpha A d,  z = P r,  d = z + (r.z / old r.z) d
///
/// until |r| <= tolerance |q|, never tighter than eps, below which r is rounding. It ends, too,
/// where d.Ad is no more than rounding of |A| d.d, or r.z of |P| r.r: A is singular there, q has a
/// part there, and no x solves A x = q.
Iterate ConjugateGradient(const Matrix& a, const Preconditioning& p, const Vector& q,
                          const Optimizer& optimizer);

}  // namespace ttr::definition
