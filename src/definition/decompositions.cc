#include "src/definition/decompositions.h"

#include <Eigen/Cholesky>
#include <Eigen/Eigenvalues>
#include <Eigen/QR>
#include <Eigen/SVD>
#include <limits>

namespace ttr::definition {

Spectrum SpectrumOf(const Matrix& s) {
  const Eigen::SelfAdjointEigenSolver<Matrix> eigen(s);
  return {eigen.eigenvalues(), eigen.eigenvectors()};
}

Vector EigenvaluesOf(const Matrix& s) {
  return Eigen::SelfAdjointEigenSolver<Matrix>(s, Eigen::EigenvaluesOnly).eigenvalues();
}

Spectrum SpectrumOfRows(const Matrix& f) {
  const Eigen::Index size = f.cols();
  if (!f.allFinite()) {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    return {Vector::Constant(size, nan), Matrix::Constant(size, size, nan)};
  }
  const Eigen::JacobiSVD<Matrix> svd(f, Eigen::ComputeFullV);
  Vector values = Vector::Zero(size);
  values.tail(svd.singularValues().size()) = svd.singularValues().cwiseAbs2().reverse();
  return {values, svd.matrixV().rowwise().reverse()};
}

CholeskyFactor CholeskyOf(const Matrix& s) {
  const Eigen::LLT<Matrix> factor(s);
  return {factor.matrixLLT(), factor.info() == Eigen::Success ? factor.rcond() : 0};
}

Matrix SolveBy(const CholeskyFactor& factor, const Matrix& right) {
  const Matrix half = factor.lower.triangularView<Eigen::Lower>().solve(right);
  return factor.lower.transpose().triangularView<Eigen::Upper>().solve(half);
}

ThinFactors ThinFactorsOf(const Matrix& f) {
  const Eigen::HouseholderQR<Matrix> qr(f);
  return {qr.householderQ() * Matrix::Identity(f.rows(), f.cols()),
          qr.matrixQR().topRows(f.cols()).triangularView<Eigen::Upper>()};
}

Matrix Triangularised(const Matrix& f_rest, Eigen::Index columns) {
  const Eigen::HouseholderQR<Matrix> qr(f_rest.leftCols(columns));
  return qr.householderQ().transpose() * f_rest;
}

PivotedRows PivotedRowsOf(const Matrix& f, const Matrix& rest, double threshold) {
  Eigen::ColPivHouseholderQR<Matrix> qr;
  qr.setThreshold(threshold);
  qr.compute(f);
  const Eigen::Index rank = qr.rank();
  const Matrix upper = qr.matrixQR().topRows(rank).triangularView<Eigen::Upper>();
  const Matrix rotated = qr.householderQ().transpose() * rest;
  return {upper * qr.colsPermutation().transpose(), rotated.topRows(rank)};
}

Matrix SolveUpper(const Matrix& r, const Matrix& right) {
  return r.triangularView<Eigen::Upper>().solve(right);
}

Matrix SolveUpperTransposed(const Matrix& r, const Matrix& right) {
  return r.transpose().triangularView<Eigen::Lower>().solve(right);
}

LeastNormSolution SolveLeastNorm(const Matrix& a, const Matrix& right, double threshold) {
  Eigen::CompleteOrthogonalDecomposition<Matrix> solver;
  solver.setThreshold(threshold);
  solver.compute(a);
  return {solver.solve(right), solver.rank()};
}

}  // namespace ttr::definition
