// Least squares by rotations, beside an orthogonal decomposition of the rows themselves.
#include <gtest/gtest.h>

#include <Eigen/Dense>
#include <cmath>
#include <limits>
#include <vector>

#include "src/definition/memory.h"
#include "tests/definition/token.h"

namespace ttr::definition {
namespace {

constexpr double kEpsilon = std::numeric_limits<double>::epsilon();

Recipe Rotated(double ridge = 0, RidgeKind kind = RidgeKind::kFading) {
  Recipe recipe;
  recipe.optimizer.solver = Solver::kExact;
  recipe.optimizer.factor = Factor::kQr;
  recipe.optimizer.ridge = ridge;
  recipe.optimizer.ridge_kind = kind;
  return recipe;
}

Token Weighted(const Vector& k, const Vector& v, double log_decay, double importance) {
  Token token = Pair(k, v);
  token.log_decay = Vector::Constant(1, log_decay);
  token.importance = importance;
  return token;
}

/// The rows that a memory has seen, as a table of which each row is multiplied by the root of its
/// weight; those of a ridge are the first.
struct Table {
  Matrix k, v;

  Table(Eigen::Index keys, Eigen::Index values, double ridge)
      : k(std::sqrt(ridge) * Matrix::Identity(keys, keys)), v(Matrix::Zero(keys, values)) {}

  void Add(const Token& token) {
    const double fade = std::exp(token.log_decay(0) / 2), root = std::sqrt(token.importance);
    k *= fade;
    v *= fade;
    k.conservativeResize(k.rows() + 1, Eigen::NoChange);
    v.conservativeResize(v.rows() + 1, Eigen::NoChange);
    k.row(k.rows() - 1) = root * token.k.col(0).transpose();
    v.row(v.rows() - 1) = root * token.v.col(0).transpose();
  }
  /// M^T, of least norm.
  Matrix Fit() const { return Eigen::CompleteOrthogonalDecomposition<Matrix>(k).solve(v); }
};

TEST(RotatedLeastSquares, OnePairByHand) {
  // k = (2, 0), v = 6: M = (3, 0) is the smallest that recalls it; ridge 4 halves it.
  const Token token = Weighted(Column({2, 0}), Column({6}), 0, 1);
  const auto exact = MakeRotatedLeastSquares(Sized(Rotated(), 2, 1));
  exact->Write(token);
  EXPECT_NEAR(exact->Read(Column({1, 5})).y(0), 3, 1e-15);
  EXPECT_EQ(exact->Read(Column({1, 5})).status, Status::kRegularised);
  for (const RidgeKind kind : {RidgeKind::kFading, RidgeKind::kConstant}) {
    const auto ridged = MakeRotatedLeastSquares(Sized(Rotated(4, kind), 2, 1));
    ridged->Write(token);
    EXPECT_NEAR(ridged->Read(Column({1, 5})).y(0), 1.5, 1e-15);
    EXPECT_EQ(ridged->Read(Column({1, 5})).status, Status::kSolved);
  }
}

TEST(RotatedLeastSquares, EmptyMemoryAnswersZero) {
  const auto memory = MakeRotatedLeastSquares(Sized(Rotated(), 3, 2));
  EXPECT_EQ(memory->Read(Column({1, 2, 3})).y, Vector::Zero(2));
  EXPECT_EQ(memory->Read(Column({1, 2, 3})).status, Status::kRegularised);
}

// The error grows with the condition of the rows, not with its square.
TEST(RotatedLeastSquares, EveryPrefixIsTheFitOfItsRows) {
  for (const double ridge : {0., 1e-6, .5}) {
    Noise noise(1);
    const auto memory = MakeRotatedLeastSquares(Sized(Rotated(ridge), 5, 3));
    Table table(5, 3, ridge);
    for (int t = 0; t < 40; ++t) {
      Vector k = noise.Vec(5);
      k(3) = k(1) + 1e-5 * k(3);  // nearly the same
      const double weight = t % 7 == 3 ? 0 : noise.Uniform(.1, 10);
      const Token token = Weighted(k, noise.Vec(3), t < 20 ? 0 : -.1, weight);
      memory->Write(token);
      table.Add(token);
      const Vector q = noise.Vec(5), expected = table.Fit().transpose() * q;
      const Answer answer = memory->Read(q);
      EXPECT_LT(Gap(answer.y, expected), 1e7 * kEpsilon * (1 + expected.norm())) << t;
      const bool full = ridge > 0 || t >= 5;  // one of the first rows has no weight
      EXPECT_EQ(answer.status, full ? Status::kSolved : Status::kRegularised) << t;
    }
  }
}

TEST(RotatedLeastSquares, TheStateIsATriangleOfTheRows) {
  Noise noise(2);
  const auto memory = MakeRotatedLeastSquares(Sized(Rotated(.25), 4, 2));
  Table table(4, 2, .25);
  for (int t = 0; t < 30; ++t) {
    const Token token = Weighted(noise.Vec(4), noise.Vec(2), -.05, noise.Uniform(0, 2));
    memory->Write(token);
    table.Add(token);
  }
  const Arrays state = memory->Save();
  const Matrix r = state.at("state.r").matrix(), w = state.at("state").matrix();
  const Matrix l = r.triangularView<Eigen::UnitLower>();
  const Vector d = r.diagonal();
  EXPECT_EQ(Matrix(r.triangularView<Eigen::StrictlyUpper>()), Matrix(Matrix::Zero(4, 4)));
  EXPECT_LT(Gap(l.transpose() * d.asDiagonal() * l, table.k.transpose() * table.k), 1e-13);
  EXPECT_LT(Gap(l.transpose() * d.asDiagonal() * w, table.k.transpose() * table.v), 1e-13);
  const Matrix left = table.v - table.k * table.Fit();
  EXPECT_LT(Gap(state.at("state.rss").vector(), left.colwise().squaredNorm().transpose()), 1e-13);
}

// The last channel, a 1, is rotated first: its row has the weighted means.
TEST(RotatedLeastSquares, TheRowOfAOneHasTheMeans) {
  Noise noise(3);
  const auto memory = MakeRotatedLeastSquares(Sized(Rotated(), 3, 1));
  double weights = 0;
  Vector sum = Vector::Zero(3);
  for (int t = 0; t < 25; ++t) {
    const double weight = noise.Uniform(.5, 2);
    const Vector x = noise.Vec(2), y = noise.Vec(1);
    memory->Write(Weighted(Column({x(0), x(1), 1}), y, 0, weight));
    weights += weight;
    sum += weight * Column({x(0), x(1), y(0)});
  }
  const Arrays state = memory->Save();
  const Vector means = sum / weights;
  const Matrix r = state.at("state.r").matrix();
  EXPECT_LT(Gap(r.row(2).transpose(), Column({means(0), means(1), weights})), 1e-13);
  EXPECT_NEAR(state.at("state").matrix()(2, 0), means(2), 1e-14);
}

// Rows of a triangle, each of the weight D, are rows as any other: what two memories have seen.
TEST(RotatedLeastSquares, TwoStatesAreOneByRotations) {
  Noise noise(4);
  const Constants sizes = Sized(Rotated(), 4, 2);
  const auto first = MakeRotatedLeastSquares(sizes), second = MakeRotatedLeastSquares(sizes),
             whole = MakeRotatedLeastSquares(sizes);
  for (int t = 0; t < 40; ++t) {
    const Token token = Weighted(noise.Vec(4), noise.Vec(2), 0, noise.Uniform(0, 2));
    (t < 15 ? first : second)->Write(token);
    whole->Write(token);
  }
  const Arrays later = second->Save();
  const Matrix r = later.at("state.r").matrix(), w = later.at("state").matrix();
  for (Eigen::Index i = 0; i < 4; ++i) {
    Vector k = r.row(i).transpose();
    k.tail(4 - i).setZero();
    k(i) = 1;
    first->Write(Weighted(k, w.row(i).transpose(), 0, r(i, i)));
  }
  for (int i = 0; i < 5; ++i) {
    const Vector q = noise.Vec(4);
    EXPECT_LT(Gap(first->Read(q).y, whole->Read(q).y), 1e-13);
  }
  const Vector rss = first->Save().at("state.rss").vector() + later.at("state.rss").vector();
  EXPECT_LT(Gap(rss, whole->Save().at("state.rss").vector()), 1e-12);
}

}  // namespace
}  // namespace ttr::definition
