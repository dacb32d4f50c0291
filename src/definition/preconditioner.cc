#include "src/definition/preconditioner.h"

#include <algorithm>
#include <cmath>

#include "src/definition/decompositions.h"
#include "src/definition/symmetric.h"

namespace ttr::definition {
namespace {

Matrix Diagonal(const Matrix& a) {
  const auto inverse = [](double x) { return x == 0 ? 0 : 1 / x; };
  return a.diagonal().unaryExpr(inverse).asDiagonal();
}

/// The pseudo-inverse, where it is singular.
Matrix Inverse(const Matrix& a) {
  return SymmetricSolver(a).Solve(Matrix::Identity(a.rows(), a.cols()));
}

Matrix BlockDiagonal(const Matrix& a, Eigen::Index block) {
  Matrix p = Matrix::Zero(a.rows(), a.cols());
  for (Eigen::Index begin = 0; begin < a.rows(); begin += block) {
    const Eigen::Index n = std::min(block, a.rows() - begin);
    p.block(begin, begin, n, n) = Inverse(a.block(begin, begin, n, n));
  }
  return p;
}

Matrix LowRank(const Matrix& a, Eigen::Index rank) {
  const Eigen::Index n = a.rows();
  const auto [lambda, u] = SpectrumOf(a);
  const double cut = RankThreshold(n) * lambda.cwiseAbs().maxCoeff();
  const Eigen::Index others = std::max<Eigen::Index>(0, n - rank);
  Vector inverse(n);
  for (Eigen::Index i = 0; i < n; ++i) {
    const double curvature = lambda(std::max(i, others - 1));  // s for the others
    inverse(i) = curvature > cut ? 1 / curvature : 0;
  }
  return u * inverse.asDiagonal() * u.transpose();
}

}  // namespace

Preconditioning::Preconditioning(const Matrix& a, const Optimizer& optimizer)
    : identity_(optimizer.preconditioner == Preconditioner::kNone) {
  switch (optimizer.preconditioner) {
    case Preconditioner::kNone: break;
    case Preconditioner::kDiagonal: p_ = Diagonal(a); break;
    case Preconditioner::kBlockDiagonal: p_ = BlockDiagonal(a, optimizer.block); break;
    case Preconditioner::kLowRank: p_ = LowRank(a, optimizer.rank); break;
    case Preconditioner::kChunkFactor: p_ = Inverse(a); break;
  }
}

}  // namespace ttr::definition
