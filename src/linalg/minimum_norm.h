/// Solutions of A x = q where A may be singular: plain C++, in double.
#pragma once

#include <cstdint>
#include <vector>

namespace ttr::linalg {

/// A positive semi-definite A, factored. With D = diag(A)^-1/2,
///
///     D A D = P L L^T P^T    Cholesky with diagonal pivoting, until a pivot is rounding
///     full rank:   x = A^-1 q
///     rank r < n:  F = D^-1 P L (n x r),  F = Q R,  x = Q R^-T R^-1 Q^T q
///
/// the solution of least norm among those of least residual. Pivots up to `rounding` are
/// none, nor is a diagonal up to `faded`. Cost: n^3 / 3 flops; 4 n r^2 more where singular.
class MinimumNorm {
 public:
  /// A symmetric, n rows of n numbers.
  void Factor(std::int64_t n, const double* a, double rounding, double faded);

  /// x = A^+ q, NaN where A is not finite. Not in place.
  void Solve(const double* q, double* x) const;

  bool singular() const { return rank_ < size_; }

 private:
  void Orthogonalise();

  std::int64_t size_ = 0;
  std::int64_t rank_ = 0;
  bool finite_ = true;
  std::vector<double> scale_;         // 0 where A has nothing
  std::vector<std::int64_t> order_;   // pivot i is row order_[i] of A
  std::vector<double> lower_;         // L, pivots in order: size_ rows of size_
  std::vector<double> basis_;         // Q^T: rank_ rows of size_
  std::vector<double> upper_;         // R: rank_ rows of rank_
  mutable std::vector<double> work_;  // of Solve
};

}  // namespace ttr::linalg
