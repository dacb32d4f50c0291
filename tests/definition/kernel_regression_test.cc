#include <gtest/gtest.h>

#include <Eigen/Cholesky>
#include <cmath>
#include <limits>
#include <vector>

#include "src/definition/memory.h"
#include "tests/definition/token.h"

namespace ttr::definition {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

Recipe Regression(Kernel kernel, double bandwidth, double ridge) {
  Recipe recipe;
  recipe.similarity = {kernel, bandwidth};
  recipe.function.kind = FunctionClass::kKernel;
  recipe.optimizer.solver = Solver::kExact;
  recipe.optimizer.ridge = ridge;
  return recipe;
}

Token Weighted(const Vector& k, const Vector& v, double log_decay, double importance) {
  Token token = Pair(k, v);
  token.log_decay = Vector::Constant(1, log_decay);
  token.importance = importance;
  return token;
}

/// k(K, X), one row a key.
Matrix Kernels(const Similarity& similarity, const Matrix& k, const Matrix& x) {
  Matrix s(k.rows(), x.rows());
  for (Eigen::Index i = 0; i < k.rows(); ++i) {
    for (Eigen::Index j = 0; j < x.rows(); ++j) {
      s(i, j) = EvaluateKernel(similarity, 1, k.row(i).transpose(), x.row(j).transpose());
    }
  }
  return s;
}

TEST(KernelRegression, ByHand) {
  // Gaussian of bandwidth 1: keys 0 and 1 see each other with s = 1/e. Ridge 1:
  // [2 s; s 2] alpha = (3, 6): alpha = (6 - 6 s, 12 - 3 s) / (4 - s^2).
  const auto memory = MakeKernelRegression(Sized(Regression(Kernel::kGaussian, 1, 1), 1, 1));
  memory->Write(Pair(Column({0}), Column({3})));
  memory->Write(Pair(Column({1}), Column({6})));
  const double s = std::exp(-1.);
  const Answer answer = memory->Read(Column({0}));
  EXPECT_NEAR(answer.y(0), ((6 - 6 * s) + s * (12 - 3 * s)) / (4 - s * s), 1e-14);
  EXPECT_EQ(answer.status, Status::kSolved);
}

TEST(KernelRegression, EmptyMemoryAnswersZero) {
  const auto memory = MakeKernelRegression(Sized(Regression(Kernel::kGaussian, 1, 1), 2, 3));
  EXPECT_EQ(memory->Read(Column({1, 2})).y, Vector::Zero(3));
}

TEST(KernelRegression, AllPrefixesFromOneCholeskyFactor) {
  // L = chol(k(K,K) + ridge I), E = L^-1 V, Z = L^-1 k(K,Q), Y = tril(Z^T) E.
  const int t = 14;
  Noise noise(1);
  const Recipe recipe = Regression(Kernel::kLaplace, 2, .1);
  const Matrix k = noise.Mat(t, 3);
  const Matrix q = noise.Mat(t, 3);
  const Matrix v = noise.Mat(t, 2);
  Matrix gram = Kernels(recipe.similarity, k, k);
  gram.diagonal().array() += .1;
  const Matrix l = gram.llt().matrixL();
  const Matrix e = l.triangularView<Eigen::Lower>().solve(v);
  const Matrix z = l.triangularView<Eigen::Lower>().solve(Kernels(recipe.similarity, k, q));
  const Matrix scores = z.transpose().triangularView<Eigen::Lower>();
  const Matrix y = scores * e;
  const auto memory = MakeKernelRegression(Sized(recipe, 3, 2));
  for (int i = 0; i < t; ++i) {
    memory->Write(Pair(k.row(i).transpose(), v.row(i).transpose()));
    EXPECT_LT(Gap(memory->Read(q.row(i).transpose()).y, y.row(i).transpose()), 1e-13);
  }
}

TEST(KernelRegression, IsLeastSquaresOnTheFeaturesOfItsKernel) {
  // In one dimension exp(k q) = sum_n phi_n(k) phi_n(q), phi_n(x) = x^n / sqrt(n!): ridge
  // regression on phi, that is optimal nonlinear memory, is the same function.
  Noise noise(2);
  static constexpr int kFeatures = 30;  // the rest is below 1e-20 for |x| <= 1
  const auto phi = [](double x) {
    Vector f = Vector::Zero(kFeatures);
    f(0) = 1;
    for (int n = 1; n < kFeatures; ++n) f(n) = f(n - 1) * x / std::sqrt(n);
    return f;
  };
  Recipe recipe = Regression(Kernel::kExponential, 0, .05);
  recipe.weights.decay = Decay::kScalar;
  const auto kernel = MakeKernelRegression(Sized(recipe, 1, 2));
  Recipe linear;
  linear.optimizer.solver = Solver::kExact;
  linear.optimizer.ridge = .05;
  linear.optimizer.ridge_kind = RidgeKind::kConstant;
  linear.weights.decay = Decay::kScalar;
  const auto least_squares = MakeLeastSquares(Sized(linear, kFeatures, 2));
  for (int t = 0; t < 10; ++t) {
    const double k = noise.Uniform(-1, 1);
    const Vector v = noise.Vec(2);
    const double decay = -noise.Uniform(0, .5);
    const double importance = noise.Uniform(.3, 2);
    kernel->Write(Weighted(Column({k}), v, decay, importance));
    least_squares->Write(Weighted(phi(k), v, decay, importance));
    const double q = noise.Uniform(-1, 1);
    EXPECT_LT(Gap(kernel->Read(Column({q})).y, least_squares->Read(phi(q)).y), 1e-11);
  }
}

TEST(KernelRegression, WithoutRidgeInterpolates) {
  Noise noise(3);
  const auto memory = MakeKernelRegression(Sized(Regression(Kernel::kGaussian, 1, 0), 2, 2));
  std::vector<Token> tokens;
  for (int t = 0; t < 6; ++t) {
    tokens.push_back(Pair(3 * noise.Vec(2), noise.Vec(2)));
    memory->Write(tokens.back());
    for (const Token& token : tokens) {
      EXPECT_LT(Gap(memory->Read(token.k).y, token.v), 1e-10);
    }
  }
}

TEST(KernelRegression, RepeatedKeysAreAveragedByWeightAndReported) {
  const auto memory = MakeKernelRegression(Sized(Regression(Kernel::kGaussian, 1, 0), 1, 1));
  memory->Write(Weighted(Column({2}), Column({1}), 0, 1));
  EXPECT_EQ(memory->Read(Column({2})).status, Status::kSolved);
  memory->Write(Weighted(Column({2}), Column({5}), 0, 3));
  const Answer answer = memory->Read(Column({2}));
  EXPECT_NEAR(answer.y(0), 4, 1e-13);
  EXPECT_EQ(answer.status, Status::kRegularised);
}

TEST(KernelRegression, PairsWithoutWeightDropOut) {
  for (const double ridge : {0., .5}) {
    Recipe recipe = Regression(Kernel::kGaussian, 2, ridge);
    recipe.weights.decay = Decay::kScalar;
    const auto all = MakeKernelRegression(Sized(recipe, 1, 1));
    const auto few = MakeKernelRegression(Sized(recipe, 1, 1));
    all->Write(Weighted(Column({0}), Column({kNaN}), 0, 1));
    all->Write(Weighted(Column({kNaN}), Column({7}), 0, 1));
    EXPECT_TRUE(std::isnan(all->Read(Column({0})).y(0)));
    for (const double k : {1., 2.5, 3.}) {
      const Token token = Weighted(Column({k}), Column({k * k}), k == 1 ? -kInfinity : -.1, 1);
      all->Write(token);
      few->Write(token);
      all->Write(Weighted(Column({kNaN}), Column({kNaN}), 0, 0));
      EXPECT_NEAR(all->Read(Column({2})).y(0), few->Read(Column({2})).y(0), 1e-14);
    }
  }
}

TEST(KernelRegression, FadedWeightsStayFinite) {
  Recipe recipe = Regression(Kernel::kGaussian, 2, .1);
  recipe.weights.decay = Decay::kScalar;
  const auto memory = MakeKernelRegression(Sized(recipe, 1, 1));
  for (int t = 0; t < 30; ++t) memory->Write(Weighted(Column({.1 * t}), Column({1}), -70, 1));
  // Only the last pair counts: s v / (1 + ridge).
  EXPECT_NEAR(memory->Read(Column({2.9})).y(0), 1 / 1.1, 1e-14);
}

TEST(KernelRegression, SplitIsWhole) {
  Recipe recipe = Regression(Kernel::kGaussian, 2, .1);
  recipe.weights.importance = Importance::kInput;
  recipe.weights.window = 5;
  const auto whole = MakeKernelRegression(Sized(recipe, 2, 2));
  auto split = MakeKernelRegression(Sized(recipe, 2, 2));
  Noise noise(5);
  for (int t = 0; t < 8; ++t) {
    auto resumed = MakeKernelRegression(Sized(recipe, 2, 2));
    resumed->Load(split->Save());
    split = std::move(resumed);
    Token token = Pair(noise.Vec(2), noise.Vec(2));
    token.importance = noise.Uniform(.5, 2);
    whole->Write(token);
    split->Write(token);
    const Vector q = noise.Vec(2);
    EXPECT_EQ(whole->Read(q).y, split->Read(q).y);
  }
}

}  // namespace
}  // namespace ttr::definition
