#include <gtest/gtest.h>

#include <Eigen/QR>
#include <cmath>

#include "tests/definition/sgd_recipes.h"

namespace ttr::definition {
namespace {

TEST(Sgd, DeltaRuleByHand) {
  const auto memory = MakeSgd(Sized(With(), 2, 1));
  memory->Write(Pair(Column({1, 1}), Column({2}), 0.5));   // M = .5 (2 - 0) [1 1] = [1 1]
  memory->Write(Pair(Column({2, 0}), Column({4}), 0.25));  // + .25 (4 - 2) [2 0] = [2 1]
  EXPECT_EQ(memory->Read(Column({1, 0})).y(0), 2);
  EXPECT_EQ(memory->Read(Column({0, 1})).y(0), 1);
}

TEST(Sgd, DeltaRuleOverwrites) {
  const auto memory = Make(With());
  Noise noise(2);
  const Vector k = noise.Unit(kDk), v = noise.Vec(kDv);
  memory->Write(Pair(k, noise.Vec(kDv), 1));
  memory->Write(Pair(k, v, 1));
  EXPECT_LT(Gap(memory->Read(k).y, v), 1e-15);
}

TEST(Sgd, DeltaRuleOnOrthonormalKeysIsLinearAttention) {
  Noise noise(3);
  const Matrix keys = noise.Mat(kDk, kDk).householderQr().householderQ();
  const auto delta = Make(With());
  const auto linear = MakeHebbian(Sized({}, kDk, kDv));
  for (Eigen::Index i = 0; i < kDk; ++i) {
    const Token token = Pair(keys.col(i), noise.Vec(kDv), 1);
    delta->Write(token);
    linear->Write(token);
  }
  const Vector q = noise.Vec(kDk);
  EXPECT_LT(Gap(delta->Read(q).y, linear->Read(q).y), 1e-14);
}

TEST(Sgd, ZeroStepKeepsTheMemory) {
  for (const StepRule rule : {StepRule::kInput, StepRule::kLonghorn, StepRule::kEfla}) {
    const auto memory = Make(WithStep(rule));
    Noise noise(4);
    memory->Write(Pair(noise.Vec(kDk), noise.Vec(kDv), 0.5));
    const Matrix before = StateOf(*memory);
    memory->Write(Pair(noise.Vec(kDk), noise.Vec(kDv), 0));
    EXPECT_EQ(Gap(StateOf(*memory), before), 0);
  }
}

TEST(Sgd, NlmsIsDeltaNetOnUnitKeys) {
  const Change full = [](Token& t) { t.step.setOnes(); };
  EXPECT_LT(Differ(WithStep(StepRule::kNlms), {}, With(), full, true), 1e-13);
  EXPECT_GT(Differ(WithStep(StepRule::kNlms), {}, With(), full, false), 0.1);
}

TEST(Sgd, NlmsMeetsTheLatestPair) {
  const auto memory = Make(WithStep(StepRule::kNlms));
  Noise noise(5);
  for (int t = 0; t < 8; ++t) {
    const Token token = Pair(3 * noise.Vec(kDk), noise.Vec(kDv));
    memory->Write(token);
    EXPECT_LT(Gap(memory->Read(token.k.col(0)).y, token.v), 1e-13);
  }
}

TEST(Sgd, NlmsOptions) {
  Recipe recipe = WithStep(StepRule::kNlms);
  recipe.optimizer.eta = 0.5;
  recipe.optimizer.eps = 1;
  const auto memory = MakeSgd(Sized(recipe, 1, 1));
  memory->Write(Pair(Column({3}), Column({4})));  // .5/(9 + 1) * 4 * 3
  EXPECT_DOUBLE_EQ(memory->Read(Column({1})).y(0), 0.6);
}

TEST(Sgd, ZeroKeyWritesNothing) {
  for (const StepRule rule : {StepRule::kNlms, StepRule::kLonghorn, StepRule::kEfla}) {
    const auto memory = Make(WithStep(rule));
    Noise noise(6);
    memory->Write(Pair(noise.Vec(kDk), noise.Vec(kDv), 0.5));
    const Matrix before = StateOf(*memory);
    memory->Write(Pair(Vector::Zero(kDk), noise.Vec(kDv), 0.5));
    EXPECT_EQ(Gap(StateOf(*memory), before), 0);
  }
}

// Longhorn minimises 1/2 |M - M0|^2 + b/2 |v - M k|^2: there the gradient (M - M0) - b (v - M k)
// k^T vanishes.
TEST(Sgd, LonghornSolvesItsProximalProblem) {
  const auto memory = Make(WithStep(StepRule::kLonghorn));
  Noise noise(7);
  for (const double b : {0.1, 1.0, 30.0}) {
    const Matrix before = StateOf(*memory);
    const Token token = Pair(noise.Vec(kDk), noise.Vec(kDv), b);
    memory->Write(token);
    const Matrix after = StateOf(*memory);
    const Vector error = token.v - after * token.k;
    EXPECT_LT(Gap(after - before, b * error * token.k.transpose()), 1e-13 * (1 + b));
  }
}

TEST(Sgd, LonghornTendsToNlms) {
  const Change large = [](Token& t) { t.step.setConstant(1e13); };
  EXPECT_LT(Differ(WithStep(StepRule::kLonghorn), large, WithStep(StepRule::kNlms), {}), 1e-11);
}

TEST(Sgd, EflaLimits) {
  const Change large = [](Token& t) { t.step.setConstant(1e4); };
  EXPECT_LT(Differ(WithStep(StepRule::kEfla), large, WithStep(StepRule::kNlms), {}), 1e-13);
  // For small b |k|^2 it is DeltaNet, up to b |k|^2 / 2 of the step.
  const Change small = [](Token& t) { t.step.setConstant(1e-9); };
  EXPECT_LT(Differ(WithStep(StepRule::kEfla), small, With(), small), 1e-15);
  // On unit keys it is DeltaNet with step 1 - exp(-b).
  const Change flown = [](Token& t) { t.step(0) = 1 - std::exp(-t.step(0)); };
  EXPECT_LT(Differ(WithStep(StepRule::kEfla), {}, With(), flown, true), 1e-14);
}

// It is the exact flow of dM/ds = (v - M k) k^T, so flowing for b1, then b2, is flowing for b1 +
// b2.
TEST(Sgd, EflaIsAFlow) {
  const auto twice = Make(WithStep(StepRule::kEfla)), once = Make(WithStep(StepRule::kEfla));
  Noise noise(8);
  const Vector k = noise.Vec(kDk), v = noise.Vec(kDv);
  twice->Write(Pair(k, v, 0.2));
  twice->Write(Pair(k, v, 0.3));
  once->Write(Pair(k, v, 0.5));
  EXPECT_LT(Gap(StateOf(*twice), StateOf(*once)), 1e-15);
}

}  // namespace
}  // namespace ttr::definition
