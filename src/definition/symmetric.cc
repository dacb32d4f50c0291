#include "src/definition/symmetric.h"

#include <cmath>
#include <limits>

namespace ttr::definition {

double RankThreshold(Eigen::Index n) {
  return 64 * static_cast<double>(n) * std::numeric_limits<double>::epsilon();
}

SymmetricSolver::SymmetricSolver(const Matrix& a)
    : size_(a.rows()), rank_(a.rows()), finite_(a.allFinite()), scale_(Vector::Zero(a.rows())) {
  if (!finite_ || size_ == 0) return;
  // What has faded so far that its digits are gone counts as zero: near the smallest normal number
  // squares of keys lose precision.
  constexpr double kGone = 1e-290;
  for (Eigen::Index i = 0; i < size_; ++i) {
    if (a(i, i) > kGone) scale_(i) = 1 / std::sqrt(a(i, i));
  }
  const Matrix s = scale_.asDiagonal() * a * scale_.asDiagonal();
  const double threshold = RankThreshold(size_);
  if (scale_.minCoeff() > 0) {
    factor_.compute(s);
    if (factor_.info() == Eigen::Success && factor_.rcond() > threshold) return;
  }

  const Eigen::SelfAdjointEigenSolver<Matrix> eigen(s);
  const Vector& lambda = eigen.eigenvalues();
  const double cut = threshold * lambda.cwiseAbs().maxCoeff();
  Matrix f(size_, size_);
  sign_.resize(size_);
  rank_ = 0;
  for (Eigen::Index i = 0; i < size_; ++i) {
    if (std::abs(lambda(i)) <= cut) continue;
    for (Eigen::Index j = 0; j < size_; ++j) {
      f(j, rank_) = scale_(j) == 0 ? 0 : eigen.eigenvectors()(j, i) / scale_(j);
    }
    f.col(rank_) *= std::sqrt(std::abs(lambda(i)));
    sign_(rank_) = lambda(i) < 0 ? -1 : 1;
    ++rank_;
  }
  sign_.conservativeResize(rank_);
  if (rank_ == 0) return;
  const Eigen::HouseholderQR<Matrix> qr(f.leftCols(rank_));
  basis_ = qr.householderQ() * Matrix::Identity(size_, rank_);
  upper_ = qr.matrixQR().topRows(rank_).triangularView<Eigen::Upper>();
}

Matrix SymmetricSolver::Solve(const Matrix& right) const {
  if (!finite_) {
    return Matrix::Constant(size_, right.cols(), std::numeric_limits<double>::quiet_NaN());
  }
  if (rank_ == 0) return Matrix::Zero(size_, right.cols());
  if (basis_.size() == 0) {
    return scale_.asDiagonal() * factor_.solve(scale_.asDiagonal() * right);
  }
  const auto r = upper_.triangularView<Eigen::Upper>();
  const Matrix whitened = r.solve(basis_.transpose() * right);
  return basis_ * r.transpose().solve(sign_.asDiagonal() * whitened);
}

}  // namespace ttr::definition
