#include <gtest/gtest.h>

#include <Eigen/Cholesky>
#include <Eigen/LU>
#include <cmath>
#include <limits>
#include <vector>

#include "src/definition/memory.h"
#include "tests/definition/token.h"

namespace ttr::definition {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

Recipe Polynomial(std::int64_t degree, Similarity similarity, double ridge) {
  Recipe recipe;
  recipe.similarity = similarity;
  recipe.function.kind = FunctionClass::kPolynomial;
  recipe.function.degree = degree;
  recipe.optimizer.solver = Solver::kExact;
  recipe.optimizer.ridge = ridge;
  return recipe;
}

constexpr Similarity kGaussian{Kernel::kGaussian, 4};
constexpr Similarity kSoftmax{Kernel::kExponential, 0};

/// Pairs beside the memory that memorizes them.
struct Written {
  Written(const Recipe& recipe, int dk, int dv)
      : similarity(recipe.similarity), memory(MakeLocalPolynomial(Sized(recipe, dk, dv))) {}

  void Write(const Vector& key, const Vector& value) {
    k.conservativeResize(k.rows() + 1, key.size());
    v.conservativeResize(v.rows() + 1, value.size());
    k.bottomRows(1) = key.transpose();
    v.bottomRows(1) = value.transpose();
    memory->Write(Pair(key, value));
  }

  /// s(k_i, q) / sum_j s(k_j, q)
  Vector Weights(const Vector& q) const {
    Vector p(k.rows());
    for (Eigen::Index i = 0; i < k.rows(); ++i) {
      p(i) = EvaluateKernel(similarity, 1, k.row(i).transpose(), q);
    }
    return p / p.sum();
  }

  Similarity similarity;
  std::unique_ptr<Memory> memory;
  Matrix k = Matrix(0, 0);
  Matrix v = Matrix(0, 0);
};

TEST(LocalPolynomial, TwoPointsByHand) {
  // A line through (0, 1) and (2, 5) holds 2 at 1/2, whatever the weights.
  Written line(Polynomial(1, kGaussian, 0), 1, 1);
  line.Write(Column({0}), Column({1}));
  EXPECT_EQ(line.memory->Read(Column({.5})).y(0), 1);  // one point: slope 0
  EXPECT_EQ(line.memory->Read(Column({.5})).status, Status::kRegularised);
  line.Write(Column({2}), Column({5}));
  const Answer answer = line.memory->Read(Column({.5}));
  EXPECT_NEAR(answer.y(0), 2, 1e-14);
  EXPECT_EQ(answer.status, Status::kSolved);
}

TEST(LocalPolynomial, RidgeOnTheSlopeByHand) {
  // Keys -1, 1 around q = 0 of equal weight 1/2, values 0, 2: by symmetry c = 1. Around q = -1 with
  // Laplace weights p = (1, s) / (1 + s), d = (0, 2): centred slope = cov / (var + ridge).
  Written line(Polynomial(1, {Kernel::kLaplace, 1}, .5), 1, 1);
  line.Write(Column({-1}), Column({0}));
  line.Write(Column({1}), Column({2}));
  EXPECT_NEAR(line.memory->Read(Column({0})).y(0), 1, 1e-15);
  const double p = std::exp(-2.) / (1 + std::exp(-2.));
  const double cov = p * (1 - p) * 4;  // of d and v; also the variance of d
  EXPECT_NEAR(line.memory->Read(Column({-1})).y(0), 2 * p - cov / (cov + .5) * 2 * p, 1e-14);
}

TEST(LocalPolynomial, ReproducesPolynomialsOfItsDegree) {
  // Without ridge and with points enough the fit of a polynomial of degree p is that polynomial.
  for (const std::int64_t degree : {1, 2, 3, 4}) {
    const auto polynomial = [degree](const Vector& x) {
      const double a = x(0) - .5 * x(1);
      const double b = .3 * x(0) + x(1) - 1;
      return Column({std::pow(a, degree) + 2 * b, std::pow(a, degree - 1) * b - 3});
    };
    Noise noise(1);
    Written memory(Polynomial(degree, kGaussian, 0), 2, 2);
    for (int t = 0; t < 30; ++t) {
      const Vector k = noise.Vec(2);
      memory.Write(k, polynomial(k));
    }
    for (int i = 0; i < 5; ++i) {
      const Vector q = noise.Vec(2);
      const Answer answer = memory.memory->Read(q);
      EXPECT_LT(Gap(answer.y, polynomial(q)), 1e-11) << degree;
      EXPECT_EQ(answer.status, Status::kSolved);
    }
    // One degree less is not enough.
    Written lower(Polynomial(std::max<std::int64_t>(1, degree - 1), kGaussian, .5), 2, 2);
    for (Eigen::Index i = 0; i < memory.k.rows(); ++i) {
      lower.Write(memory.k.row(i).transpose(), memory.v.row(i).transpose());
    }
    EXPECT_GT(Gap(lower.memory->Read(Column({1, -1})).y, polynomial(Column({1, -1}))), 1e-3);
  }
}

TEST(LocalPolynomial, QuadraticIsTheFitOfItsMonomials) {
  // The normal equations over [1, d1, d2, d1 d1, d1 d2, d2 d2], ridge on all but the first.
  Noise noise(2);
  const double ridge = .3;
  Written memory(Polynomial(2, kGaussian, ridge), 2, 3);
  for (int t = 0; t < 12; ++t) {
    memory.Write(noise.Vec(2), noise.Vec(3));
    const Vector q = noise.Vec(2);
    Matrix x(memory.k.rows(), 6);
    for (Eigen::Index i = 0; i < x.rows(); ++i) {
      const double a = memory.k(i, 0) - q(0);
      const double b = memory.k(i, 1) - q(1);
      x.row(i) << 1, a, b, a * a, a * b, b * b;
    }
    const Matrix w = memory.Weights(q).asDiagonal();
    Matrix normal = x.transpose() * w * x;
    normal.diagonal().tail(5).array() += ridge;
    const Matrix right = x.transpose() * w * memory.v;
    const Matrix coefficients = normal.fullPivLu().solve(right);
    EXPECT_LT(Gap(memory.memory->Read(q).y, coefficients.row(0).transpose()), 1e-12) << t;
  }
}

TEST(LocalPolynomial, LinearIsTheFormulaOfThePaper) {
  // [c M] = (V^T W X)(X^T W X)^-1 with the raw weights W = diag(s), rows of X = [1, k - q].
  Noise noise(3);
  Written memory(Polynomial(1, kSoftmax, 0), 3, 2);
  for (int t = 0; t < 10; ++t) {
    memory.Write(noise.Vec(3), noise.Vec(2));
    if (t < 4) continue;
    const Vector q = noise.Vec(3);
    Matrix x(memory.k.rows(), 4);
    x.col(0).setOnes();
    x.rightCols(3) = memory.k.rowwise() - q.transpose();
    Vector s(memory.k.rows());
    for (Eigen::Index i = 0; i < s.size(); ++i) {
      s(i) = std::exp(memory.k.row(i).dot(q));
    }
    const Matrix normal = x.transpose() * s.asDiagonal() * x;
    const Matrix m = memory.v.transpose() * s.asDiagonal() * x * normal.inverse();
    EXPECT_LT(Gap(memory.memory->Read(q).y, m.col(0)), 1e-8) << t;
  }
}

TEST(LocalPolynomial, LinearHasAnAlternativeForm) {
  // z = (Sigma + ridge I)^-1 (q - k_bar),  y = sum_i p_i (1 + (k_i - k_bar)^T z) v_i
  for (const Similarity& similarity : {kSoftmax, kGaussian}) {
    Noise noise(4);
    const double ridge = .2;
    Written memory(Polynomial(1, similarity, ridge), 4, 3);
    for (int t = 0; t < 12; ++t) {
      memory.Write(noise.Vec(4), noise.Vec(3));
      const Vector q = noise.Vec(4);
      const Vector p = memory.Weights(q);
      const Vector mean = memory.k.transpose() * p;
      const Matrix centred = memory.k.rowwise() - mean.transpose();
      Matrix sigma = centred.transpose() * p.asDiagonal() * centred;
      sigma.diagonal().array() += ridge;
      const Vector z = sigma.llt().solve(q - mean);
      const Vector share = p.cwiseProduct((centred * z).array().matrix() + Vector::Ones(p.size()));
      EXPECT_LT(Gap(memory.memory->Read(q).y, memory.v.transpose() * share), 1e-13);
    }
  }
}

TEST(LocalPolynomial, InfiniteRidgeIsTheSmoother) {
  for (const std::int64_t degree : {1, 2, 3}) {
    Recipe constant = Polynomial(1, kSoftmax, 0);
    constant.function = {.kind = FunctionClass::kConstant};
    const auto softmax = MakeKernelSmoother(Sized(constant, 2, 2));
    const auto stiff = MakeLocalPolynomial(Sized(Polynomial(degree, kSoftmax, 1e15), 2, 2));
    Noise noise(5);
    for (int t = 0; t < 10; ++t) {
      const Token token = Pair(noise.Vec(2), noise.Vec(2));
      softmax->Write(token);
      stiff->Write(token);
      const Vector q = noise.Vec(2);
      EXPECT_LT(Gap(softmax->Read(q).y, stiff->Read(q).y), 1e-12);
    }
  }
}

TEST(LocalPolynomial, FewPointsTakeTheSmallestSlopes) {
  // The limit of a vanishing ridge.
  for (const std::int64_t degree : {1, 2}) {
    Written exact(Polynomial(degree, kGaussian, 0), 3, 2);
    Written limit(Polynomial(degree, kGaussian, 1e-10), 3, 2);
    Noise noise(6);
    for (int t = 0; t < 3; ++t) {
      const Vector k = noise.Vec(3);
      const Vector v = noise.Vec(2);
      exact.Write(k, v);
      limit.Write(k, v);
      const Vector q = noise.Vec(3);
      const Answer answer = exact.memory->Read(q);
      EXPECT_EQ(answer.status, Status::kRegularised);
      EXPECT_LT(Gap(answer.y, limit.memory->Read(q).y), 1e-7);
      EXPECT_LT(Gap(exact.memory->Read(k).y, v), 1e-12);  // interpolates what it has
    }
  }
}

TEST(LocalPolynomial, ShiftOfAllKeysAndTheQueryChangesNothing) {
  Noise noise(7);
  const Vector shift = Column({1e4, -1e4});
  Written near(Polynomial(2, kGaussian, .01), 2, 2);
  Written far(Polynomial(2, kGaussian, .01), 2, 2);
  for (int t = 0; t < 10; ++t) {
    const Vector k = noise.Vec(2);
    const Vector v = noise.Vec(2);
    near.Write(k, v);
    far.Write(k + shift, v);
    const Vector q = noise.Vec(2);
    // Keys of size 1e4 are given to 1e-12 of their differences.
    EXPECT_LT(Gap(near.memory->Read(q).y, far.memory->Read(q + shift).y), 1e-9);
  }
}

TEST(LocalPolynomial, NoNeighbourIsSaidAndAHitIsExact) {
  const auto compact = MakeLocalPolynomial(Sized(Polynomial(1, {Kernel::kBiweight, 1}, 0), 1, 2));
  EXPECT_EQ(compact->Read(Column({0})).status, Status::kSingular);
  compact->Write(Pair(Column({3}), Column({1, kNaN})));
  EXPECT_EQ(compact->Read(Column({0})).y, Vector::Zero(2));
  EXPECT_EQ(compact->Read(Column({0})).status, Status::kSingular);
  compact->Write(Pair(Column({.5}), Column({1, 2})));
  EXPECT_EQ(compact->Read(Column({0})).y, Column({1, 2}));

  const auto inverse =
      MakeLocalPolynomial(Sized(Polynomial(1, {Kernel::kInverseDistance, 0}, .1), 1, 1));
  for (const double k : {0., 1., 3.}) inverse->Write(Pair(Column({k}), Column({k * k})));
  EXPECT_EQ(inverse->Read(Column({3})).y(0), 9);
  EXPECT_EQ(inverse->Read(Column({3})).status, Status::kSolved);
}

TEST(LocalPolynomial, NaNReachesWhatDependsOnIt) {
  Recipe recipe = Polynomial(1, kGaussian, .1);
  recipe.weights.decay = Decay::kScalar;
  const auto memory = MakeLocalPolynomial(Sized(recipe, 1, 2));
  Token token = Pair(Column({0}), Column({1, 2}));
  token.log_decay = Vector::Zero(1);
  memory->Write(token);
  token.v(1) = kNaN;
  token.k(0) = 1;
  memory->Write(token);
  EXPECT_EQ(memory->Read(Column({.5})).y(0), 1);
  EXPECT_TRUE(std::isnan(memory->Read(Column({.5})).y(1)));
  token.k(0) = kNaN;
  memory->Write(token);
  EXPECT_TRUE(memory->Read(Column({.5})).y.array().isNaN().all());
  token = Pair(Column({0}), Column({5, 6}));
  token.log_decay = Vector::Constant(1, -kInfinity);
  memory->Write(token);
  EXPECT_EQ(memory->Read(Column({.5})).y, Column({5, 6}));
}

TEST(LocalPolynomial, SplitIsWhole) {
  Recipe recipe = Polynomial(2, kSoftmax, .1);
  recipe.weights.decay = Decay::kScalar;
  recipe.weights.window = 6;
  const auto whole = MakeLocalPolynomial(Sized(recipe, 2, 2));
  auto split = MakeLocalPolynomial(Sized(recipe, 2, 2));
  Noise noise(8);
  for (int t = 0; t < 9; ++t) {
    auto resumed = MakeLocalPolynomial(Sized(recipe, 2, 2));
    resumed->Load(split->Save());
    split = std::move(resumed);
    Token token = Pair(noise.Vec(2), noise.Vec(2));
    token.log_decay = Vector::Constant(1, -.3);
    whole->Write(token);
    split->Write(token);
    const Vector q = noise.Vec(2);
    EXPECT_EQ(whole->Read(q).y, split->Read(q).y);
  }
}

}  // namespace
}  // namespace ttr::definition
