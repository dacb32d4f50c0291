#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <limits>

#include "tests/definition/token.h"

namespace ttr::definition {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr std::int64_t kD = 3;

Recipe With(Importance importance, bool phase = false) {
  Recipe recipe;
  recipe.function.kind = FunctionClass::kConstant;
  recipe.weights = {.decay = Decay::kChannel, .phase = phase, .importance = importance};
  return recipe;
}

Token Gated(const Vector& v, const Vector& log_decay, const Vector& phase) {
  Token token = Pair(Vector(), v);
  token.log_decay = log_decay;
  token.phase = phase;
  return token;
}

Token RandomToken(Noise& noise) {
  Token token = Gated(noise.Vec(kD), noise.Uniforms(kD, -2, 0), noise.Uniforms(kD, -3, 3));
  token.v_im = noise.Vec(kD);
  return token;
}

Vector Read(const Memory& memory) { return memory.Read(Vector()).y; }

TEST(GatedVector, HgrnByHand) {
  const auto memory = MakeGatedVector(Sized(With(Importance::kComplement), 1, 1));
  const Vector half = Column({std::log(0.5)});
  memory->Write(Gated(Column({8}), half, {}));
  EXPECT_DOUBLE_EQ(Read(*memory)(0), 4);  // the first token is not special: .5 * 0 + .5 * 8
  memory->Write(Gated(Column({2}), half, {}));
  EXPECT_DOUBLE_EQ(Read(*memory)(0), 3);
}

TEST(GatedVector, RgLruByHand) {
  const auto memory = MakeGatedVector(Sized(With(Importance::kRootComplement), 1, 1));
  memory->Write(Gated(Column({5}), Column({std::log(0.6)}), {}));
  EXPECT_DOUBLE_EQ(Read(*memory)(0), 4);  // sqrt(1 - .36) * 5
  memory->Write(Gated(Column({10}), Column({std::log(0.8)}), {}));
  EXPECT_DOUBLE_EQ(Read(*memory)(0), 9.2);  // .8 * 4 + .6 * 10
}

TEST(GatedVector, PlainAndWeighted) {
  const auto plain = MakeGatedVector(Sized(With(Importance::kNone), 1, 1));
  const auto weighted = MakeGatedVector(Sized(With(Importance::kInput), 1, 1));
  for (const double w : {2.0, 3.0}) {
    Token token = Gated(Column({1}), Column({std::log(0.5)}), {});
    plain->Write(token);
    token.importance = w;
    weighted->Write(token);
  }
  EXPECT_DOUBLE_EQ(Read(*plain)(0), 1.5);
  EXPECT_DOUBLE_EQ(Read(*weighted)(0), 4);  // .5 * 2 + 3
}

// LRU in complex arithmetic: h = lambda (.) h + sqrt(1 - |lambda|^2) (.) u, y = Re h.
TEST(GatedVector, LruIsTheComplexRecurrence) {
  const auto memory = MakeGatedVector(Sized(With(Importance::kRootComplement, true), kD, kD));
  Eigen::VectorXcd h = Eigen::VectorXcd::Zero(kD);
  Noise noise(1);
  for (int t = 0; t < 20; ++t) {
    const Token token = RandomToken(noise);
    memory->Write(token);
    for (Eigen::Index d = 0; d < kD; ++d) {
      const auto lambda = std::polar(std::exp(token.log_decay(d)), token.phase(d));
      const std::complex<double> u(token.v(d), token.v_im(d));
      h(d) = lambda * h(d) + std::sqrt(1 - std::norm(lambda)) * u;
    }
    EXPECT_LT(Gap(Read(*memory), h.real()), 1e-14);
  }
  EXPECT_LT(Gap(memory->Save().at("state.im").vector(), h.imag()), 1e-14);
}

// HGRN takes a weighted mean of what it has seen, so a constant input stays itself.
TEST(GatedVector, HgrnKeepsAConstant) {
  const auto memory = MakeGatedVector(Sized(With(Importance::kComplement), kD, kD));
  Noise noise(2);
  const Vector v = noise.Vec(kD);
  memory->Load({{"state", Array::Of(v)}});
  for (int t = 0; t < 20; ++t) memory->Write(Gated(v, noise.Uniforms(kD, -5, 0), {}));
  EXPECT_LT(Gap(Read(*memory), v), 1e-14);
}

TEST(GatedVector, OneChannelIsAHebbianMemoryOfTheKeyOne) {
  Recipe linear = With(Importance::kNone);
  linear.function.kind = FunctionClass::kLinear;
  const auto vector = MakeGatedVector(Sized(With(Importance::kNone), 1, 1));
  const auto hebbian = MakeHebbian(Sized(linear, 1, 1));
  Noise noise(3);
  for (int t = 0; t < 10; ++t) {
    Token token = Gated(noise.Vec(1), noise.Uniforms(1, -1, 0), {});
    vector->Write(token);
    token.k = Column({1});
    hebbian->Write(token);
    EXPECT_EQ(Read(*vector)(0), hebbian->Read(Column({1})).y(0));
  }
}

TEST(GatedVector, SplitIsWholeBitForBit) {
  const Constants constants = Sized(With(Importance::kRootComplement, true), kD, kD);
  const auto whole = MakeGatedVector(constants);
  auto part = MakeGatedVector(constants);
  Noise noise(4);
  for (int t = 0; t < 10; ++t) {
    if (t == 4) {
      const Arrays state = part->Save();
      EXPECT_EQ(state.size(), 2u);
      part = MakeGatedVector(constants);
      part->Load(state);
    }
    const Token token = RandomToken(noise);
    whole->Write(token);
    part->Write(token);
  }
  EXPECT_EQ(Gap(Read(*whole), Read(*part)), 0);
}

TEST(GatedVector, ForgettingAChannelForgetsItsNan) {
  for (const bool phase : {false, true}) {
    const auto memory = MakeGatedVector(Sized(With(Importance::kComplement, phase), 2, 2));
    const Vector turn = phase ? Column({1, 1}) : Vector();
    memory->Write(Gated(Column({kNan, kNan}), Column({-1, -1}), turn));
    memory->Write(Gated(Column({7, 7}), Column({-kInfinity, -1}), turn));
    EXPECT_EQ(Read(*memory)(0), 7);
    EXPECT_TRUE(std::isnan(Read(*memory)(1)));
  }
}

}  // namespace
}  // namespace ttr::definition
