#include <gtest/gtest.h>

#include <Eigen/QR>
#include <cmath>
#include <limits>
#include <vector>

#include "tests/definition/token.h"

namespace ttr::definition {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr std::int64_t kTokens = 12, kDk = 4, kDv = 3;

Recipe With(Decay decay, Importance importance = Importance::kNone, bool phase = false) {
  Recipe recipe;
  recipe.weights = {.decay = decay, .phase = phase, .importance = importance};
  return recipe;
}

// Random tokens with the gates that the recipe takes.
std::vector<Token> RandomTokens(std::uint64_t seed, const Recipe& recipe) {
  Noise noise(seed);
  std::vector<Token> tokens;
  for (std::int64_t t = 0; t < kTokens; ++t) {
    Token token = Pair(noise.Vec(kDk), noise.Vec(kDv));
    const Vector gates = noise.Uniforms(kDk, -0.7, 0);
    if (recipe.weights.decay == Decay::kScalar) token.log_decay = gates.head(1);
    if (recipe.weights.decay == Decay::kChannel) token.log_decay = gates;
    token.dt = noise.Uniforms(kDv, 0, 1);
    token.phase = noise.Uniforms(kDk, -3, 3);
    if (recipe.weights.importance == Importance::kInput) token.importance = noise.Uniform(0, 2);
    if (recipe.weights.importance == Importance::kLog) token.log_importance = 3 * noise.Normal();
    tokens.push_back(token);
  }
  return tokens;
}

Constants RandomConstants(const Recipe& recipe) {
  Constants constants = Sized(recipe, kDk, kDv);
  constants.a = -Noise(99).Uniforms(kDv * kDk, 0, 1).reshaped(kDv, kDk);
  return constants;
}

double Stabilise(const Memory& memory) { return std::exp(memory.LogScale()); }

TEST(Hebbian, LinearAttentionByHand) {
  const auto memory = MakeHebbian(Sized({}, 2, 1));
  memory->Write(Pair(Column({1, 2}), Column({3})));
  memory->Write(Pair(Column({0, 1}), Column({-1})));
  // M = 3 [1 2] - [0 1] = [3 5]
  EXPECT_EQ(memory->Read(Column({1, 0})).y(0), 3);
  EXPECT_EQ(memory->Read(Column({2, -1})).y(0), 1);
}

TEST(Hebbian, RecallsExactlyWhenKeysAreOrthonormal) {
  Noise noise(1);
  const Matrix keys = noise.Mat(kDk, kDk).householderQr().householderQ();
  const Matrix values = noise.Mat(kDv, kDk);
  const auto memory = MakeHebbian(Sized({}, kDk, kDv));
  for (Eigen::Index i = 0; i < kDk; ++i) memory->Write(Pair(keys.col(i), values.col(i)));
  for (Eigen::Index i = 0; i < kDk; ++i) {
    EXPECT_LT(Gap(memory->Read(keys.col(i)).y, values.col(i)), 1e-14);
  }
}

// y_t = sum_i (prod_{i<j<=t} g_j) w_i v_i (k_i . q), the weighted regression's right-hand side.
TEST(Hebbian, WeighsEveryPairByItsAge) {
  for (const Decay decay : {Decay::kScalar, Decay::kChannel}) {
    const Recipe recipe = With(decay, Importance::kInput);
    const std::vector<Token> tokens = RandomTokens(2, recipe);
    const auto memory = MakeHebbian(Sized(recipe, kDk, kDv));
    Matrix expected = Matrix::Zero(kDv, kDk);
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      memory->Write(tokens[i]);
      Vector age = Vector::Zero(kDk);
      for (std::size_t j = i + 1; j < tokens.size(); ++j) {
        age += decay == Decay::kScalar ? Vector::Constant(kDk, tokens[j].log_decay(0))
                                       : tokens[j].log_decay;
      }
      const Vector gamma = tokens[i].importance * age.array().exp().matrix();
      expected += tokens[i].v * gamma.cwiseProduct(tokens[i].k.col(0)).transpose();
    }
    const Vector q = Noise(3).Vec(kDk);
    EXPECT_LT(Gap(memory->Read(q).y, expected * q), 1e-13);
  }
}

TEST(Hebbian, MatrixDecayByHand) {
  Constants constants = Sized(With(Decay::kMatrix), 2, 2);
  constants.a << -1, -2, -3, -4;
  const auto memory = MakeHebbian(constants);
  Token first = Pair(Column({1, 1}), Column({1, 2}));
  first.dt = Column({9, 9});  // there is nothing to fade yet
  Token second = Pair(Column({0, 0}), Column({0, 0}));
  second.dt = Column({0.5, 0.25});
  memory->Write(first);
  memory->Write(second);
  // M = [exp(-.5) exp(-1); 2 exp(-.75) 2 exp(-1)]
  const Vector y = memory->Read(Column({1, 10})).y;
  EXPECT_NEAR(y(0), std::exp(-0.5) + 10 * std::exp(-1.0), 1e-14);
  EXPECT_NEAR(y(1), 2 * std::exp(-0.75) + 20 * std::exp(-1.0), 1e-14);
}

TEST(Hebbian, MatrixDecayWithEqualRowsIsChannelDecay) {
  Constants mamba = RandomConstants(With(Decay::kMatrix));
  mamba.a.rowwise() = mamba.a.row(0).eval();
  const auto by_entry = MakeHebbian(mamba);
  const auto by_channel = MakeHebbian(Sized(With(Decay::kChannel), kDk, kDv));
  for (Token token : RandomTokens(4, mamba.recipe)) {
    token.dt.setConstant(token.dt(0));
    by_entry->Write(token);
    token.log_decay = token.dt(0) * mamba.a.row(0).transpose();
    by_channel->Write(token);
  }
  const Vector q = Noise(5).Vec(kDk);
  EXPECT_LT(Gap(by_entry->Read(q).y, by_channel->Read(q).y), 1e-14);
}

// GateLoop: with theta the cumulative phase, Re(e^{i (theta_t - theta_i)}) = cos cos + sin sin, so
// it is GLA on keys [k cos theta_i, k sin theta_i] and queries turned the same way.
TEST(Hebbian, GateLoopIsGlaOnRotatedKeysAndQueries) {
  const Recipe recipe = With(Decay::kChannel, Importance::kNone, true);
  const auto gateloop = MakeHebbian(Sized(recipe, kDk, kDv));
  const auto gla = MakeHebbian(Sized(With(Decay::kChannel), 2 * kDk, kDv));
  Vector theta = Vector::Zero(kDk);
  const auto turned = [&theta](const Vector& x) {
    Vector both(2 * kDk);
    both << x.cwiseProduct(theta.array().cos().matrix()),
        x.cwiseProduct(theta.array().sin().matrix());
    return both;
  };
  Noise noise(6);
  for (Token token : RandomTokens(7, recipe)) {
    gateloop->Write(token);
    theta += token.phase;
    token.k = turned(token.k);
    token.log_decay = token.log_decay.replicate(2, 1).eval();
    gla->Write(token);
    const Vector q = noise.Vec(kDk);
    EXPECT_LT(Gap(gateloop->Read(q).y, gla->Read(turned(q)).y), 1e-13);
  }
}

TEST(Hebbian, GateLoopWithoutPhaseIsGla) {
  const auto gateloop =
      MakeHebbian(Sized(With(Decay::kChannel, Importance::kNone, true), kDk, kDv));
  const auto gla = MakeHebbian(Sized(With(Decay::kChannel), kDk, kDv));
  for (Token token : RandomTokens(8, With(Decay::kChannel))) {
    token.phase.setZero();
    gateloop->Write(token);
    gla->Write(token);
  }
  const Vector q = Noise(9).Vec(kDk);
  EXPECT_EQ(Gap(gateloop->Read(q).y, gla->Read(q).y), 0);
}

// HGRN2: GLA with the key 1 - f; no key is read.
TEST(Hebbian, ComplementTakesThePlaceOfTheKey) {
  const auto hgrn2 = MakeHebbian(Sized(With(Decay::kChannel, Importance::kComplement), kDk, kDv));
  const auto root =
      MakeHebbian(Sized(With(Decay::kChannel, Importance::kRootComplement), kDk, kDv));
  const auto gla = MakeHebbian(Sized(With(Decay::kChannel), kDk, kDv));
  const auto root_gla = MakeHebbian(Sized(With(Decay::kChannel), kDk, kDv));
  for (Token token : RandomTokens(10, With(Decay::kChannel))) {
    const Vector f = token.log_decay.array().exp();
    token.k.resize(0, 1);
    hgrn2->Write(token);
    root->Write(token);
    token.k = Vector(1 - f.array());
    gla->Write(token);
    token.k = Vector((1 - f.array().square()).sqrt());
    root_gla->Write(token);
  }
  const Vector q = Noise(11).Vec(kDk);
  EXPECT_LT(Gap(hgrn2->Read(q).y, gla->Read(q).y), 1e-14);
  EXPECT_LT(Gap(root->Read(q).y, root_gla->Read(q).y), 1e-14);
}

TEST(Hebbian, ComplementDoesNotCancelNearOne) {
  const auto memory = MakeHebbian(Sized(With(Decay::kChannel, Importance::kComplement), 1, 1));
  Token token = Pair(Column({0}), Column({1}));
  token.log_decay = Column({-1e-20});
  memory->Write(token);
  EXPECT_DOUBLE_EQ(memory->Read(Column({1})).y(0), 1e-20);
}

// mLSTM's stabilised recurrence against M = f M + i v k^T, n = f n + i k without any maximum.
TEST(Hebbian, RunningMaximumChangesNothing) {
  Recipe recipe = With(Decay::kScalar, Importance::kLog);
  recipe.reading.normalise_sum = NormaliseSum::kStabilised;
  Constants constants = Sized(recipe, kDk, kDv);
  constants.value_dim = kDv + 1;
  const auto memory = MakeHebbian(constants);
  Matrix m = Matrix::Zero(kDv, kDk);
  Vector n = Vector::Zero(kDk);
  Noise noise(12);
  for (Token token : RandomTokens(13, recipe)) {
    const double f = std::exp(token.log_decay(0)), i = std::exp(token.log_importance);
    m = f * m + i * token.v * token.k.transpose();
    n = f * n + i * token.k.col(0);
    token.v.conservativeResize(kDv + 1, 1);
    token.v(kDv) = 1;
    memory->Write(token);
    const Vector q = noise.Vec(kDk);
    const Vector y = memory->Read(q).y;
    EXPECT_LT(Gap(Stabilise(*memory) * y.head(kDv), m * q), 1e-12);
    EXPECT_NEAR(Stabilise(*memory) * y(kDv), n.dot(q), 1e-12);
    // y = M q / max(|n^T q|, exp(-m_t)) of the scaled pair is y = M q / max(|n^T q|, 1) of the
    // plain one.
    EXPECT_LT(Gap(y.head(kDv) / std::max(std::abs(y(kDv)), std::exp(-memory->LogScale())),
                  m * q / std::max(std::abs(n.dot(q)), 1.0)),
              1e-13);
  }
}

TEST(Hebbian, RunningMaximumBearsAnyGate) {
  const auto memory = MakeHebbian(Sized(With(Decay::kScalar, Importance::kLog), 1, 1));
  const auto write = [&memory](double log_decay, double log_importance, double v) {
    Token token = Pair(Column({1}), Column({v}));
    token.log_decay = Column({log_decay});
    token.log_importance = log_importance;
    memory->Write(token);
  };
  const auto y = [&memory] { return memory->Read(Column({1})).y(0); };
  write(-1, -kInfinity, 5);  // no weight at all, with no maximum yet
  EXPECT_EQ(y(), 0);
  EXPECT_EQ(memory->LogScale(), -kInfinity);
  write(-1, 5000, 2);  // exp(5000) is beyond double
  EXPECT_EQ(memory->LogScale(), 5000);
  EXPECT_EQ(y(), 2);
  write(-3, 4996, 1);  // log-weights 4997 and 4996
  EXPECT_EQ(memory->LogScale(), 4997);
  EXPECT_DOUBLE_EQ(y(), 2 + std::exp(-1.0));
  write(0, -kInfinity, 7);  // writes nothing, fades nothing
  EXPECT_DOUBLE_EQ(y(), 2 + std::exp(-1.0));
  write(-kInfinity, -kInfinity, 7);  // all forgotten, nothing written
  EXPECT_EQ(y(), 0);
  write(-1, -5000, 3);
  EXPECT_EQ(memory->LogScale(), -5000);
  EXPECT_EQ(y(), 3);
}

TEST(Hebbian, AnswerDoesNotDependOnWhereTheMaximumStarts) {
  const Recipe recipe = With(Decay::kScalar, Importance::kLog);
  const auto plain = MakeHebbian(Sized(recipe, kDk, kDv));
  const auto shifted = MakeHebbian(Sized(recipe, kDk, kDv));
  shifted->Load({{"state.m", Array::Of(2.5)}});
  const Vector q = Noise(14).Vec(kDk);
  for (const Token& token : RandomTokens(15, recipe)) {
    plain->Write(token);
    shifted->Write(token);
    EXPECT_LT(Gap(Stabilise(*plain) * plain->Read(q).y, Stabilise(*shifted) * shifted->Read(q).y),
              1e-11);
  }
}

// One gradient step of size eta: it scales the answer, not the sum of keys that may divide it.
TEST(Hebbian, StepSizeMultipliesOnReading) {
  Recipe recipe;
  recipe.optimizer.eta = 0.25;
  recipe.reading.normalise_sum = NormaliseSum::kSum;
  Constants constants = Sized(recipe, 1, 1);
  constants.value_dim = 2;
  const auto memory = MakeHebbian(constants);
  memory->Write(Pair(Column({3}), Column({8, 1})));
  EXPECT_EQ(Gap(memory->Read(Column({1})).y, Column({6, 3})), 0);
}

TEST(Hebbian, StateKeepsTheSumOfKeysApart) {
  Recipe recipe;
  recipe.reading.normalise_sum = NormaliseSum::kSum;
  Constants constants = Sized(recipe, 2, 1);
  constants.value_dim = 2;
  const auto memory = MakeHebbian(constants);
  memory->Write(Pair(Column({3, 4}), Column({5, 1})));
  const Arrays state = memory->Save();
  ASSERT_EQ(state.size(), 2u);
  EXPECT_EQ(state.at("state").shape, (std::vector<std::int64_t>{2, 1}));
  EXPECT_EQ(state.at("state").values, (std::vector<double>{15, 20}));
  EXPECT_EQ(state.at("state.n").shape, (std::vector<std::int64_t>{2}));
  EXPECT_EQ(state.at("state.n").values, (std::vector<double>{3, 4}));
}

std::vector<Recipe> AllRecipes() {
  return {With(Decay::kNone),
          With(Decay::kScalar, Importance::kInput),
          With(Decay::kChannel),
          With(Decay::kChannel, Importance::kNone, true),
          With(Decay::kMatrix),
          With(Decay::kScalar, Importance::kLog),
          With(Decay::kChannel, Importance::kComplement)};
}

TEST(Hebbian, SplitIsWholeBitForBit) {
  for (const Recipe& recipe : AllRecipes()) {
    const Constants constants = RandomConstants(recipe);
    const std::vector<Token> tokens = RandomTokens(16, recipe);
    const auto whole = MakeHebbian(constants);
    auto part = MakeHebbian(constants);
    const Vector q = Noise(17).Vec(kDk);
    for (std::size_t t = 0; t < tokens.size(); ++t) {
      if (t == 5) {
        const Arrays state = part->Save();
        part = MakeHebbian(constants);
        part->Load(state);
      }
      whole->Write(tokens[t]);
      part->Write(tokens[t]);
    }
    EXPECT_EQ(Gap(whole->Read(q).y, part->Read(q).y), 0);
    EXPECT_EQ(whole->LogScale(), part->LogScale());
  }
}

TEST(Hebbian, ForgettingEverythingForgetsNan) {
  for (const Recipe& recipe : AllRecipes()) {
    if (recipe.weights.decay == Decay::kNone) continue;
    const Constants constants = RandomConstants(recipe);
    const auto memory = MakeHebbian(constants);
    const auto fresh = MakeHebbian(constants);
    std::vector<Token> tokens = RandomTokens(18, recipe);
    tokens[2].v(1) = kNan;
    tokens[3].log_importance = recipe.weights.importance == Importance::kLog ? kInfinity : 0;
    tokens[5].log_decay.setConstant(-kInfinity);
    tokens[5].dt.setConstant(kInfinity);
    const Vector q = Noise(19).Vec(kDk);
    for (std::size_t t = 0; t < tokens.size(); ++t) {
      memory->Write(tokens[t]);
      if (t >= 5) fresh->Write(tokens[t]);
      if (t == 2) {
        EXPECT_TRUE(std::isnan(memory->Read(q).y(1)));
      }
      if (t == 4) {
        EXPECT_FALSE(memory->Read(q).y.allFinite());
      }
    }
    EXPECT_LT(Gap(memory->Read(q).y, fresh->Read(q).y), 1e-15);
  }
}

TEST(Hebbian, AForgottenChannelIsCleanBesideOthersThatAreNot) {
  const auto memory = MakeHebbian(Sized(With(Decay::kChannel), 2, 1));
  memory->Write(Pair(Column({1, 1}), Column({kNan})));
  Token token = Pair(Column({3, 0}), Column({1}));
  token.log_decay = Column({-kInfinity, -0.5});
  memory->Write(token);
  const Matrix m = memory->Save().at("state").matrix();
  EXPECT_EQ(m(0, 0), 3);
  EXPECT_TRUE(std::isnan(m(1, 0)));
}

}  // namespace
}  // namespace ttr::definition
