#include <gtest/gtest.h>

#include <Eigen/Dense>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>
#include <string>
#include <vector>

#include "src/memory/condition.h"
#include "tests/io/temp_folder.h"
#include "ttr/memory.h"
#include "ttr/util/random.h"

namespace ttr {
namespace {

using Numbers = std::vector<double>;
using Matrix = Eigen::MatrixXd;

constexpr double kEps = std::numeric_limits<double>::epsilon();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

double Scaled(const Matrix& a) {
  return ScaledCondition(Numbers(a.data(), a.data() + a.size()), a.rows());
}

// Right to n eps times itself, with room for the constants of both sides.
void ExpectCondition(double actual, double expected, std::int64_t n, const std::string& where) {
  EXPECT_NEAR(actual, expected, 16 * static_cast<double>(n) * kEps * expected * expected) << where;
}

// D A D with entries of D from 1e-100 to 1e100: what the scaling takes away again.
Matrix Rescaled(Matrix a) {
  for (Eigen::Index i = 0; i < a.rows(); ++i) {
    const double scale = std::pow(10, 100 * std::sin(static_cast<double>(7 * i)));
    a.row(i) *= scale;
    a.col(i) *= scale;
  }
  return a;
}

TEST(ScaledCondition, OfMatricesWithKnownEigenvalues) {
  for (const std::int64_t n : {1, 2, 3, 8, 33}) {
    const auto size = static_cast<double>(n);
    const std::string where = std::to_string(n);
    EXPECT_EQ(Scaled(Matrix::Identity(n, n)), 1) << where;
    for (const double rho : {.5, .999, 1 - 1e-6}) {
      // One value 1 + (n - 1) rho, all others 1 - rho.
      Matrix equal = Matrix::Constant(n, n, rho);
      equal.diagonal().setOnes();
      const double expected = n == 1 ? 1 : (1 + (size - 1) * rho) / (1 - rho);
      ExpectCondition(Scaled(equal), expected, n, where);
      ExpectCondition(Scaled(Rescaled(equal)), expected, n, where + ", rescaled");
      // 1 + rho cos(k pi / (n + 1)).
      Matrix chain = Matrix::Identity(n, n);
      chain.diagonal(1).setConstant(rho / 2);
      chain.diagonal(-1).setConstant(rho / 2);
      const double end = rho * std::cos(std::numbers::pi / (size + 1));
      ExpectCondition(Scaled(chain), (1 + end) / (1 - end), n, where);
    }
  }
}

TEST(ScaledCondition, AsEigenSays) {
  CounterRandom random(5);
  for (const std::int64_t n : {2, 5, 17, 64}) {
    for (const std::int64_t rows : {n, 2 * n, 10 * n}) {
      Matrix keys(rows, n);
      for (double& x : keys.reshaped()) x = random.Normal();
      const Matrix gram = keys.transpose() * keys;
      const Eigen::VectorXd scale = gram.diagonal().cwiseSqrt().cwiseInverse();
      const Eigen::SelfAdjointEigenSolver<Matrix> eigen(scale.asDiagonal() * gram *
                                                        scale.asDiagonal());
      ExpectCondition(Scaled(Rescaled(gram)),
                      eigen.eigenvalues().maxCoeff() / eigen.eigenvalues().minCoeff(), n,
                      std::to_string(n) + " of " + std::to_string(rows));
    }
  }
}

TEST(ScaledCondition, InfinityWhereThereIsNone) {
  EXPECT_EQ(Scaled(Matrix::Ones(4, 4)), kInfinity);
  EXPECT_EQ(Scaled(Matrix::Zero(1, 1)), kInfinity);
  Matrix a = Matrix::Identity(3, 3);
  a(1, 1) = 0;  // a channel never seen
  EXPECT_EQ(Scaled(a), kInfinity);
  a(1, 1) = -1;
  EXPECT_EQ(Scaled(a), kInfinity);
  a(1, 1) = 1;
  a(0, 2) = a(2, 0) = 1.5;  // indefinite
  EXPECT_EQ(Scaled(a), kInfinity);
  for (const double bad : {std::nan(""), kInfinity}) {
    for (const std::int64_t j : {0, 1}) {
      a = Matrix::Identity(3, 3);
      a(0, j) = a(j, 0) = bad;
      EXPECT_EQ(Scaled(a), kInfinity) << bad << " " << j;
    }
  }
}

// [1 rho; rho 1] over two pairs of length 1, rho the cosine between them.
TEST(Condition, IsThatOfTheMatrixThatIsSolvedWith) {
  const auto memory = [](const char* recipe) {
    AssociativeMemory filled(recipe, {.key_dim = 2, .value_dim = 1});
    filled.Memorize(Numbers{2, 0}, Numbers{1});
    filled.Memorize(Numbers{1, 1}, Numbers{1});
    return filled;
  };
  // H = [5 1; 1 1], plus its ridge on the diagonal.
  const auto expected = [](double ridge, double fade = 1) {
    const double a = 4 * fade + 1 + ridge;
    const double rho = 1 / std::sqrt(a * (1 + ridge));
    return (1 + rho) / (1 - rho);
  };
  EXPECT_NEAR(memory("rls{ridge: 0}").Condition(), expected(0), 1e-13);
  EXPECT_NEAR(memory("rls{ridge: 3}").Condition(), expected(3), 1e-13);
  EXPECT_NEAR(memory("weighted_rls{decay: 0.5, ridge: 4}").Condition(), expected(1, .5), 1e-13);
  EXPECT_NEAR(memory("decay(0.5) | linear | exact(ridge: 3, ridge_kind: constant)").Condition(),
              expected(3, .5), 1e-13);
  EXPECT_NEAR(memory("decay(0.5) | linear | exact(ridge: 2, ridge_kind: relative)").Condition(),
              expected(2 * std::sqrt(9. + 1 + 1 + 1), .5), 1e-13);
  EXPECT_NEAR(memory("batch_gd").Condition(), expected(0), 1e-13);
  EXPECT_NEAR(memory("batch_gd{ridge: 3}").Condition(), expected(3), 1e-13);
}

TEST(Condition, RidgeAsAGate) {
  AssociativeMemory memory("decay(0.5) | linear | exact(ridge_kind: constant)",
                           {.key_dim = 2, .value_dim = 1, .heads = 2});
  memory.Memorize(Numbers{1, 1, 1, 1}, Numbers{1, 1});
  EXPECT_EQ(memory.Condition(), kInfinity);
  // [1 + a, 1; 1, 1 + b]: the worse head counts.
  const auto expected = [](double a, double b) {
    const double rho = 1 / std::sqrt((1 + a) * (1 + b));
    return (1 + rho) / (1 - rho);
  };
  memory.SetGate("ridge", Numbers{1, 3});
  EXPECT_NEAR(memory.Condition(), expected(1, 1), 1e-14);
  memory.SetGate("ridge", Numbers{1, 2, 3, .1});
  EXPECT_NEAR(memory.Condition(), expected(3, .1), 1e-13);
}

TEST(Condition, SingularMemories) {
  const AssociativeMemory::Sizes sizes{.key_dim = 2, .value_dim = 1};
  EXPECT_EQ(AssociativeMemory("rls{ridge: 0.5}", sizes).Condition(), 1);
  EXPECT_EQ(AssociativeMemory("rls{ridge: 0}", sizes).Condition(), kInfinity);
  // One direction only, and a ridge that fades below it.
  AssociativeMemory fading("weighted_rls{decay: 0.5}", sizes);
  fading.Memorize(Numbers{1, 2}, Numbers{1});
  EXPECT_LT(fading.Condition(), 1e5);
  for (int t = 0; t < 60; ++t) fading.Memorize(Numbers{1, 2}, Numbers{1});
  EXPECT_EQ(fading.Condition(), kInfinity);
  Numbers y(1);
  EXPECT_EQ(fading.Retrieve(Numbers{1, 2}, y), Status::kRegularised);
  // A key that is no number.
  fading.Memorize(Numbers{1, std::nan("")}, Numbers{1});
  EXPECT_EQ(fading.Condition(), kInfinity);
  // The intercept has no ridge, but every pair has its 1.
  AssociativeMemory affine("affine_rls", sizes);
  EXPECT_EQ(affine.Condition(), kInfinity);
  affine.Memorize(Numbers{0, 0}, Numbers{1});
  EXPECT_EQ(affine.Condition(), 1);
}

TEST(Condition, OneWithoutAGramMatrix) {
  for (const char* recipe : {"linear_attention", "softmax", "kernel_ridge", "nlms"}) {
    AssociativeMemory memory(recipe, {.key_dim = 2, .value_dim = 1});
    EXPECT_EQ(memory.Condition(), 1) << recipe;
    memory.Memorize(Numbers{1, 2}, Numbers{std::nan("")});
    EXPECT_EQ(memory.Condition(), 1) << recipe;
  }
}

TEST(Condition, SavedWithTheMemory) {
  const test::TempFolder folder;
  AssociativeMemory memory("weighted_rls{decay: 0.9}", {.key_dim = 3, .value_dim = 1, .heads = 2});
  CounterRandom random(2);
  for (int t = 0; t < 20; ++t) {
    Numbers key(6);
    for (double& x : key) x = random.Normal();
    memory.Memorize(key, Numbers(2));
  }
  memory.Save(folder / "memory");
  EXPECT_GT(memory.Condition(), 1);
  EXPECT_EQ(AssociativeMemory::Load(folder / "memory").Condition(), memory.Condition());
}

}  // namespace
}  // namespace ttr
