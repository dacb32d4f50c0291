#include <gtest/gtest.h>

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

// ---- solvers ------------------------------------------------------------------------------------

/// A memory and its twin that is solved exactly, after the same tokens.
struct Twins {
  Twins(const Recipe& recipe, int dk, int dv, int tokens, std::uint64_t seed) {
    Recipe exact = recipe;
    exact.optimizer.solver = Solver::kExact;
    solved = MakeLeastSquares(Sized(exact, dk, dv));
    iterated = MakeLeastSquares(Sized(recipe, dk, dv));
    Noise noise(seed);
    for (int t = 0; t < tokens; ++t) {
      const Token token = Pair(noise.Vec(dk), noise.Vec(dv));
      solved->Write(token);
      iterated->Write(token);
    }
    q = noise.Vec(dk);
    arrays = iterated->Save();
  }

  double gap() const { return Gap(solved->Read(q).y, iterated->Read(q).y); }

  std::unique_ptr<Memory> solved, iterated;
  Vector q;
  Arrays arrays;
};

Recipe Iterative(Solver solver, std::int64_t steps) {
  Recipe recipe;
  recipe.optimizer.solver = solver;
  recipe.optimizer.steps = steps;
  return recipe;
}

TEST(GradientDescent, OneStepOfSizeOneIsLinearAttention) {
  const Twins twins(Iterative(Solver::kGradient, 1), 4, 3, 9, 11);
  const Vector linear_attention = twins.arrays.at("state").transposed() * twins.q;
  EXPECT_LT(Gap(twins.iterated->Read(twins.q).y, linear_attention), 1e-14);
}

TEST(GradientDescent, TwoStepsByHand) {
  // x_1 = eta q, x_2 = x_1 + eta (q - A x_1) = (2 eta - eta^2 A) q, A = 4, B = 6, q = 1, eta = .1.
  Recipe recipe = Iterative(Solver::kGradient, 2);
  recipe.optimizer.eta = .1;
  recipe.optimizer.ridge = 100;  // plain gradient descent knows no ridge
  const auto memory = MakeLeastSquares(Sized(recipe, 1, 1));
  memory->Write(Pair(Column({2}), Column({3})));
  EXPECT_NEAR(memory->Read(Column({1})).y(0), 6 * (.2 - .01 * 4), 1e-15);
}

TEST(GradientDescent, ManyStepsReachLeastSquares) {
  Recipe recipe = Iterative(Solver::kGradient, 4000);
  recipe.optimizer.eta = .02;
  EXPECT_LT(Twins(recipe, 4, 3, 30, 12).gap(), 1e-9);
}

TEST(GradientDescent, IsGradientDescentOnTheMemory) {
  // The same steps taken on M: M <- M + eta (B - M A).
  Recipe recipe = Iterative(Solver::kGradient, 5);
  recipe.optimizer.eta = .03;
  const Twins twins(recipe, 4, 3, 12, 13);
  const Matrix a = twins.arrays.at("state.a").matrix();
  const Matrix b = twins.arrays.at("state").transposed();
  Matrix m = Matrix::Zero(3, 4);
  for (int n = 0; n < 5; ++n) m += .03 * (b - m * a);
  EXPECT_LT(Gap(twins.iterated->Read(twins.q).y, m * twins.q), 1e-13);
}

TEST(QuasiNewton, ExactPreconditionersSolveInOneStep) {
  Recipe recipe = Iterative(Solver::kGradient, 1);
  recipe.optimizer.ridge = .1;
  recipe.optimizer.preconditioner = Preconditioner::kBlockDiagonal;
  recipe.optimizer.block = 5;
  EXPECT_LT(Twins(recipe, 5, 3, 12, 14).gap(), 1e-12);
  recipe.optimizer.preconditioner = Preconditioner::kLowRank;
  recipe.optimizer.rank = 5;
  EXPECT_LT(Twins(recipe, 5, 3, 12, 14).gap(), 1e-12);
}

TEST(QuasiNewton, DiagonalAndBlocksByHand) {
  // One step of size 1: y = B P q.
  Recipe recipe = Iterative(Solver::kGradient, 1);
  recipe.optimizer.ridge = .1;
  recipe.optimizer.preconditioner = Preconditioner::kDiagonal;
  const Twins diagonal(recipe, 5, 3, 12, 15);
  const Matrix a = diagonal.arrays.at("state.a").matrix();
  const Matrix b = diagonal.arrays.at("state").transposed();
  EXPECT_LT(Gap(diagonal.iterated->Read(diagonal.q).y, b * diagonal.q.cwiseQuotient(a.diagonal())),
            1e-13);

  recipe.optimizer.preconditioner = Preconditioner::kBlockDiagonal;
  recipe.optimizer.block = 2;
  const Twins blocks(recipe, 5, 3, 12, 15);
  Matrix p = Matrix::Zero(5, 5);
  p.block(0, 0, 2, 2) = a.block(0, 0, 2, 2).inverse();
  p.block(2, 2, 2, 2) = a.block(2, 2, 2, 2).inverse();
  p(4, 4) = 1 / a(4, 4);
  EXPECT_LT(Gap(blocks.iterated->Read(blocks.q).y, b * p * blocks.q), 1e-12);
}

TEST(QuasiNewton, LowRankNeverOvershootsAndNeedsFewSteps) {
  Recipe recipe = Iterative(Solver::kGradient, 60);
  recipe.optimizer.ridge = 5;
  recipe.optimizer.preconditioner = Preconditioner::kLowRank;
  double before = kInfinity;
  for (const std::int64_t rank : {0, 1, 3, 5}) {
    recipe.optimizer.rank = rank;
    const double gap = Twins(recipe, 6, 3, 14, 16).gap();
    EXPECT_LT(gap, before) << rank;
    before = gap;
  }
  EXPECT_LT(before, 1e-12);
}

TEST(QuasiNewton, LowRankOfFewKeysIsExact) {
  // Two keys and a ridge: two eigenvalues, and the ridge for all the others.
  Recipe recipe = Iterative(Solver::kGradient, 1);
  recipe.optimizer.ridge = .5;
  recipe.optimizer.preconditioner = Preconditioner::kLowRank;
  recipe.optimizer.rank = 2;
  EXPECT_LT(Twins(recipe, 6, 3, 2, 17).gap(), 1e-13);
}

TEST(ConjugateGradient, IsExactAfterAsManyStepsAsChannels) {
  Recipe recipe = Iterative(Solver::kConjugateGradient, 6);
  recipe.optimizer.ridge = .5;
  recipe.optimizer.ridge_kind = RidgeKind::kConstant;
  const Twins twins(recipe, 6, 3, 20, 18);
  EXPECT_LT(twins.gap(), 1e-11);
  EXPECT_EQ(twins.iterated->Read(twins.q).status, Status::kSolved);
}

TEST(ConjugateGradient, OneStepByHand) {
  // alpha = q.q / q.Aq, y = B alpha q, A = diag(1, 4) + 1, B = (1, 2).
  Recipe recipe = Iterative(Solver::kConjugateGradient, 1);
  recipe.optimizer.ridge = 1;
  recipe.optimizer.ridge_kind = RidgeKind::kConstant;
  const auto memory = MakeLeastSquares(Sized(recipe, 2, 1));
  memory->Write(Pair(Column({1, 0}), Column({1})));
  memory->Write(Pair(Column({0, 2}), Column({1})));
  EXPECT_NEAR(memory->Read(Column({1, 1})).y(0), 3. * 2 / 7, 1e-15);
}

TEST(ConjugateGradient, ToleranceIsReachedOrReported) {
  Recipe recipe = Iterative(Solver::kConjugateGradient, 3);
  recipe.optimizer.ridge = .01;
  recipe.optimizer.tolerance = 1e-10;
  const Twins few(recipe, 12, 3, 40, 19);
  EXPECT_EQ(few.iterated->Read(few.q).status, Status::kNotConverged);
  recipe.optimizer.steps = 50;
  const Twins many(recipe, 12, 3, 40, 19);
  EXPECT_EQ(many.iterated->Read(many.q).status, Status::kSolved);
  EXPECT_LT(many.gap(), 1e-8);
  // A loose tolerance stops early: the answer is not the exact one.
  recipe.optimizer.tolerance = .1;
  const Twins loose(recipe, 12, 3, 40, 19);
  EXPECT_EQ(loose.iterated->Read(loose.q).status, Status::kSolved);
  EXPECT_GT(loose.gap(), 1e-6);
}

TEST(ConjugateGradient, SurvivesSingularSystemsAndTooManySteps) {
  const Recipe recipe = Iterative(Solver::kConjugateGradient, 100);
  for (const int tokens : {0, 1, 3, 30}) {
    const Twins twins(recipe, 6, 3, tokens, 20);
    EXPECT_TRUE(twins.iterated->Read(twins.q).y.allFinite() || tokens < 6) << tokens;
    // A query among the keys has a solution, which is found.
    const auto memory = MakeLeastSquares(Sized(recipe, 6, 1));
    const Vector k = Noise(21).Vec(6);
    memory->Write(Pair(k, Column({2})));
    EXPECT_NEAR(memory->Read(k).y(0), 2, 1e-14);
  }
}

TEST(ConjugateGradient, PreconditionerKeepsTheSolution) {
  for (const auto preconditioner : {Preconditioner::kDiagonal, Preconditioner::kLowRank}) {
    Recipe recipe = Iterative(Solver::kConjugateGradient, 8);
    recipe.optimizer.ridge = .5;
    recipe.optimizer.rank = 3;
    recipe.optimizer.preconditioner = preconditioner;
    EXPECT_LT(Twins(recipe, 8, 3, 20, 22).gap(), 1e-10);
  }
}

TEST(Chebyshev, FirstIterateIsAScaledQuery) {
  // H = diag(4, 0), |H|_F = 4, ridge 1: interval [1, 5], x_1 = q / 3, B = (2, 0).
  Recipe recipe = Iterative(Solver::kChebyshev, 1);
  recipe.optimizer.ridge = 1;
  recipe.optimizer.ridge_kind = RidgeKind::kConstant;
  const auto one = MakeLeastSquares(Sized(recipe, 2, 1));
  one->Write(Pair(Column({2, 0}), Column({1})));
  EXPECT_NEAR(one->Read(Column({3, 7})).y(0), 2, 1e-15);
  // rho = 2/3, w_2 = 2 / (2 - 4/9) = 9/7: x_2 = 9/7 (x_1 + (q - A x_1) / 3), of channel 0
  // 9/7 (1 + (3 - 5) / 3) = 3/7.
  recipe.optimizer.steps = 2;
  const auto two = MakeLeastSquares(Sized(recipe, 2, 1));
  two->Write(Pair(Column({2, 0}), Column({1})));
  EXPECT_NEAR(two->Read(Column({3, 7})).y(0), 6. / 7, 1e-15);
}

TEST(Chebyshev, ErrorFallsBelowTheBoundOfItsPolynomial) {
  for (const RidgeKind kind : {RidgeKind::kConstant, RidgeKind::kRelative, RidgeKind::kFading}) {
    for (const int steps : {1, 2, 5, 20, 80}) {
      Recipe recipe = Iterative(Solver::kChebyshev, steps);
      recipe.optimizer.ridge = kind == RidgeKind::kRelative ? .05 : 2;
      recipe.optimizer.ridge_kind = kind;
      const Twins twins(recipe, 5, 5, 12, 23);
      Matrix h = twins.arrays.at("state.a").matrix();
      if (kind == RidgeKind::kFading) h.diagonal().array() -= 2;  // without decay: kept apart
      const double ridge = kind == RidgeKind::kRelative ? .05 * h.norm() : 2;
      const double condition = (ridge + h.norm()) / ridge;
      const double root = (std::sqrt(condition) - 1) / (std::sqrt(condition) + 1);
      const Matrix b = twins.arrays.at("state").transposed();
      const double bound = 2 * std::pow(root, steps) * b.norm() * twins.q.norm() / ridge;
      EXPECT_LT(twins.gap(), bound + 1e-12) << steps;
    }
  }
}

TEST(Chebyshev, EmptyMemoryAnswersZero) {
  Recipe recipe = Iterative(Solver::kChebyshev, 5);
  recipe.optimizer.ridge = .02;
  recipe.optimizer.ridge_kind = RidgeKind::kRelative;
  const auto memory = MakeLeastSquares(Sized(recipe, 3, 2));
  EXPECT_EQ(memory->Read(Column({1, 2, 3})).y, Vector::Zero(2));
}

TEST(Chebyshev, RidgeThatFadesStillConverges) {
  Recipe recipe = Iterative(Solver::kChebyshev, 400);
  recipe.optimizer.ridge = 1;
  recipe.weights.decay = Decay::kScalar;  // the twins' tokens carry no decay
  EXPECT_LT(Twins(recipe, 4, 2, 12, 24).gap(), 1e-12);
}

// ---- all solvers --------------------------------------------------------------------------------

std::vector<Recipe> AllSolvers() {
  std::vector<Recipe> recipes{Exact(), Exact(.1)};
  for (const Solver solver : {Solver::kGradient, Solver::kConjugateGradient, Solver::kChebyshev}) {
    Recipe recipe = Iterative(solver, 4);
    recipe.optimizer.ridge = .1;
    recipe.optimizer.eta = .05;
    recipes.push_back(recipe);
    recipe.optimizer.ridge_kind = RidgeKind::kRelative;
    recipes.push_back(recipe);
  }
  for (const Preconditioner preconditioner :
       {Preconditioner::kDiagonal, Preconditioner::kBlockDiagonal, Preconditioner::kLowRank}) {
    Recipe recipe = Iterative(Solver::kGradient, 4);
    recipe.optimizer.preconditioner = preconditioner;
    recipe.optimizer.block = 2;
    recipe.optimizer.rank = 2;
    recipes.push_back(recipe);
  }
  for (Recipe& recipe : recipes) recipe.weights.decay = Decay::kScalar;
  return recipes;
}

TEST(LeastSquares, SplitIsWhole) {
  for (const Recipe& recipe : AllSolvers()) {
    Noise noise(31);
    const auto whole = MakeLeastSquares(Sized(recipe, 3, 2));
    auto split = MakeLeastSquares(Sized(recipe, 3, 2));
    for (int t = 0; t < 8; ++t) {
      const Token token = Weighted(noise.Vec(3), noise.Vec(2), -.1, noise.Uniform(.5, 2));
      const Vector q = noise.Vec(3);
      whole->Write(token);
      split->Write(token);
      auto resumed = MakeLeastSquares(Sized(recipe, 3, 2));
      resumed->Load(split->Save());
      split = std::move(resumed);
      EXPECT_EQ(whole->Read(q).y, split->Read(q).y);
      EXPECT_EQ(whole->Read(q).status, split->Read(q).status);
    }
  }
}

TEST(LeastSquares, NaNReachesWhatDependsOnItAndEnds) {
  for (const Recipe& recipe : AllSolvers()) {
    const auto memory = MakeLeastSquares(Sized(recipe, 3, 2));
    Noise noise(32);
    for (int t = 0; t < 5; ++t) memory->Write(Weighted(noise.Vec(3), noise.Vec(2), -.1));
    const Vector q = noise.Vec(3);
    const Vector before = memory->Read(q).y;
    // A NaN in a query is that query's own.
    EXPECT_TRUE(memory->Read(Column({1, kNaN, 1})).y.array().isNaN().all());
    EXPECT_EQ(memory->Read(q).y, before);
    memory->Write(Weighted(Column({1, kNaN, 0}), noise.Vec(2), -.1));
    EXPECT_TRUE(memory->Read(q).y.array().isNaN().all());
    memory->Write(Weighted(noise.Vec(3), noise.Vec(2), -kInfinity));
    EXPECT_TRUE(memory->Read(q).y.allFinite());
  }
}

// ---- the solver of singular systems -------------------------------------------------------------

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
