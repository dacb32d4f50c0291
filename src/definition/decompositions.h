/// Eigen's decompositions of symmetric and of tall matrices, for all of the definition: compiled in
/// one file, since each of them takes as long to compile as all that calls it.
#pragma once

#include "src/definition/memory.h"

namespace ttr::definition {

/// S = U diag(L) U^T of a symmetric S, the smallest eigenvalue first.
struct Spectrum {
  Vector values;   // L
  Matrix vectors;  // U
};
Spectrum SpectrumOf(const Matrix& s);
Vector EigenvaluesOf(const Matrix& s);
/// F^T F = U diag(L) U^T of any F, found from F itself: an eigenvalue that is small beside others
/// has the digits of F, not half of them. NaN where F is not finite.
Spectrum SpectrumOfRows(const Matrix& f);

/// S = L L^T of a positive definite S.
struct CholeskyFactor {
  Matrix lower;                 // L; above its diagonal is anything
  double reciprocal_condition;  // an estimate; 0 where S is not positive definite
};
CholeskyFactor CholeskyOf(const Matrix& s);
/// S^-1 right
Matrix SolveBy(const CholeskyFactor& factor, const Matrix& right);

/// F = Q R of a tall F, Q with as many columns as F.
struct ThinFactors {
  Matrix q, r;
};
ThinFactors ThinFactorsOf(const Matrix& f);
/// Q^T [F rest] of the first `columns` columns F = Q R: R stands there in F's place.
Matrix Triangularised(const Matrix& f_rest, Eigen::Index columns);

/// F = Q U P^T of any F by pivoted columns, without the rows of U whose pivots are at most
/// `threshold` times the largest: [U P^T, Q^T rest], as many rows as the rank.
struct PivotedRows {
  Matrix factor, rest;
};
PivotedRows PivotedRowsOf(const Matrix& f, const Matrix& rest, double threshold);

/// R^-1 right and R^-T right of an upper triangle R.
Matrix SolveUpper(const Matrix& r, const Matrix& right);
Matrix SolveUpperTransposed(const Matrix& r, const Matrix& right);

/// The X of smallest norm among those with the least |A X - right|, by an orthogonal decomposition
/// with pivoted columns in which pivots below `threshold` times the largest count as zero.
struct LeastNormSolution {
  Matrix x;
  Eigen::Index rank;
};
LeastNormSolution SolveLeastNorm(const Matrix& a, const Matrix& right, double threshold);

}  // namespace ttr::definition
