#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "src/definition/memory.h"
#include "tests/definition/token.h"

namespace ttr::definition {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

constexpr Kernel kAll[] = {Kernel::kExponential,    Kernel::kGaussian, Kernel::kLaplace,
                           Kernel::kEpanechnikov,   Kernel::kBiweight, Kernel::kTriweight,
                           Kernel::kInverseDistance};

Recipe Smoother(Kernel kernel, double bandwidth = 0) {
  Recipe recipe;
  recipe.similarity = {kernel, bandwidth};
  recipe.function.kind = FunctionClass::kConstant;
  recipe.optimizer.solver = Solver::kExact;
  return recipe;
}

TEST(Kernel, Formulas) {
  // d = 5 between (3, 4) and (0, 0); d = 1/2 between (.5, 0) and (0, 0).
  const Vector zero = Vector::Zero(2);
  const auto at = [&](Kernel kernel, double bandwidth, const Vector& k) {
    return EvaluateKernel({kernel, bandwidth}, 1, k, zero);
  };
  EXPECT_NEAR(at(Kernel::kGaussian, 10, Column({3, 4})), std::exp(-2.5), 1e-15);
  EXPECT_NEAR(at(Kernel::kLaplace, 10, Column({3, 4})), std::exp(-.5), 1e-15);
  EXPECT_NEAR(at(Kernel::kInverseDistance, 0, Column({3, 4})), .2, 1e-15);
  EXPECT_EQ(at(Kernel::kInverseDistance, 0, zero), kInfinity);
  EXPECT_NEAR(at(Kernel::kEpanechnikov, 1, Column({.5, 0})), .75, 1e-15);
  EXPECT_NEAR(at(Kernel::kBiweight, 1, Column({.5, 0})), .5625, 1e-15);
  EXPECT_NEAR(at(Kernel::kTriweight, 1, Column({.5, 0})), .421875, 1e-15);
  for (const Kernel kernel : {Kernel::kEpanechnikov, Kernel::kBiweight, Kernel::kTriweight}) {
    EXPECT_EQ(at(kernel, 1, Column({1, 0})), 0);
    EXPECT_EQ(at(kernel, 1, Column({3, 4})), 0);
    EXPECT_TRUE(std::isnan(at(kernel, 1, Column({kNaN, 0}))));
  }
  EXPECT_NEAR(EvaluateKernel({Kernel::kExponential, 0}, .5, Column({1, 2}), Column({3, 4})),
              std::exp(5.5), 1e-12);
}

TEST(KernelSmoother, ByHand) {
  // Epanechnikov of bandwidth 2 around 0: keys 0, 1, 5 weigh 1, 3/4, 0.
  const auto memory = MakeKernelSmoother(Sized(Smoother(Kernel::kEpanechnikov, 2), 1, 1));
  memory->Write(Pair(Column({0}), Column({1})));
  memory->Write(Pair(Column({1}), Column({8})));
  memory->Write(Pair(Column({5}), Column({100})));
  const Answer answer = memory->Read(Column({0}));
  EXPECT_NEAR(answer.y(0), (1 + .75 * 8) / 1.75, 1e-14);
  EXPECT_EQ(answer.status, Status::kSolved);
}

TEST(KernelSmoother, IsTheWeightedLeastSquaresConstant) {
  // argmin_c sum w s |v - c|^2, by the normal equation of the column of ones.
  for (const Kernel kernel : kAll) {
    Noise noise(1);
    Recipe recipe = Smoother(kernel, 5);
    recipe.weights.decay = Decay::kScalar;
    Constants constants = Sized(recipe, 3, 2);
    constants.scale = .7;
    const auto memory = MakeKernelSmoother(constants);
    std::vector<Token> tokens;
    for (int t = 0; t < 9; ++t) {
      Token token = Pair(noise.Vec(3), noise.Vec(2));
      token.log_decay = Vector::Constant(1, -noise.Uniform(0, .3));
      token.importance = noise.Uniform(.5, 2);
      memory->Write(token);
      tokens.push_back(token);
    }
    const Vector q = .5 * noise.Vec(3);
    double total = 0;
    Vector sum = Vector::Zero(2);
    double decay = 1;
    for (int t = 8; t >= 0; --t) {
      const double w = decay * tokens[t].importance *
                       EvaluateKernel(recipe.similarity, .7, tokens[t].k.col(0), q);
      total += w;
      sum += w * tokens[t].v.col(0);
      decay *= std::exp(tokens[t].log_decay(0));
    }
    ASSERT_GT(total, 0);
    EXPECT_LT(Gap(memory->Read(q).y, sum / total), 1e-14);
  }
}

TEST(KernelSmoother, SoftmaxIsTheGaussianSmootherOfUnitVectors) {
  Noise noise(2);
  const int dk = 6;
  Constants softmax = Sized(Smoother(Kernel::kExponential), dk, 3);
  softmax.scale = 1 / std::sqrt(6.);
  const auto attention = MakeKernelSmoother(softmax);
  const auto gaussian =
      MakeKernelSmoother(Sized(Smoother(Kernel::kGaussian, 2 * std::sqrt(6.)), dk, 3));
  for (int t = 0; t < 12; ++t) {
    const Token token = Pair(noise.Unit(dk), noise.Vec(3));
    attention->Write(token);
    gaussian->Write(token);
    const Vector q = noise.Unit(dk);
    EXPECT_LT(Gap(attention->Read(q).y, gaussian->Read(q).y), 1e-14);
  }
}

TEST(KernelSmoother, LargeLogitsNeitherOverflowNorVanish) {
  const auto softmax = MakeKernelSmoother(Sized(Smoother(Kernel::kExponential), 1, 1));
  for (const double k : {1000., 2000., 2001.}) softmax->Write(Pair(Column({k}), Column({k})));
  EXPECT_NEAR(softmax->Read(Column({1})).y(0), (2000 + 2001 * M_E) / (1 + M_E), 1e-9);
  EXPECT_NEAR(softmax->Read(Column({-5})).y(0), 1000, 1e-9);
  // So far away that exp(-d^2 / B) is zero for all: the nearest one answers.
  const auto gaussian = MakeKernelSmoother(Sized(Smoother(Kernel::kGaussian, 1), 1, 1));
  for (const double k : {0., 1., 2.}) gaussian->Write(Pair(Column({k}), Column({k})));
  EXPECT_NEAR(gaussian->Read(Column({1000})).y(0), 2, 1e-14);
}

TEST(KernelSmoother, NoNeighbourIsSaid) {
  const auto memory = MakeKernelSmoother(Sized(Smoother(Kernel::kTriweight, 1), 2, 2));
  EXPECT_EQ(memory->Read(Column({0, 0})).status, Status::kSingular);
  memory->Write(Pair(Column({3, 0}), Column({1, 1})));
  const Answer answer = memory->Read(Column({0, 0}));
  EXPECT_EQ(answer.y, Vector::Zero(2));
  EXPECT_EQ(answer.status, Status::kSingular);
}

TEST(KernelSmoother, InverseDistanceInterpolates) {
  const auto memory = MakeKernelSmoother(Sized(Smoother(Kernel::kInverseDistance), 1, 1));
  memory->Write(Pair(Column({0}), Column({3})));
  memory->Write(Pair(Column({3}), Column({9})));
  EXPECT_NEAR(memory->Read(Column({1})).y(0), (3 + 4.5) / 1.5, 1e-14);
  EXPECT_EQ(memory->Read(Column({3})).y(0), 9);
  EXPECT_EQ(memory->Read(Column({3})).status, Status::kSolved);
  // Hits share by their own weights, however faded.
  Token again = Pair(Column({3}), Column({1}));
  again.importance = 3;
  memory->Write(again);
  EXPECT_NEAR(memory->Read(Column({3})).y(0), 3, 1e-14);
  Token fade = Pair(Column({7}), Column({0}));
  fade.log_decay = Vector::Constant(1, -700);
  memory->Write(fade);
  EXPECT_NEAR(memory->Read(Column({3})).y(0), 3, 1e-12);  // log-weights of 700 round at 1e-13
  // But a factor that is 0 in double leaves nothing, as -inf does.
  fade.log_decay = Vector::Constant(1, -1000);
  memory->Write(fade);
  EXPECT_EQ(memory->Read(Column({3})).y(0), 0);
}

TEST(KernelSmoother, WindowKeepsTheLatest) {
  Recipe recipe = Smoother(Kernel::kExponential);
  recipe.weights.window = 3;
  const auto window = MakeKernelSmoother(Sized(recipe, 2, 1));
  Noise noise(3);
  std::vector<Token> tokens;
  for (int t = 0; t < 7; ++t) {
    tokens.push_back(Pair(noise.Vec(2), noise.Vec(1)));
    window->Write(tokens.back());
    const auto fresh = MakeKernelSmoother(Sized(Smoother(Kernel::kExponential), 2, 1));
    for (int i = std::max(0, t - 2); i <= t; ++i) fresh->Write(tokens[i]);
    const Vector q = noise.Vec(2);
    EXPECT_EQ(window->Read(q).y, fresh->Read(q).y);
  }
  EXPECT_EQ(window->Save().at("state.length").scalar(), 3);
}

TEST(KernelSmoother, UnnormalisedSumOfAllKernels) {
  for (const Kernel kernel : kAll) {
    Recipe recipe = Smoother(kernel, 4);
    recipe.function.kind = FunctionClass::kKernel;
    recipe.optimizer.solver = Solver::kGradient;
    recipe.optimizer.eta = .5;
    const auto memory = MakeKernelSmoother(Sized(recipe, 2, 2));
    Noise noise(4);
    Vector expected = Vector::Zero(2);
    const Vector q = noise.Vec(2);
    for (int t = 0; t < 5; ++t) {
      const Token token = Pair(noise.Vec(2), noise.Vec(2));
      memory->Write(token);
      expected += .5 * EvaluateKernel(recipe.similarity, 1, token.k.col(0), q) * token.v.col(0);
      EXPECT_LT(Gap(memory->Read(q).y, expected), 1e-14);
    }
  }
}

TEST(KernelSmoother, NaNOfZeroWeightDoesNotMatter) {
  for (const FunctionClass kind : {FunctionClass::kConstant, FunctionClass::kKernel}) {
    Recipe recipe = Smoother(Kernel::kBiweight, 1);
    recipe.weights.decay = Decay::kScalar;
    recipe.function.kind = kind;
    if (kind == FunctionClass::kKernel) recipe.optimizer.solver = Solver::kGradient;
    const auto memory = MakeKernelSmoother(Sized(recipe, 1, 1));
    Token token = Pair(Column({5}), Column({kNaN}));
    token.log_decay = Vector::Zero(1);
    memory->Write(token);
    token.k(0) = 0;
    token.v(0) = 2;
    memory->Write(token);
    EXPECT_EQ(memory->Read(Column({0})).y(0), 2);  // NaN lies outside the neighbourhood
    EXPECT_TRUE(std::isnan(memory->Read(Column({5})).y(0)));
    token.k(0) = kNaN;
    memory->Write(token);
    EXPECT_TRUE(std::isnan(memory->Read(Column({0})).y(0)));
    token.k(0) = 0;
    token.log_decay(0) = -kInfinity;
    memory->Write(token);
    EXPECT_EQ(memory->Read(Column({0})).y(0), 2);  // all that was before is forgotten
    token.log_decay(0) = 0;
    token.importance = 0;
    token.k(0) = kNaN;
    memory->Write(token);
    EXPECT_EQ(memory->Read(Column({0})).y(0), 2);
  }
}

TEST(KernelSmoother, SplitIsWholeAndPaddingIsNotRead) {
  for (const std::int64_t window : {0, 4}) {
    Recipe recipe = Smoother(Kernel::kGaussian, 2);
    recipe.weights.decay = Decay::kScalar;
    recipe.weights.window = window;
    const auto whole = MakeKernelSmoother(Sized(recipe, 2, 2));
    auto split = MakeKernelSmoother(Sized(recipe, 2, 2));
    Noise noise(5);
    for (int t = 0; t < 8; ++t) {
      Arrays state = split->Save();
      const std::int64_t n = state.at("state.k").shape[0];
      for (const char* name : {"state.k", "state.v", "state.log_weight"}) {
        Array& array = state.at(name);
        array.shape[0] = n + 3;
        array.values.resize(array.values.size() + 3 * (array.shape.size() == 2 ? 2 : 1), kNaN);
      }
      split = MakeKernelSmoother(Sized(recipe, 2, 2));
      split->Load(state);
      Token token = Pair(noise.Vec(2), noise.Vec(2));
      token.log_decay = Vector::Constant(1, -.2);
      whole->Write(token);
      split->Write(token);
      const Vector q = noise.Vec(2);
      EXPECT_EQ(whole->Read(q).y, split->Read(q).y);
    }
  }
}

}  // namespace
}  // namespace ttr::definition
