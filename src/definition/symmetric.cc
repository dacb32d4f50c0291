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
  // A matrix that has faded until its digits are gone counts as zero: near the smallest normal
  // number squares of keys lose precision.
  constexpr double kGone = 1e-290;
  for (Eigen::Index i = 0; i < size_; ++i) {
    if (a(i, i) > kGone) scale_(i) = 1 / std::sqrt(a(i, i));
  }
  const Matrix s = scale_.asDiagonal() * a * scale_.asDiagonal();
  const double threshold = RankThreshold(size_);
  if (scale_.minCoeff() > 0) {
    factor_ = CholeskyOf(s);
    if (factor_.reciprocal_condition > threshold) return;
  }

  const auto [lambda, u] = SpectrumOf(s);
  const double cut = threshold * lambda.cwiseAbs().maxCoeff();
  Matrix f(size_, size_);
  sign_.resize(size_);
  rank_ = 0;
  for (Eigen::Index i = 0; i < size_; ++i) {
    if (std::abs(lambda(i)) <= cut) continue;
    for (Eigen::Index j = 0; j < size_; ++j) {
      f(j, rank_) = scale_(j) == 0 ? 0 : u(j, i) / scale_(j);
    }
    f.col(rank_) *= std::sqrt(std::abs(lambda(i)));
    sign_(rank_) = lambda(i) < 0 ? -1 : 1;
    ++rank_;
  }
  sign_.conservativeResize(rank_);
  if (rank_ == 0) return;
  f_ = ThinFactorsOf(f.leftCols(rank_));
}

Matrix SymmetricSolver::Solve(const Matrix& right) const {
  if (!finite_) {
    return Matrix::Constant(size_, right.cols(), std::numeric_limits<double>::quiet_NaN());
  }
  if (rank_ == 0) return Matrix::Zero(size_, right.cols());
  if (f_.q.size() == 0) {
    return scale_.asDiagonal() * SolveBy(factor_, scale_.asDiagonal() * right);
  }
  const Matrix whitened = SolveUpper(f_.r, f_.q.transpose() * right);
  return f_.q * SolveUpperTransposed(f_.r, sign_.asDiagonal() * whitened);
}

}  // namespace ttr::definition
