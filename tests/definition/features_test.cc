#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numbers>

#include "src/recipe/family.h"
#include "src/recipe/feature_maps.h"
#include "tests/definition/token.h"
#include "ttr/zoo.h"

namespace ttr::definition {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kSqrt2 = std::numbers::sqrt2;

Constants With(FeatureMap map, std::int64_t key_dim) {
  Recipe recipe;
  recipe.function.features = map;
  return Sized(recipe, key_dim, 1);
}

Vector Phi(const Constants& constants, const Vector& x, std::int64_t position = 0) {
  return ApplyFeatures(constants, x, position);
}

TEST(Features, Elementwise) {
  const Vector x = Column({-1, 0, 2});
  EXPECT_EQ(Gap(Phi(With(FeatureMap::kNone, 3), x), x), 0);
  EXPECT_EQ(Gap(Phi(With(FeatureMap::kElu1, 3), x), Column({std::exp(-1.0), 1, 3})), 0);
  EXPECT_EQ(Gap(Phi(With(FeatureMap::kRelu, 3), x), Column({0, 0, 2})), 0);
}

TEST(Features, KeepNan) {
  for (const FeatureEntry& entry : FeatureMaps()) {
    Constants constants = With(entry.map, 8);
    constants.features_w = Matrix::Identity(8, 8);
    for (Eigen::Index i = 0; i < 8; ++i) {
      Vector x = Vector::Ones(8);
      x(i) = kNan;
      EXPECT_TRUE(Phi(constants, x).hasNaN()) << entry.name;
    }
  }
}

TEST(Features, CosformerByHand) {
  Constants constants = With(FeatureMap::kCosformer, 2);
  constants.recipe.function.max_length = 3;  // a quarter turn in 3 tokens: 30 degrees each
  const Vector x = Column({2, -5});
  EXPECT_LT(Gap(Phi(constants, x, 0), Column({2, 0, 0, 0})), 1e-15);
  EXPECT_LT(Gap(Phi(constants, x, 2), Column({1, 0, std::sqrt(3.0), 0})), 1e-15);
}

// A weight cos(pi (t - i) / 2m) on relu(k) . relu(q): it depends on the distance alone.
TEST(Features, CosformerWeighsByDistance) {
  Constants constants = With(FeatureMap::kCosformer, 4);
  constants.recipe.function.max_length = 50;
  Noise noise(1);
  const Vector k = noise.Vec(4), q = noise.Vec(4);
  const double inner = k.cwiseMax(0).dot(q.cwiseMax(0));
  ASSERT_GT(inner, 0.1);
  for (const std::int64_t shift : {0, 7}) {
    EXPECT_NEAR(Phi(constants, k, 5 + shift).dot(Phi(constants, q, 17 + shift)),
                inner * std::cos(std::numbers::pi * 12 / 100), 1e-14);
  }
}

// r = [relu(x), relu(-x)] = [2 0 0 3]; roll(r, 1) = [3 2 0 0], roll(r, 2) = [0 3 2 0],
// roll(r, 3) = [0 0 3 2].
TEST(Features, DpfpByHand) {
  Constants constants = With(FeatureMap::kDpfp, 2);
  const Vector x = Column({2, -3});
  EXPECT_EQ(Gap(Phi(constants, x), Column({6, 0, 0, 0})), 0);
  constants.recipe.function.nu = 3;
  EXPECT_EQ(Gap(Phi(constants, x), Column({6, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 6})), 0);
}

TEST(Features, T2rByHand) {
  Constants constants = With(FeatureMap::kT2r, 2);
  constants.features_w.resize(3, 2);
  constants.features_w << 1, 2, -1, 0, 0, 1;
  EXPECT_EQ(Gap(Phi(constants, Column({3, 1})), Column({5, 0, 1})), 0);
  constants.features_b = Column({-6, 4, 1});
  EXPECT_EQ(Gap(Phi(constants, Column({3, 1})), Column({0, 1, 2})), 0);
}

TEST(Features, HedgehogByHand) {
  Constants constants = With(FeatureMap::kHedgehogExp, 1);
  constants.features_w = Column({0, std::log(3)});
  EXPECT_LT(Gap(Phi(constants, Column({1})), Column({1, 3, 1, 1.0 / 3})), 1e-15);
  constants.recipe.function.features = FeatureMap::kHedgehogSoftmax;
  EXPECT_LT(Gap(Phi(constants, Column({1})), Column({0.25, 0.75, 0.75, 0.25})), 1e-15);
  // The softmax form does not overflow.
  EXPECT_EQ(Gap(Phi(constants, Column({1e6})), Column({0, 1, 1, 0})), 0);
}

TEST(Features, Taylor2IsTheExpansionOfTheExponential) {
  const std::int64_t d = 5;
  const Constants constants = With(FeatureMap::kTaylor2, d);
  Noise noise(2);
  for (int i = 0; i < 5; ++i) {
    const Vector k = noise.Vec(d), q = noise.Vec(d);
    const double s = k.dot(q) / std::sqrt(5.0);
    EXPECT_NEAR(Phi(constants, k).dot(Phi(constants, q)), 1 + s + s * s / 2, 1e-13);
  }
  EXPECT_LT(Gap(Phi(With(FeatureMap::kTaylor2, 1), Column({2})), Column({1, 2, 4 / kSqrt2})),
            1e-15);
}

TEST(Features, Power2IsTheSquare) {
  EXPECT_LT(Gap(Phi(With(FeatureMap::kPower2, 2), Column({3, 5})), Column({9, 15 * kSqrt2, 25})),
            1e-14);
  const Constants constants = With(FeatureMap::kPower2, 6);
  Noise noise(3);
  const Vector k = noise.Vec(6), q = noise.Vec(6);
  EXPECT_NEAR(Phi(constants, k).dot(Phi(constants, q)), std::pow(k.dot(q), 2), 1e-13);
}

// x = [1 5]: mean 3, variance 4, so LN(x) = [-1 1] up to eps.
TEST(Features, RebasedByHand) {
  Constants constants = With(FeatureMap::kRebased, 2);
  const double n = 2 / std::sqrt(4 + 1e-5);
  const Vector x = Column({1, 5});
  EXPECT_LT(Gap(Phi(constants, x), n * n * Column({1, -kSqrt2, 1})), 1e-15);
  constants.features_w = Column({2, 3}).transpose();
  constants.features_b = Column({0.5, -1});
  const double a = -2 * n + 0.5, b = 3 * n - 1;
  EXPECT_LT(Gap(Phi(constants, x), Column({a * a, kSqrt2 * a * b, b * b})), 1e-14);
}

// E phi(k) . phi(q) = exp(-|k - q|^2 / 2). Each of the F terms is cos(w . (k - q)), within [-1, 1],
// so the mean of F = 4096 of them has a standard deviation below 1/64; the bound is four of those.
TEST(Features, RfaApproximatesTheGaussianKernelOnUnitInputs) {
  Constants constants = With(FeatureMap::kRfa, 8);
  constants.recipe.function.feature_dim = 4096;
  constants.features_w = DrawFeatures(constants.recipe, 8, 0);
  Noise noise(4);
  for (int i = 0; i < 10; ++i) {
    const Vector k = noise.Unit(8), q = noise.Unit(8);
    EXPECT_NEAR(Phi(constants, k).dot(Phi(constants, q)), std::exp(-(k - q).squaredNorm() / 2),
                4.0 / 64);
    EXPECT_NEAR(Phi(constants, k).squaredNorm(), 1, 1e-13);  // sin^2 + cos^2
  }
}

// E phi(k) . phi(q) = exp(k . q). With s = k + q a term is exp(w . s - (|k|^2 + |q|^2) / 2), a
// log-normal number of relative standard deviation sqrt(exp(|s|^2) - 1); orthogonal rows only make
// the sum's smaller. The bound is four of those over sqrt(F).
TEST(Features, FavorApproximatesTheExponentialKernel) {
  Constants constants = With(FeatureMap::kFavor, 8);
  constants.recipe.function.feature_dim = 4096;
  constants.features_w = DrawFeatures(constants.recipe, 8, 0);
  Noise noise(5);
  for (int i = 0; i < 10; ++i) {
    const Vector k = 0.7 * noise.Unit(8), q = 0.7 * noise.Unit(8);
    const double relative = std::sqrt((std::exp((k + q).squaredNorm()) - 1) / 4096);
    EXPECT_NEAR(Phi(constants, k).dot(Phi(constants, q)) / std::exp(k.dot(q)), 1, 4 * relative);
    EXPECT_GT(Phi(constants, k).minCoeff(), 0);
  }
}

TEST(Features, FavorRowsAreOrthogonalAndAsLongAsNormalVectors) {
  Recipe recipe = With(FeatureMap::kFavor, 5).recipe;
  recipe.function.feature_dim = 2005;
  const Matrix w = DrawFeatures(recipe, 5, 0);
  for (const Eigen::Index block : {0, 5, 2000}) {
    const Matrix gram = w.middleRows(block, 5) * w.middleRows(block, 5).transpose();
    EXPECT_LT(Gap(gram, Matrix(gram.diagonal().asDiagonal())), 1e-13);
  }
  // |w|^2 has mean 5 and variance 10: four standard deviations of the mean of 2005.
  EXPECT_NEAR(w.rowwise().squaredNorm().mean(), 5, 4 * std::sqrt(10.0 / 2005));
  EXPECT_NE(w.row(0).norm(), w.row(1).norm());
}

// DiJiang's phi(x) = D exp(T C x): C the orthonormal DCT-II, T = diag(t), t normal, D = exp(b).
TEST(Features, DijiangByHand) {
  Constants constants = With(FeatureMap::kDijiang, 2);
  constants.head = 3;
  constants.recipe.function.feature_dim = 3;
  constants.recipe.function.seed = 42;
  const CounterRandom random(42, 3);
  // C = [sqrt(1/2) sqrt(1/2); cos(pi/4) cos(3 pi/4)] for d = 2; a third row begins anew.
  const double c = std::sqrt(0.5);
  const Vector x = Column({3, 1});
  const Vector expected =
      Column({std::exp(random.NormalAt(0) * 4 * c), std::exp(random.NormalAt(1) * 2 * c),
              std::exp(random.NormalAt(2) * 4 * c)});
  EXPECT_LT(Gap(Phi(constants, x), expected), 1e-13 * expected.norm());
  constants.features_b = Column({0, std::log(2), 0});
  EXPECT_NEAR(Phi(constants, x)(1), 2 * expected(1), 1e-13 * expected.norm());
}

TEST(Features, DijiangRowsAreCosinesOrthogonalInBlocks) {
  Recipe recipe = With(FeatureMap::kDijiang, 6).recipe;
  recipe.function.feature_dim = 12;
  const Matrix w = DrawFeatures(recipe, 6, 0);
  for (const Eigen::Index block : {0, 6}) {
    const Matrix gram = w.middleRows(block, 6) * w.middleRows(block, 6).transpose();
    EXPECT_LT(Gap(gram, Matrix(gram.diagonal().asDiagonal())), 1e-14);
  }
}

TEST(Features, RandomMapsDependOnSeedAndMemoryAlone) {
  for (const FeatureMap map : {FeatureMap::kRfa, FeatureMap::kFavor, FeatureMap::kDijiang}) {
    Constants constants = With(map, 4);
    constants.recipe.function.seed = 7;
    constants.head = 1;
    const Vector x = Noise(6).Unit(4);
    const Vector phi = Phi(constants, x);
    EXPECT_EQ(Gap(Phi(constants, x), phi), 0);

    Constants given = constants;  // the same directions as an input
    given.recipe.function.seed = 8;
    given.features_w = DrawFeatures(constants.recipe, 4, 1);
    EXPECT_EQ(given.features_w.rows(), constants.recipe.function.feature_dim);
    EXPECT_EQ(Gap(Phi(given, x), phi), 0);

    constants.head = 2;
    EXPECT_GT(Gap(Phi(constants, x), phi), 0.01);
    constants.head = 1;
    constants.recipe.function.seed = 8;
    EXPECT_GT(Gap(Phi(constants, x), phi), 0.01);
  }
}

TEST(Features, HaveTheLengthThatTheRecipeStates) {
  for (const FeatureEntry& entry : FeatureMaps()) {
    for (const std::int64_t d : {1, 3, 4}) {
      Constants constants = With(entry.map, d);
      Function& function = constants.recipe.function;
      function.nu = 2;
      function.feature_dim = 5;
      const Vector x = Noise(8).Vec(d);
      const bool learned = entry.map == FeatureMap::kT2r || entry.map == FeatureMap::kHedgehogExp ||
                           entry.map == FeatureMap::kHedgehogSoftmax;
      if (!learned) {
        EXPECT_EQ(Phi(constants, x).size(), FeatureDim(function, d, 0)) << entry.name;
      }
      if (learned || IsRandom(entry.map)) {
        constants.features_w = Noise(9).Mat(7, d);  // as many rows as are given
        EXPECT_EQ(Phi(constants, x).size(), FeatureDim(function, d, 7)) << entry.name;
      }
    }
  }
}

// Optimal or not, a linear memory on features answers by the kernel: y = sum v_i phi(k_i) . phi(q).
TEST(Features, LinearAttentionOnPower2IsSquaredAttention) {
  const std::int64_t d = 3;
  const Constants map = With(FeatureMap::kPower2, d);
  const auto memory = MakeHebbian(Sized({}, 6, 2));
  Noise noise(10);
  const Vector q = noise.Vec(d);
  Vector expected = Vector::Zero(2);
  for (int i = 0; i < 8; ++i) {
    const Vector k = noise.Vec(d), v = noise.Vec(2);
    memory->Write(Pair(Phi(map, k), v));
    expected += v * std::pow(k.dot(q), 2);
  }
  EXPECT_LT(Gap(memory->Read(Phi(map, q)).y, expected), 1e-12);
}

}  // namespace
}  // namespace ttr::definition
