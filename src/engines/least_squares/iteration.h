/// How A x = q is approached where it is not solved.
#pragma once

#include <cstdint>

namespace ttr::least_squares {

/// All start from x = 0.
enum class Solver : std::uint8_t {
  kExact,
  kGradient,           ///< d <- P (q - A x) + m d, x <- x + eta d, `steps` times; m the momentum
  kConjugateGradient,  ///< preconditioned by P, `steps` times at most, until |r| <= tolerance |q|
  kChebyshev,  ///< iterate `steps`, for the eigenvalues between the ridge and it plus |H|_F;
               ///< with a ridge that fades, between the smallest of A and |A|_F
};

enum class Preconditioner : std::uint8_t {
  kNone,           ///< P = I
  kDiagonal,       ///< P = diag(A)^-1, 0 where A_ii = 0
  kBlockDiagonal,  ///< P = the (pseudo-)inverses of the diagonal blocks of size `block`
  kLowRank,        ///< P = U L^-1 U^T + (I - U U^T) / s: L, U the `rank` largest eigenvalues and
                   ///< their vectors, s the next one; of what is zero to rounding, 0
  kChunkFactor,    ///< conjugate gradients to a tolerance: P = the inverse with one ridge for all
                   ///< tokens of a chunk, from one Cholesky factor; where there is none, diagonal
};

struct Iteration {
  Solver solver = Solver::kExact;
  std::int64_t steps = 1;
  double eta = 1;
  /// Gradient descent without P: is eta in units of 1 / (|A|_F + the largest ridge beside A), below
  /// which no eigenvalue's inverse is?
  bool relative = false;
  bool given = false;     ///< gradient descent without P: are the sizes of steps Call::step?
  bool momentum = false;  ///< gradient descent without P, of one eta: Call::momentum, or 0
  Preconditioner preconditioner = Preconditioner::kNone;
  std::int64_t block = 8;
  std::int64_t rank = 8;
  double tolerance = 0;  ///< never tighter than the rounding of the arithmetic; 0: `steps` steps
};

}  // namespace ttr::least_squares
