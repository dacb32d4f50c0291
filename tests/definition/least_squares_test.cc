#include <gtest/gtest.h>

#include <Eigen/Dense>
#include <cmath>
#include <limits>
#include <vector>

#include "src/definition/memory.h"
#include "src/definition/symmetric.h"
#include "tests/definition/token.h"

namespace ttr::definition {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kEpsilon = std::numeric_limits<double>::epsilon();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

Recipe Exact(double ridge = 0, RidgeKind kind = RidgeKind::kFading) {
  Recipe recipe;
  recipe.optimizer.solver = Solver::kExact;
  recipe.optimizer.ridge = ridge;
  recipe.optimizer.ridge_kind = kind;
  return recipe;
}

Token Weighted(const Vector& k, const Vector& v, double log_decay, double importance = 1) {
  Token token = Pair(k, v);
  token.log_decay = Vector::Constant(1, log_decay);
  token.importance = importance;
  return token;
}

/// The regression as data, one row a pair, solved by an orthogonal decomposition of the keys
/// themselves rather than of their Gram matrix: y = V^T (K^+)^T q.
struct Data {
  Matrix k;       // t x Dk
  Matrix v;       // t x Dv
  Vector weight;  // t

  void Add(const Token& token) {
    if (token.log_decay.size() > 0) weight *= std::exp(token.log_decay(0));
    const Eigen::Index t = k.rows();
    k.conservativeResize(t + 1, token.k.rows());
    v.conservativeResize(t + 1, token.v.rows());
    weight.conservativeResize(t + 1);
    k.row(t) = token.k.col(0).transpose();
    v.row(t) = token.v.col(0).transpose();
    weight(t) = token.importance;
  }

  Vector MinimumNorm(const Vector& q) const {
    const Matrix root = weight.cwiseSqrt().asDiagonal();
    return Ridge(q, root * k, root * v);
  }

  /// min sum w |v - M k|^2 + sum_c ridge_c |M_c|^2, the ridge as further rows of data.
  Vector Ridged(const Vector& q, const Vector& ridge) const {
    const Matrix root = weight.cwiseSqrt().asDiagonal();
    Matrix x(k.rows() + ridge.size(), k.cols());
    Matrix y = Matrix::Zero(x.rows(), v.cols());
    x << root * k, Matrix(ridge.cwiseSqrt().asDiagonal());
    y.topRows(v.rows()) = root * v;
    return Ridge(q, x, y);
  }

  static Vector Ridge(const Vector& q, const Matrix& x, const Matrix& y) {
    return Eigen::CompleteOrthogonalDecomposition<Matrix>(x).solve(y).transpose() * q;
  }
};

TEST(LeastSquares, OnePairByHand) {
  // k = (2, 0), v = 6: M = (3, 0) is the smallest that recalls it; ridge 4 halves it.
  const Token token = Pair(Column({2, 0}), Column({6}));
  const auto exact = MakeLeastSquares(Sized(Exact(), 2, 1));
  exact->Write(token);
  const Answer answer = exact->Read(Column({1, 5}));
  EXPECT_NEAR(answer.y(0), 3, 1e-15);
  EXPECT_EQ(answer.status, Status::kRegularised);

  const auto ridged = MakeLeastSquares(Sized(Exact(4), 2, 1));
  ridged->Write(token);
  EXPECT_NEAR(ridged->Read(Column({1, 5})).y(0), 1.5, 1e-15);
  EXPECT_EQ(ridged->Read(Column({1, 5})).status, Status::kSolved);
}

TEST(LeastSquares, TwoPairsByHand) {
  // A = [2 1; 1 1], B = (5, 3): A^-1 = [1 -1; -1 2], M = (2, 1).
  const auto memory = MakeLeastSquares(Sized(Exact(), 2, 1));
  memory->Write(Pair(Column({1, 1}), Column({3})));
  memory->Write(Pair(Column({1, 0}), Column({2})));
  const Answer answer = memory->Read(Column({10, 100}));
  EXPECT_NEAR(answer.y(0), 120, 1e-12);
  EXPECT_EQ(answer.status, Status::kSolved);
}

TEST(LeastSquares, EmptyMemoryAnswersZero) {
  const auto memory = MakeLeastSquares(Sized(Exact(), 3, 2));
  const Answer answer = memory->Read(Column({1, 2, 3}));
  EXPECT_EQ(answer.y, Vector::Zero(2));
  EXPECT_EQ(answer.status, Status::kRegularised);
}

TEST(LeastSquares, EveryPrefixIsThePseudoInverse) {
  Noise noise(1);
  const auto memory = MakeLeastSquares(Sized(Exact(), 5, 3));
  Data data;
  for (int t = 0; t < 20; ++t) {
    const Token token = Pair(noise.Vec(5), noise.Vec(3));
    memory->Write(token);
    data.Add(token);
    const Vector q = noise.Vec(5);
    const Answer answer = memory->Read(q);
    // The normal equations square the condition of the keys.
    const Eigen::JacobiSVD<Matrix> svd(data.k);
    const Vector& sigma = svd.singularValues();
    const double condition = std::pow(sigma(0) / sigma(sigma.size() - 1), 2);
    const Vector expected = data.MinimumNorm(q);
    EXPECT_LT(Gap(answer.y, expected), 10 * kEpsilon * condition * (1 + expected.norm())) << t;
    EXPECT_EQ(answer.status, t < 4 ? Status::kRegularised : Status::kSolved) << t;
  }
}

TEST(LeastSquares, WeightsAreThoseOfTheRegression) {
  Noise noise(2);
  Recipe recipe = Exact(.3, RidgeKind::kConstant);
  recipe.weights.decay = Decay::kScalar;
  const auto constant = MakeLeastSquares(Sized(recipe, 4, 2));
  recipe.optimizer.ridge_kind = RidgeKind::kFading;
  const auto fading = MakeLeastSquares(Sized(recipe, 4, 2));
  recipe.optimizer.ridge_kind = RidgeKind::kRelative;
  const auto relative = MakeLeastSquares(Sized(recipe, 4, 2));
  recipe.optimizer.ridge = 0;
  const auto none = MakeLeastSquares(Sized(recipe, 4, 2));
  Data data;
  double faded = .3;
  for (int t = 0; t < 25; ++t) {
    const Token token =
        Weighted(noise.Vec(4), noise.Vec(2), -noise.Uniform(0, .5), noise.Uniform(.1, 2));
    for (Memory* memory : {constant.get(), fading.get(), relative.get(), none.get()}) {
      memory->Write(token);
    }
    data.Add(token);
    faded *= std::exp(token.log_decay(0));
    const Vector q = noise.Vec(4);
    const Matrix h = data.k.transpose() * data.weight.asDiagonal() * data.k;
    EXPECT_LT(Gap(constant->Read(q).y, data.Ridged(q, Vector::Constant(4, .3))), 1e-12);
    EXPECT_LT(Gap(fading->Read(q).y, data.Ridged(q, Vector::Constant(4, faded))), 1e-12);
    EXPECT_LT(Gap(relative->Read(q).y, data.Ridged(q, Vector::Constant(4, .3 * h.norm()))), 1e-12);
    EXPECT_LT(Gap(none->Read(q).y, data.MinimumNorm(q)), 1e-9);
  }
}

TEST(LeastSquares, RidgeOfEveryChannelAndNoneOnTheIntercept) {
  Noise noise(3);
  Constants constants = Sized(Exact(0, RidgeKind::kConstant), 3, 2);
  constants.ridge = Column({.5, 2, 0});
  const auto memory = MakeLeastSquares(constants);
  Data data;
  for (int t = 0; t < 6; ++t) {
    Vector k = noise.Vec(3);
    k(2) = 1;
    const Token token = Pair(k, noise.Vec(2));
    memory->Write(token);
    data.Add(token);
    const Vector q = noise.Vec(3);
    EXPECT_LT(Gap(memory->Read(q).y, data.Ridged(q, constants.ridge)), 1e-12);
  }
}

TEST(LeastSquares, WeightOfUnderdeterminedPairsIsIrrelevant) {
  // Vignette 2: all pairs are interpolated, whatever their weights.
  Noise noise(4);
  Recipe recipe = Exact();
  recipe.weights.decay = Decay::kScalar;
  const auto memory = MakeLeastSquares(Sized(recipe, 6, 2));
  Data data;
  for (int t = 0; t < 4; ++t) {
    const Token token = Weighted(noise.Vec(6), noise.Vec(2), -.5);
    memory->Write(token);
    data.Add(token);
  }
  data.weight.setOnes();
  const Vector q = noise.Vec(6);
  EXPECT_LT(Gap(memory->Read(q).y, data.MinimumNorm(q)), 1e-12);
  EXPECT_LT(Gap(memory->Read(data.k.row(0).transpose()).y, data.v.row(0).transpose()), 1e-12);
}

TEST(LeastSquares, ChannelsOfTinyKeysAreNotTakenForMissing) {
  Noise noise(5);
  const Vector size = Column({1e-9, 1, 1e9});
  const auto memory = MakeLeastSquares(Sized(Exact(), 3, 1));
  const Vector m = noise.Vec(3).cwiseQuotient(size);
  for (int t = 0; t < 8; ++t) {
    const Vector k = noise.Vec(3).cwiseProduct(size);
    memory->Write(Pair(k, Vector::Constant(1, m.dot(k))));
  }
  const Vector q = noise.Vec(3).cwiseProduct(size);
  const Answer answer = memory->Read(q);
  EXPECT_EQ(answer.status, Status::kSolved);
  EXPECT_NEAR(answer.y(0), m.dot(q), 1e-11);
}

TEST(LeastSquares, RepeatedAndCollinearKeysAreAveraged) {
  const auto memory = MakeLeastSquares(Sized(Exact(), 2, 1));
  for (const double v : {1., 2., 6.}) memory->Write(Pair(Column({.6, .8}), Column({v})));
  const Answer answer = memory->Read(Column({.6, .8}));
  EXPECT_NEAR(answer.y(0), 3, 1e-14);
  EXPECT_EQ(answer.status, Status::kRegularised);
  // Across the keys nothing is known.
  EXPECT_NEAR(memory->Read(Column({-.8, .6})).y(0), 0, 1e-14);
}

TEST(LeastSquares, LongSineWithForgettingStaysAccurate) {
  // Keys in a plane of 16 dimensions; a ridge that has faded to 1e-445, that is to nothing.
  Recipe recipe = Exact(1e-2);
  recipe.weights.decay = Decay::kConstant;
  recipe.weights.decay_factor = .95;
  const auto memory = MakeLeastSquares(Sized(recipe, 16, 1));
  const auto sine = [](int t) { return std::sin(.3 * t); };
  Vector key(16);
  double worst = 0;
  for (int t = 16; t < 20000; ++t) {
    for (int i = 0; i < 16; ++i) key(i) = sine(t - 1 - i);
    if (t > 400) worst = std::max(worst, Gap(memory->Read(key).y, Vector::Constant(1, sine(t))));
    memory->Write(Weighted(key, Vector::Constant(1, sine(t)), std::log(.95)));
  }
  EXPECT_LT(worst, 1e-9);
  EXPECT_EQ(memory->Read(key).status, Status::kRegularised);
}

TEST(LeastSquares, ForgettingEverythingForgetsNaNAndTheFadingRidge) {
  Recipe recipe = Exact(1);
  recipe.weights.decay = Decay::kScalar;
  const auto memory = MakeLeastSquares(Sized(recipe, 2, 2));
  memory->Write(Weighted(Column({1, kNaN}), Column({1, 1}), 0));
  EXPECT_TRUE(std::isnan(memory->Read(Column({1, 0})).y(0)));
  memory->Write(Weighted(Column({2, 0}), Column({6, kNaN}), -kInfinity));
  const Answer answer = memory->Read(Column({1, 0}));
  EXPECT_NEAR(answer.y(0), 3, 1e-15);
  EXPECT_TRUE(std::isnan(answer.y(1)));  // a NaN of one value channel stays in it
  EXPECT_EQ(answer.status, Status::kRegularised);
}

TEST(LeastSquares, PairWithoutImportanceIsNotWritten) {
  const auto memory = MakeLeastSquares(Sized(Exact(1), 2, 1));
  memory->Write(Weighted(Column({kNaN, 0}), Column({kNaN}), 0, 0));
  EXPECT_EQ(memory->Read(Column({1, 1})).y(0), 0);
}

TEST(LeastSquares, ChunkFormOfTheAlgorithmAgrees) {
  // All prefixes of a chunk from one C x C Cholesky factor, in whitened coordinates.
  Noise noise(6);
  const int dk = 5;
  const int dv = 3;
  const int c = 7;
  Recipe recipe = Exact(.1);
  recipe.weights.decay = Decay::kScalar;
  const auto memory = MakeLeastSquares(Sized(recipe, dk, dv));
  Matrix a0 = .1 * Matrix::Identity(dk, dk);
  Matrix b0 = Matrix::Zero(dv, dk);
  for (int chunk = 0; chunk < 4; ++chunk) {
    const Matrix k = noise.Mat(c, dk);
    const Matrix q = noise.Mat(c, dk);
    const Matrix v = noise.Mat(c, dv);
    const Vector w = noise.Uniforms(c, .2, 2);
    const Vector g = noise.Uniforms(c, .7, 1);
    Vector decay(c);
    for (int i = 0; i < c; ++i) decay(i) = (i == 0 ? 1 : decay(i - 1)) * g(i);

    const Matrix la = a0.llt().matrixL();
    const auto whiten = [&](const Matrix& x) {
      return Matrix(la.triangularView<Eigen::Lower>().solve(x.transpose()).transpose());
    };
    const Matrix kw = whiten(k);
    const Matrix qw = whiten(q);
    const Matrix bw = whiten(b0);
    Matrix s = kw * kw.transpose();
    s.diagonal() += decay.cwiseQuotient(w);
    const Matrix l = s.llt().matrixL();
    const Matrix e = l.triangularView<Eigen::Lower>().solve(v - kw * bw.transpose());
    const Matrix gain = l.triangularView<Eigen::Lower>().solve(kw);
    const Matrix scores = (qw * gain.transpose()).triangularView<Eigen::Lower>();
    const Matrix o = qw * bw.transpose() + scores * e;

    for (int i = 0; i < c; ++i) {
      memory->Write(Weighted(k.row(i).transpose(), v.row(i).transpose(), std::log(g(i)), w(i)));
      EXPECT_LT(Gap(memory->Read(q.row(i).transpose()).y, o.row(i).transpose()), 1e-10);
    }
    const Matrix scaled = w.cwiseQuotient(decay).asDiagonal() * k;
    a0 = decay(c - 1) * (a0 + k.transpose() * scaled);
    b0 = decay(c - 1) * (b0 + v.transpose() * scaled);
  }
}

TEST(SymmetricSolver, IsThePseudoInverseOfEveryRank) {
  Noise noise(41);
  for (int rank = 0; rank <= 6; ++rank) {
    const Matrix k = noise.Mat(rank, 6);
    const Matrix a = k.transpose() * k;
    const SymmetricSolver solver(a);
    EXPECT_EQ(solver.rank(), rank);
    const Matrix inverse = Eigen::CompleteOrthogonalDecomposition<Matrix>(a).pseudoInverse();
    EXPECT_LT(Gap(solver.Solve(Matrix::Identity(6, 6)), inverse), 1e-9 * (1 + inverse.norm()));
  }
}

TEST(SymmetricSolver, TakesIndefiniteMatrices) {
  // Eigenvalues 3 and -1, and 0 of the third channel.
  Matrix a = Matrix::Zero(3, 3);
  a.topLeftCorner(2, 2) << 1, 2, 2, 1;
  const SymmetricSolver solver(a);
  EXPECT_EQ(solver.rank(), 2);
  EXPECT_LT(Gap(solver.Solve(Column({3, 3, 5})), Column({1, 1, 0})), 1e-14);
}

}  // namespace
}  // namespace ttr::definition
