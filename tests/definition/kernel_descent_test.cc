#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "src/definition/memory.h"
#include "tests/definition/token.h"

namespace ttr::definition {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kRidge = 0.3;

Recipe Descent(std::int64_t steps, double eta) {
  Recipe recipe;
  recipe.similarity = {Kernel::kGaussian, 2};
  recipe.function.kind = FunctionClass::kKernel;
  recipe.optimizer.solver = Solver::kGradient;
  recipe.optimizer.steps = steps;
  recipe.optimizer.eta = eta;
  recipe.optimizer.ridge = kRidge;
  return recipe;
}

/// Pairs of some weights, and what a kernel makes of them.
struct Problem {
  explicit Problem(int n) {
    Noise noise(7);
    k = noise.Mat(n, 3);
    v = noise.Mat(n, 2);
    q = noise.Vec(3);
    w = noise.Vec(n).cwiseAbs();
    w(2) = 0;
  }

  void WriteTo(Memory& memory) const {
    for (Eigen::Index i = 0; i < k.rows(); ++i) {
      Token token = Pair(k.row(i).transpose(), v.row(i).transpose());
      token.importance = w(i);
      memory.Write(token);
    }
  }

  Matrix Gram(const Recipe& recipe) const {
    Matrix gram(k.rows(), k.rows());
    for (Eigen::Index j = 0; j < k.rows(); ++j) gram.col(j) = Near(recipe, k.row(j).transpose());
    return gram;
  }
  Vector Near(const Recipe& recipe, const Vector& x) const {
    Vector near(k.rows());
    for (Eigen::Index i = 0; i < k.rows(); ++i) {
      near(i) = EvaluateKernel(recipe.similarity, 1, k.row(i).transpose(), x);
    }
    return near;
  }

  Matrix k, v;
  Vector q, w;
};

// alpha <- alpha + d, d <- eta (W (V - K alpha) - ridge alpha) + momentum d, and y = alpha^T k(K,
// q).
TEST(KernelDescent, IsTheRecursionOfItsCoefficients) {
  const Problem problem(9);
  for (const double momentum : {0., 0.6}) {
    Recipe recipe = Descent(5, 0.2);
    recipe.optimizer.momentum = momentum > 0;
    recipe.weights.importance = Importance::kInput;
    const auto memory = MakeKernelDescent(Sized(recipe, 3, 2));
    problem.WriteTo(*memory);
    memory->SetSteps(Vector(), momentum);
    const Matrix gram = problem.Gram(recipe);
    Matrix alpha = Matrix::Zero(9, 2);
    Matrix d = alpha;
    for (int n = 0; n < 5; ++n) {
      d = 0.2 * (problem.w.asDiagonal() * (problem.v - gram * alpha) - kRidge * alpha) +
          momentum * d;
      alpha += d;
    }
    const Answer answer = memory->Read(problem.q);
    EXPECT_LT(Gap(answer.y, alpha.transpose() * problem.Near(recipe, problem.q)), 1e-13);
    EXPECT_EQ(answer.iterations, 5);
    EXPECT_EQ(answer.status, Status::kSolved);
  }
}

TEST(KernelDescent, OneStepIsTheSumOverThePairs) {
  const Problem problem(9);
  Recipe recipe = Descent(1, 1);
  recipe.optimizer.eta_kind = EtaKind::kInput;
  recipe.weights.importance = Importance::kInput;
  const auto memory = MakeKernelDescent(Sized(recipe, 3, 2));
  problem.WriteTo(*memory);
  memory->SetSteps(Column({0.7}), 0);
  const Vector sum =
      problem.v.transpose() * problem.w.cwiseProduct(problem.Near(recipe, problem.q));
  EXPECT_LT(Gap(memory->Read(problem.q).y, 0.7 * sum), 1e-14);
}

TEST(KernelDescent, ManyStepsAreKernelRidgeRegression) {
  const Problem problem(9);
  for (const Solver solver : {Solver::kGradient, Solver::kConjugateGradient}) {
    Recipe recipe = Descent(2000, 1.9);
    recipe.optimizer.solver = solver;
    recipe.optimizer.eta_kind = EtaKind::kRelative;
    recipe.weights.importance = Importance::kInput;
    const auto memory = MakeKernelDescent(Sized(recipe, 3, 2));
    problem.WriteTo(*memory);
    recipe.optimizer.solver = Solver::kExact;
    const auto exact = MakeKernelRegression(Sized(recipe, 3, 2));
    problem.WriteTo(*exact);
    const Answer answer = memory->Read(problem.q);
    EXPECT_LT(Gap(answer.y, exact->Read(problem.q).y), 1e-12);
    EXPECT_LT(answer.residual, 1e-12);
  }
}

// Past 2 over the largest eigenvalue every step makes matters worse.
TEST(KernelDescent, StepsThatAreTooLargeAreReported) {
  const Problem problem(9);
  const auto memory = MakeKernelDescent(Sized(Descent(40, 3), 3, 2));
  problem.WriteTo(*memory);
  EXPECT_EQ(memory->Read(problem.q).status, Status::kNotConverged);
}

TEST(KernelDescent, EmptyMemoryAnswersZeroAndWhatWeighsNothingIsNotRead) {
  Recipe recipe = Descent(3, 0.2);
  recipe.weights.importance = Importance::kInput;
  const auto memory = MakeKernelDescent(Sized(recipe, 2, 3));
  EXPECT_EQ(memory->Read(Column({1, 2})).y, Vector::Zero(3));
  Token token = Pair(Column({kInfinity, 1}), Column({1, kInfinity, 2}));
  token.importance = 0;
  memory->Write(token);
  EXPECT_EQ(memory->Read(Column({1, 2})).y, Vector::Zero(3));
}

}  // namespace
}  // namespace ttr::definition
