#include <gtest/gtest.h>

#include <Eigen/Cholesky>
#include <Eigen/Eigenvalues>
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "tests/definition/sgd_recipes.h"

namespace ttr::definition {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

TEST(SgdLayers, WeightDecayByHand) {
  for (const WeightDecay kind : {WeightDecay::kCoupled, WeightDecay::kDecoupled}) {
    const auto memory = MakeSgd(Sized(WithWeightDecay(kind), 1, 1));
    memory->Load({{"state", Array::Of(Matrix(Matrix::Constant(1, 1, 3)))}});
    Token token = Pair(Column({2}), Column({10}), 0.5);
    token.weight_decay = 0.25;
    memory->Write(token);  // the error, 10 - 6, is that of the memory before it shrinks
    EXPECT_DOUBLE_EQ(memory->Read(Column({1})).y(0),
                     kind == WeightDecay::kCoupled ? 0.875 * 3 + 4 : 0.75 * 3 + 4);
  }
}

// (alpha, eta, v') = (1 - beta lambda, beta/(1 - beta lambda), (1 - beta lambda) v).
TEST(SgdLayers, LeakyLmsIsGatedDeltaNet) {
  const double lambda = 0.7;
  const Change leaky = [=](Token& t) { t.weight_decay = lambda; };
  const Change gated = [=](Token& t) {
    const double alpha = 1 - t.step(0) * lambda;
    t.log_decay = Column({std::log(alpha)});
    t.step /= alpha;
    t.v *= alpha;
  };
  EXPECT_LT(Differ(WithWeightDecay(WeightDecay::kCoupled), leaky, WithDecay(Decay::kScalar), gated),
            1e-13);
}

TEST(SgdLayers, DecoupledIsCoupledDividedByTheStep) {
  const Change coupled = [](Token& t) { t.weight_decay = 0.3 / t.step(0); };
  const Change decoupled = [](Token& t) { t.weight_decay = 0.3; };
  EXPECT_LT(Differ(WithWeightDecay(WeightDecay::kCoupled), coupled,
                   WithWeightDecay(WeightDecay::kDecoupled), decoupled),
            1e-14);
}

TEST(SgdLayers, GatedDeltaNetDecaysBeforeItMeasuresTheError) {
  const auto memory = MakeSgd(Sized(WithDecay(Decay::kScalar), 1, 1));
  memory->Load({{"state", Array::Of(Matrix(Matrix::Constant(1, 1, 4)))}});
  Token token = Pair(Column({1}), Column({3}), 0.5);
  token.log_decay = Column({std::log(0.5)});
  memory->Write(token);
  EXPECT_DOUBLE_EQ(memory->Read(Column({1})).y(0), 2.5);  // 2 + .5 (3 - 2)
}

TEST(SgdLayers, KdaWithEqualChannelsIsGatedDeltaNet) {
  const Change scalar = [](Token& t) { t.log_decay = Column({-t.step(0)}); };
  const Change channels = [](Token& t) { t.log_decay = Vector::Constant(kDk, -t.step(0)); };
  EXPECT_EQ(Differ(WithDecay(Decay::kScalar), scalar, WithDecay(Decay::kChannel), channels), 0);
}

TEST(SgdLayers, KdaByHand) {
  const auto memory = MakeSgd(Sized(WithDecay(Decay::kChannel), 2, 1));
  memory->Load({{"state", Array::Transposed(Column({4, 8}).transpose())}});
  Token token = Pair(Column({1, 1}), Column({5}), 0.25);
  token.log_decay = Column({std::log(0.5), std::log(0.25)});
  memory->Write(token);  // [2 2] + .25 (5 - 4) [1 1]
  EXPECT_LT(Gap(StateOf(*memory), Column({2.25, 2.25}).transpose()), 1e-15);
}

// Comba with p = k (and D = 0, which is outside) is Gated DeltaNet.
TEST(SgdLayers, CombaWithItsOwnKeyIsGatedDeltaNet) {
  Recipe comba = WithErase(Erase::kEraseKey);
  comba.weights.decay = Decay::kScalar;
  const Change gated = [](Token& t) { t.log_decay = Column({-0.3}); };
  const Change erasing = [&gated](Token& t) {
    gated(t);
    t.erase_key = t.k.col(0);
  };
  EXPECT_EQ(Differ(comba, erasing, WithDecay(Decay::kScalar), gated), 0);
}

TEST(SgdLayers, CombaByHand) {
  const auto memory = MakeSgd(Sized(WithErase(Erase::kEraseKey), 2, 1));
  memory->Load({{"state", Array::Transposed(Column({1, 2}).transpose())}});
  Token token = Pair(Column({1, 0}), Column({10}), 0.5);
  token.erase_key = Column({0, 3});
  memory->Write(token);  // [1 2] + .5 (10 - 6) [1 0]
  EXPECT_EQ(Gap(StateOf(*memory), Column({3, 2}).transpose()), 0);
}

// Gated DeltaNet-2 with b = beta in all channels and w_v = beta is KDA: (beta v - M beta k) k^T.
TEST(SgdLayers, GatedDeltaNet2WithEqualGatesIsKda) {
  Recipe gated = WithErase(Erase::kGatedKey, StepRule::kOne);
  gated.weights.decay = Decay::kChannel;
  const Vector log_decay = Noise(9).Uniforms(kDk, -1, 0);
  const Change two = [&](Token& t) {
    t.log_decay = log_decay;
    t.erase_gate = Vector::Constant(kDk, t.step(0));
    t.v *= t.step(0);
    t.step.setConstant(kNan);  // not read
  };
  const Change kda = [&](Token& t) { t.log_decay = log_decay; };
  EXPECT_LT(Differ(gated, two, WithDecay(Decay::kChannel), kda), 1e-14);
}

TEST(SgdLayers, GatedDeltaNet2ByHand) {
  const auto memory = MakeSgd(Sized(WithErase(Erase::kGatedKey, StepRule::kOne), 2, 1));
  memory->Load({{"state", Array::Transposed(Column({1, 2}).transpose())}});
  Token token = Pair(Column({1, 1}), Column({5}));
  token.erase_gate = Column({1, 0.5});
  memory->Write(token);  // [1 2] + (5 - 1 - 1) [1 1]
  EXPECT_EQ(Gap(StateOf(*memory), Column({4, 5}).transpose()), 0);
}

// M (I - kappa (beta kappa)^T) + v (beta k)^T with kappa = k.
TEST(SgdLayers, Rwkv7ContainsDeltaNet) {
  const Change seven = [](Token& t) {
    t.erase_key = t.k.col(0);
    t.erase_gate = Vector::Constant(kDk, t.step(0));
    t.k *= t.step(0);
  };
  EXPECT_LT(Differ(WithErase(Erase::kUndecayed, StepRule::kOne), seven, With(), {}), 1e-13);
}

TEST(SgdLayers, Rwkv7ErasesFromTheUndecayedMemory) {
  Recipe recipe = WithErase(Erase::kUndecayed, StepRule::kOne);
  recipe.weights.decay = Decay::kChannel;
  const auto memory = Make(recipe);
  Noise noise(10);
  Matrix m = Matrix::Zero(kDv, kDk);
  for (std::int64_t t = 0; t < kTokens; ++t) {
    Token token = Pair(noise.Vec(kDk), noise.Vec(kDv));
    token.log_decay = noise.Uniforms(kDk, -1, 0);
    token.erase_key = noise.Unit(kDk);
    token.erase_gate = noise.Uniforms(kDk, 0, 1);
    memory->Write(token);
    const Vector w = token.log_decay.array().exp();
    const Vector& kappa = token.erase_key;
    const Matrix transition =
        Matrix(w.asDiagonal()) - kappa * token.erase_gate.cwiseProduct(kappa).transpose();
    m = m * transition + token.v * token.k.transpose();
    EXPECT_LT(Gap(StateOf(*memory), m), 1e-13);
  }
}

// DeltaProduct: decay once, then n delta steps.
TEST(SgdLayers, DeltaProductIsStepsWithoutDecayBetween) {
  Recipe product = WithDecay(Decay::kScalar);
  product.optimizer.steps = 3;
  const auto together = Make(product), apart = Make(WithDecay(Decay::kScalar));
  Noise noise(11);
  for (std::int64_t t = 0; t < kTokens; ++t) {
    Token token;
    token.k = noise.Mat(kDk, 3);
    token.v = noise.Mat(kDv, 3);
    token.step = noise.Uniforms(3, 0, 0.5);
    token.log_decay = noise.Uniforms(1, -1, 0);
    together->Write(token);
    for (Eigen::Index j = 0; j < 3; ++j) {
      Token one = Pair(token.k.col(j), token.v.col(j), token.step(j));
      one.log_decay = j == 0 ? token.log_decay : Column({0});
      apart->Write(one);
    }
    EXPECT_EQ(Gap(StateOf(*together), StateOf(*apart)), 0);
  }
}

// Erase-then-Delta: an address e is cleared by the share b of what it holds; then a delta step.
TEST(SgdLayers, EraseThenDeltaClearsAnAddressBeforeItWrites) {
  const auto memory = Make(ParseRecipe("erase_then_delta"));
  Noise noise(12);
  Matrix m = Matrix::Zero(kDv, kDk);
  for (std::int64_t t = 0; t < kTokens; ++t) {
    Token token;
    token.k = noise.Mat(kDk, 2);
    token.v = noise.Mat(kDv, 2);
    token.v.col(0).setZero();
    token.step = noise.Uniforms(2, 0, 0.5);
    token.log_decay = noise.Uniforms(kDk, -1, 0);
    memory->Write(token);
    const Vector e = token.k.col(0), k = token.k.col(1), v = token.v.col(1);
    m = m * Vector(token.log_decay.array().exp()).asDiagonal();
    m -= token.step(0) * m * e * e.transpose();
    m += token.step(1) * (v - m * k) * k.transpose();
    EXPECT_LT(Gap(StateOf(*memory), m), 1e-13);
  }
}

TEST(SgdLayers, PreconditionedByHand) {
  const auto memory = MakeSgd(Sized(Preconditioned(0.5, 2), 1, 1));
  const auto m = [](double d) {
    const double l = std::log(d + 1e-6) - 2;
    return std::pow(1.5, -l / (1 + std::abs(l)));
  };
  Token token = Pair(Column({2}), Column({3}), 0.25);
  token.importance = 4;
  memory->Write(token);  // D = 4 * 2^2 = 16
  const double first = 0.25 * 3 * 2 * m(16);
  EXPECT_DOUBLE_EQ(memory->Read(Column({1})).y(0), first);
  EXPECT_EQ(memory->Save().at("state.d").values, (std::vector<double>{16}));
  memory->Write(Pair(Column({1}), Column({5}), 0.5));  // D = .5 * 16 + 1 = 9
  EXPECT_DOUBLE_EQ(memory->Read(Column({1})).y(0), first + 0.5 * (5 - first) * m(9));
}

// m(D) = 1 where log(D + 1e-6) = c; more curvature makes the step smaller, at most by 1.5.
TEST(SgdLayers, PreconditionerIsCentredAndBounded) {
  const auto written = [](double importance) {
    const auto memory = MakeSgd(Sized(Preconditioned(1, 0), 1, 1));
    Token token = Pair(Column({1}), Column({1}), 1);
    token.importance = importance;
    memory->Write(token);
    return memory->Read(Column({1})).y(0);
  };
  EXPECT_DOUBLE_EQ(written(1 - 1e-6), 1);
  EXPECT_LT(written(10), written(2));
  EXPECT_GT(written(1e300), 1 / 1.5);
  EXPECT_GT(written(0), written(0.5));
  EXPECT_LT(written(0), 1.5);
}

// Titans with a linear memory: G = eta G + theta (v - M k) k^T, M = (1 - alpha) M + G.
Recipe LowRank(std::int64_t rank) {
  Recipe recipe = ParseRecipe("low_rank_rls{ridge: 0.25, curvature_decay: 0.75}");
  recipe.optimizer.rank = rank;
  return recipe;
}

// What of a symmetric matrix its `rank` largest eigenpairs are.
Matrix Largest(const Matrix& c, Eigen::Index rank) {
  const Eigen::SelfAdjointEigenSolver<Matrix> eigen(c);
  const Eigen::Index kept = std::min(rank, c.rows());
  const Matrix u = eigen.eigenvectors().rightCols(kept);
  return u * eigen.eigenvalues().tail(kept).asDiagonal() * u.transpose();
}

// The gain is that of a curvature of which `rank` eigenpairs are carried from token to token.
TEST(SgdLayers, LowRankCurvatureIsTheLargestEigenpairs) {
  for (const Eigen::Index rank : {1, 2, 3, 9}) {
    const auto memory = MakeSgd(Sized(LowRank(rank), kDk, kDv));
    Noise noise(13);
    Matrix m = Matrix::Zero(kDv, kDk), c = Matrix::Zero(kDk, kDk);
    for (std::int64_t t = 0; t < kTokens; ++t) {
      Token token = Pair(noise.Vec(kDk), noise.Vec(kDv), 1);
      token.importance = noise.Uniform(0, 2);
      memory->Write(token);
      const Vector k = token.k.col(0), v = token.v.col(0);
      c = .75 * c + token.importance * k * k.transpose();
      const Matrix a = c + .25 * Matrix::Identity(kDk, kDk);
      m += (v - m * k) * a.ldlt().solve(k).transpose();
      c = Largest(c, rank);
      EXPECT_LT(Gap(StateOf(*memory), m), 1e-12) << rank;
      const Matrix u = memory->Save().at("state.u").matrix();
      EXPECT_LT(Gap(u.transpose() * u, c), 1e-12) << rank;
      for (Eigen::Index i = 1; i < rank; ++i) {
        EXPECT_GE(u.row(i - 1).norm(), u.row(i).norm() - 1e-12);
      }
    }
  }
}

// The rows of a token are met at once, from where the token before left the memory.
TEST(SgdLayers, StepsByTheCurvatureOfTheirTokenAreAffineProjection) {
  constexpr Eigen::Index kRows = 3;
  const auto memory =
      MakeSgd(Sized(ParseRecipe("affine_projection{steps: 3, rank: 2, ridge: 0.25}"), kDk, kDv));
  Noise noise(14);
  Matrix m = Matrix::Zero(kDv, kDk);
  for (std::int64_t t = 0; t < kTokens; ++t) {
    Token token = Pair(noise.Vec(kDk), noise.Vec(kDv), 1);
    token.k = noise.Mat(kDk, kRows);
    token.v = noise.Mat(kDv, kRows);
    token.step = Vector::Ones(kRows);
    memory->Write(token);
    const Matrix inner = token.k.transpose() * token.k + .25 * Matrix::Identity(kRows, kRows);
    m += (token.v - m * token.k) * inner.ldlt().solve(token.k.transpose());
    EXPECT_LT(Gap(StateOf(*memory), m), 1e-12);
  }
}

// What a memory has lost of 16 values once all are written, as a share of them; keys have unit
// length and a spectrum that falls as 1 / i.
double Lost(const std::string& recipe, std::uint64_t seed) {
  constexpr Eigen::Index kPairs = 16;
  const auto memory = MakeSgd(Sized(ParseRecipe(recipe), kPairs, kDv));
  Noise noise(seed);
  Matrix keys = noise.Mat(kPairs, kPairs);
  for (Eigen::Index i = 0; i < kPairs; ++i) keys.row(i) /= static_cast<double>(i + 1);
  keys.colwise().normalize();
  const Matrix values = noise.Mat(kDv, kPairs);
  for (Eigen::Index i = 0; i < kPairs; ++i) memory->Write(Pair(keys.col(i), values.col(i), .5));
  return (StateOf(*memory) * keys - values).squaredNorm() / values.squaredNorm();
}

// A quarter of the directions is worth more than half of what all of them are.
TEST(SgdLayers, FewDirectionsOfTheCurvatureHelpWhereKeysHaveFew) {
  double none = 0, few = 0, all = 0;
  for (const std::uint64_t seed : {1, 2, 3, 4, 5, 6, 7, 8}) {
    none += Lost("deltanet", seed);
    few += Lost("low_rank_rls{rank: 4, ridge: 0.1}", seed);
    all += Lost("low_rank_rls{rank: 16, ridge: 0.1}", seed);
  }
  EXPECT_LT(all, few);
  EXPECT_LT(few - all, .5 * (none - all));
}

TEST(SgdLayers, MomentumByHand) {
  const auto memory = MakeSgd(Sized(Momentum(), 1, 1));
  Token token = Pair(Column({1}), Column({4}), 0.5);
  token.momentum = 0.25;
  token.weight_decay = 0.5;
  memory->Write(token);  // G = 2, M = 2
  EXPECT_EQ(memory->Read(Column({1})).y(0), 2);
  memory->Write(token);  // G = .5 + .5 (4 - 2) = 1.5, M = 1 + 1.5
  EXPECT_EQ(memory->Read(Column({1})).y(0), 2.5);
  EXPECT_EQ(memory->Save().at("state.momentum").values, (std::vector<double>{1.5}));
}

TEST(SgdLayers, NoMomentumNoWeightDecayIsDeltaNet) {
  EXPECT_EQ(Differ(Momentum(), {}, With(), {}), 0);
}

std::vector<Recipe> AllRecipes() {
  Recipe seven = WithErase(Erase::kUndecayed, StepRule::kOne);
  Recipe comba = WithErase(Erase::kEraseKey);
  Recipe two = WithErase(Erase::kGatedKey, StepRule::kOne);
  for (Recipe* recipe : {&seven, &comba, &two}) recipe->weights.decay = Decay::kChannel;
  Recipe momentum = Momentum();
  momentum.weights.decay = Decay::kScalar;
  return {With(),
          WithStep(StepRule::kLonghorn),
          WithDecay(Decay::kScalar),
          WithDecay(Decay::kChannel),
          WithWeightDecay(WeightDecay::kCoupled),
          seven,
          comba,
          two,
          momentum,
          Preconditioned(0.9, -1)};
}

std::vector<Token> RandomTokens(std::uint64_t seed, const Recipe& recipe) {
  Noise noise(seed);
  std::vector<Token> tokens;
  for (std::int64_t t = 0; t < kTokens; ++t) {
    Token token = Pair(noise.Vec(kDk), noise.Vec(kDv), noise.Uniform(0.1, 0.3));
    const Vector gates = noise.Uniforms(kDk, -0.7, 0);
    if (recipe.weights.decay == Decay::kScalar) token.log_decay = gates.head(1);
    if (recipe.weights.decay == Decay::kChannel) token.log_decay = gates;
    token.erase_key = noise.Unit(kDk);
    token.erase_gate = noise.Uniforms(kDk, 0, 1);
    token.momentum = noise.Uniform(0, 0.5);
    token.weight_decay = noise.Uniform(0, 0.5);
    tokens.push_back(token);
  }
  return tokens;
}

TEST(SgdLayers, SplitIsWholeBitForBit) {
  for (const Recipe& recipe : AllRecipes()) {
    const std::vector<Token> tokens = RandomTokens(12, recipe);
    const auto whole = Make(recipe);
    auto part = Make(recipe);
    for (std::size_t t = 0; t < tokens.size(); ++t) {
      if (t == 5) {
        const Arrays state = part->Save();
        part = Make(recipe);
        part->Load(state);
      }
      whole->Write(tokens[t]);
      part->Write(tokens[t]);
    }
    EXPECT_EQ(Gap(StateOf(*whole), StateOf(*part)), 0);
  }
}

TEST(SgdLayers, ForgettingEverythingForgetsNan) {
  for (const Recipe& recipe : AllRecipes()) {
    // What erases from the undecayed memory, or carries a momentum, has not forgotten everything.
    if (recipe.weights.decay == Decay::kNone || recipe.optimizer.momentum ||
        recipe.optimizer.erase == Erase::kUndecayed) {
      continue;
    }
    const auto memory = Make(recipe), fresh = Make(recipe);
    std::vector<Token> tokens = RandomTokens(13, recipe);
    tokens[2].v(1) = kNan;
    tokens[5].log_decay.setConstant(-kInfinity);
    for (std::size_t t = 0; t < tokens.size(); ++t) {
      memory->Write(tokens[t]);
      if (t >= 5) fresh->Write(tokens[t]);
      if (t == 4) {
        EXPECT_TRUE(StateOf(*memory).row(1).hasNaN());
        EXPECT_TRUE(StateOf(*memory).row(0).allFinite());  // other value rows never met it
      }
    }
    EXPECT_EQ(Gap(StateOf(*memory), StateOf(*fresh)), 0);
  }
}

}  // namespace
}  // namespace ttr::definition
