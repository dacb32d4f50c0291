/// The condition of a symmetric matrix, judged as the solvers judge it: after scaling its diagonal
/// to ones.
#pragma once

#include <cstdint>
#include <vector>

namespace ttr {

/// l_max / l_min of S = D^-1/2 A D^-1/2, D the diagonal of A [n, n], which is symmetric. Infinity
/// where A is singular to rounding (l_min <= 64 n eps l_max, the rank threshold of the exact
/// solver), has a diagonal entry that is not positive, or holds a number that is not finite.
///
/// S is reduced to a tridiagonal matrix by Householder's reflections (2 n^3 flops, backward stable:
/// eigenvalues to some n eps l_max), whose extreme eigenvalues are found by bisection on Sturm
/// counts. The result is right to a relative n eps times itself.
double ScaledCondition(std::vector<double> a, std::int64_t n);

}  // namespace ttr
