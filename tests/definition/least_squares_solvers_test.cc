#include <gtest/gtest.h>

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

Token Weighted(const Vector& k, const Vector& v, double log_decay, double importance = 1) {
  Token token = Pair(k, v);
  token.log_decay = Vector::Constant(1, log_decay);
  token.importance = importance;
  return token;
}

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
  // x_1 = eta q, x_2 = x_1 + eta (q - A x_1) = (2 eta - eta^2 A) q, A = 4 + 1, B = 6, q = 1.
  Recipe recipe = Iterative(Solver::kGradient, 2);
  recipe.optimizer.eta = .1;
  recipe.optimizer.ridge = 1;
  const auto answer = [&] {
    const auto memory = MakeLeastSquares(Sized(recipe, 1, 1));
    memory->Write(Pair(Column({2}), Column({3})));
    return memory->Read(Column({1})).y(0);
  };
  EXPECT_NEAR(answer(), 6 * (.2 - .01 * 5), 1e-15);
  // Relative to |A|, or to |H| + the ridge, a step is .1 / 5.
  recipe.optimizer.eta_kind = EtaKind::kRelative;
  EXPECT_NEAR(answer(), 6 * (.04 - .0004 * 5), 1e-15);
  recipe.optimizer.ridge_kind = RidgeKind::kConstant;
  EXPECT_NEAR(answer(), 6 * (.04 - .0004 * 5), 1e-15);
}

TEST(GradientDescent, TakesStepsOfItsOwnSizes) {
  // x_1 = a q, x_2 = x_1 + b (q - A x_1) = (a + b - a b A) q, A = 4, B = 6.
  Recipe recipe = Iterative(Solver::kGradient, 2);
  recipe.optimizer.eta_kind = EtaKind::kInput;
  const auto memory = MakeLeastSquares(Sized(recipe, 1, 1));
  memory->Write(Pair(Column({2}), Column({3})));
  memory->SetSteps(Column({.1, .2}), 0);
  EXPECT_NEAR(memory->Read(Column({1})).y(0), 6 * (.3 - .02 * 4), 1e-15);
}

TEST(GradientDescent, KeepsAShareOfTheLastStep) {
  // d_1 = q, x_1 = eta q, d_2 = (1 - eta A + m) q, x_2 = eta (2 - eta A + m) q, A = 4, B = 6.
  Recipe recipe = Iterative(Solver::kGradient, 2);
  recipe.optimizer.eta = .1;
  recipe.optimizer.momentum = true;
  const auto memory = MakeLeastSquares(Sized(recipe, 1, 1));
  memory->Write(Pair(Column({2}), Column({3})));
  memory->SetSteps({}, .5);
  EXPECT_NEAR(memory->Read(Column({1})).y(0), 6 * .1 * (2 - .4 + .5), 1e-15);
}

// Whatever the keys, a step relative to the largest eigenvalue makes nothing worse in the norm of
// A.
TEST(GradientDescent, RelativeStepsNeverGrow) {
  for (const Preconditioner preconditioner :
       {Preconditioner::kNone, Preconditioner::kDiagonal, Preconditioner::kBlockDiagonal,
        Preconditioner::kLowRank}) {
    Recipe recipe = Iterative(Solver::kGradient, 50);
    recipe.optimizer.eta = 1.99;
    recipe.optimizer.eta_kind = EtaKind::kRelative;
    recipe.optimizer.preconditioner = preconditioner;
    recipe.optimizer.block = 2;
    recipe.optimizer.rank = 2;
    recipe.optimizer.ridge = 1e-3;
    const auto memory = MakeLeastSquares(Sized(recipe, 5, 1));
    // Keys that are all alike: the largest eigenvalue is as large as it can be.
    for (int i = 0; i < 3; ++i) memory->Write(Pair(Vector::Ones(5), Column({1})));
    const Answer answer = memory->Read(Vector::Ones(5));
    EXPECT_EQ(answer.status, Status::kSolved);
    EXPECT_LT(std::abs(answer.y(0)), 2);
  }
}

TEST(GradientDescent, ManyStepsReachLeastSquares) {
  Recipe recipe = Iterative(Solver::kGradient, 4000);
  recipe.optimizer.eta = .02;
  EXPECT_LT(Twins(recipe, 4, 3, 30, 12).gap(), 1e-9);
}

TEST(GradientDescent, IsGradientDescentOnTheMemory) {
  // Steps taken on M: M <- M + eta (B - M A).
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
  Recipe recipe = Iterative(Solver::kGradient, 3);
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
  std::vector<Recipe> recipes{Iterative(Solver::kExact, 1)};
  recipes.push_back(recipes[0]);
  recipes[1].optimizer.ridge = .1;
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

}  // namespace
}  // namespace ttr::definition
