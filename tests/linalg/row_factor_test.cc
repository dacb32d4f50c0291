// Least squares by reflections of rows, beside Eigen's complete orthogonal decomposition.
#include "src/linalg/row_factor.h"

#include <gtest/gtest.h>

#include <Eigen/Dense>
#include <cmath>
#include <random>
#include <vector>

namespace ttr::linalg {
namespace {

using Eigen::MatrixXd;
using Eigen::VectorXd;

constexpr double kRounding = 1e-13;

MatrixXd Normal(Eigen::Index rows, Eigen::Index columns, int seed) {
  std::mt19937_64 draw(static_cast<std::uint64_t>(seed));
  std::normal_distribution<double> normal;
  return MatrixXd::NullaryExpr(rows, columns, [&] { return normal(draw); });
}

// The rows of x and, beside them, of y.
RowFactor FactorOf(const MatrixXd& x, const MatrixXd& y, double diagonal = 0) {
  RowFactor factor;
  factor.Start(x.cols(), y.cols(), diagonal);
  for (Eigen::Index i = 0; i < x.rows(); ++i) {
    double* const row = factor.Next();
    for (Eigen::Index j = 0; j < x.cols(); ++j) row[j] = x(i, j);
    for (Eigen::Index j = 0; j < y.cols(); ++j) row[x.cols() + j] = y(i, j);
  }
  factor.Finish(kRounding);
  return factor;
}

// X^+ y of column c of the sides.
VectorXd Solve(const RowFactor& factor, Eigen::Index columns, Eigen::Index c) {
  std::vector<double> z(static_cast<std::size_t>(factor.rank()));
  for (std::size_t i = 0; i < z.size(); ++i) z[i] = factor.side(static_cast<std::int64_t>(i))[c];
  VectorXd x(columns);
  factor.Return(z.data(), x.data());
  return x;
}

void ExpectNear(const VectorXd& got, const VectorXd& expected, double tolerance) {
  EXPECT_LE((got - expected).norm(), tolerance * expected.norm())
      << got.transpose() << " instead of " << expected.transpose();
}

// Everything that a factor tells, of x = rows of any rank, beside the pseudoinverse.
void ExpectPseudoinverse(const MatrixXd& x, Eigen::Index rank, double tolerance) {
  const MatrixXd y = Normal(x.rows(), 2, 5);
  const RowFactor factor = FactorOf(x, y);
  ASSERT_EQ(factor.rank(), rank);
  EXPECT_EQ(factor.singular(), rank < x.cols());
  Eigen::CompleteOrthogonalDecomposition<MatrixXd> whole(x.rows(), x.cols());
  whole.setThreshold(kRounding);
  whole.compute(x);
  const MatrixXd inverse = whole.pseudoInverse();
  for (Eigen::Index c = 0; c < 2; ++c) {
    ExpectNear(Solve(factor, x.cols(), c), inverse * y.col(c), tolerance);
  }
  const VectorXd b = Normal(x.cols(), 1, 6), other = Normal(x.cols(), 1, 7);
  VectorXd w(rank), w_other(rank), projected(x.cols());
  factor.Whiten(b.data(), w.data());
  factor.Whiten(other.data(), w_other.data());
  const double expected = (inverse.transpose() * b).dot(inverse.transpose() * other);
  const double size = (inverse.transpose() * b).norm() * (inverse.transpose() * other).norm();
  EXPECT_NEAR(w.dot(w_other), expected, tolerance * size);
  factor.Project(b.data(), projected.data());
  ExpectNear(projected, inverse * (x * b), tolerance);
  // w . side = b^T X^+ y.
  double fitted = 0;
  for (Eigen::Index i = 0; i < rank; ++i) fitted += w[i] * factor.side(i)[0];
  EXPECT_NEAR(fitted, b.dot(inverse * y.col(0)),
              tolerance * b.norm() * (inverse * y.col(0)).norm());
}

TEST(RowFactor, OfMoreRowsThanColumns) { ExpectPseudoinverse(Normal(12, 5, 1), 5, 1e-12); }

TEST(RowFactor, OfFewerRowsThanColumns) { ExpectPseudoinverse(Normal(3, 7, 2), 3, 1e-12); }

TEST(RowFactor, OfColumnsThatDependOnEachOther) {
  ExpectPseudoinverse(Normal(20, 4, 3) * Normal(4, 9, 4), 4, 1e-11);
}

TEST(RowFactor, OfOneColumnAndOfNoRows) {
  ExpectPseudoinverse(Normal(4, 1, 1), 1, 1e-13);
  const RowFactor none = FactorOf(MatrixXd(0, 3), MatrixXd(0, 1));
  EXPECT_EQ(none.rank(), 0);
  EXPECT_EQ(Solve(none, 3, 0), VectorXd::Zero(3));
}

TEST(RowFactor, AddsARidge) {
  const MatrixXd x = Normal(3, 6, 8), y = Normal(3, 1, 9);
  const double ridge = 0.01;
  const RowFactor factor = FactorOf(x, y, std::sqrt(ridge));
  EXPECT_FALSE(factor.singular());
  const MatrixXd system = x.transpose() * x + ridge * MatrixXd::Identity(6, 6);
  ExpectNear(Solve(factor, 6, 0), system.ldlt().solve(x.transpose() * y), 1e-12);
}

// Light rows say what heavy ones do not, to all of their digits, though they come first.
TEST(RowFactor, LightRowsKeepTheirDigits) {
  const VectorXd expected = Normal(6, 1, 1);
  MatrixXd x = Normal(9, 6, 2);
  for (Eigen::Index i = 0; i < 6; ++i) x.row(i) *= 1e-9;
  const RowFactor factor = FactorOf(x, x * expected);
  ASSERT_EQ(factor.rank(), 6);
  ExpectNear(Solve(factor, 6, 0), expected, 1e-11);
}

}  // namespace
}  // namespace ttr::linalg
