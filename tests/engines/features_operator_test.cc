// The public operator: the words of recipes, drawn directions, errors. The maps themselves are
// tested in features_test.cc.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "src/definition/memory.h"
#include "src/random/directions.h"
#include "tests/engines/features_case.h"
#include "ttr/error.h"
#include "ttr/features.h"
#include "ttr/util/random.h"

namespace ttr::rows {
namespace {

TEST(ApplyFeatures, SpeaksTheWordsOfRecipes) {
  for (const MapCase& c : MapCases()) {
    if (c.dim != 5) continue;
    const MapProblem problem(c, DType::kFloat64, 2, 3, 2);
    ASSERT_EQ(FeatureLength(c.function, c.dim, c.features), c.phi_dim()) << c;
    ApplyFeatures(c.function, {problem.x, problem.w, problem.b}, problem.y);
    for (std::int64_t b = 0; b < 2; ++b) {
      for (std::int64_t t = 0; t < 3; ++t) {
        const Judged judged = Judge(c, problem.call(), b, t, 1, t, EpsilonOf(DType::kFloat64));
        for (std::size_t i = 0; i < judged.phi.size(); ++i) {
          EXPECT_NEAR(problem.y.view().At({b, t, 1, static_cast<std::int64_t>(i)}), judged.phi[i],
                      judged.bound[i])
              << c;
        }
      }
    }
  }
}

TEST(ApplyFeatures, DrawsWhatTheDefinitionDraws) {
  for (const FeatureMap map : {FeatureMap::kRfa, FeatureMap::kFavor, FeatureMap::kDijiang}) {
    MapCase c(map, 6);
    c.function.seed = 31;
    c.function.feature_dim = 9;
    const Tensor w = DrawFeatureWeights(c.function, 3, 6);
    Recipe recipe;
    recipe.function = c.function;
    for (std::int64_t h = 0; h < 3; ++h) {
      const definition::Matrix expected = definition::DrawFeatures(recipe, 6, h);
      for (std::int64_t f = 0; f < 9; ++f) {
        for (std::int64_t i = 0; i < 6; ++i) {
          EXPECT_EQ(w.view().At({h, f, i}), expected(f, i));
        }
      }
    }
    c.features = 9;
    const MapProblem drawn(c, DType::kFloat32, 1, 2, 3), given(c, DType::kFloat32, 1, 2, 3);
    ApplyFeatures(c.function, {.x = drawn.x}, drawn.y);
    ApplyFeatures(c.function, {.x = given.x, .w = w}, given.y);
    for (std::size_t i = 0; i < drawn.y.as<float>().size(); ++i) {
      EXPECT_EQ(drawn.y.as<float>()[i], given.y.as<float>()[i]);
    }
  }
}

// The numbers of the seed, held: two draws by their index, and a row of the cosine transform.
TEST(Directions, AreTheDrawsOfTheirStream) {
  const CounterRandom random(5, 2);
  const std::vector<double> normal = DrawDirections(Directions::kNormal, 5, 2, 3, 4);
  for (std::size_t i = 0; i < normal.size(); ++i) EXPECT_EQ(normal[i], random.NormalAt(i));
  const std::vector<double> cosine = DrawDirections(Directions::kCosine, 5, 2, 3, 2);
  EXPECT_EQ(cosine[0], random.NormalAt(0) * std::sqrt(0.5));
  EXPECT_NEAR(cosine[3], random.NormalAt(1) * std::cos(3 * std::acos(-1.0) / 4), 1e-15);
  // The first row of a block keeps its direction and takes another vector's length.
  const std::vector<double> rows = DrawDirections(Directions::kOrthogonal, 5, 2, 2, 2);
  const double length = std::hypot(random.NormalAt(4), random.NormalAt(5)) /
                        std::hypot(random.NormalAt(0), random.NormalAt(1));
  EXPECT_NEAR(rows[0], random.NormalAt(0) * length, 1e-15 * length);
  EXPECT_NEAR(rows[0] * rows[2] + rows[1] * rows[3], 0, 1e-15 * length);
}

std::string Message(const Function& function, const FeatureInputs& in, const TensorView& y) {
  try {
    ApplyFeatures(function, in, y);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(ApplyFeatures, SaysWhatIsWrong) {
  const MapCase c(FeatureMap::kT2r, 4, 6);
  const MapProblem p(c, DType::kFloat32, 1, 2, 3);
  EXPECT_EQ(Message(c.function, {.x = p.x}, p.y),
            "[apply_features] w must be [H or 1,F,D] but is absent");
  EXPECT_EQ(
      Message(c.function, {p.x, p.w}, p.x),
      "[apply_features] y must be float32, float64 or bfloat16 [B,T,H,Dphi] = [1, 2, 3, 6] but "
      "is float32 [1, 2, 3, 4]");
  EXPECT_EQ(
      Message(c.function, {p.x, p.w.view().Slice(0, 0, 2)}, p.y),
      "[apply_features] w must be float32, float64 or bfloat16 [H or 1,F,D] = [3, 6, 4] but is "
      "float32 [2, 6, 4]");
  Function relu;
  relu.features = FeatureMap::kRelu;
  EXPECT_EQ(Message(relu, {p.x, p.w}, p.y),
            "[apply_features] w must be absent, for this map takes none but is float32 [3, 6, 4]");
  EXPECT_EQ(Message(relu, {.x = p.x}, p.x),
            "[apply_features] y must be memory of its own but is overlapping x");
  relu.max_length = 0;
  EXPECT_EQ(Message(relu, {.x = p.x}, p.x),
            "[apply_features] max_length must be 1 or more but is 0");
  const std::vector<std::int64_t> positions = {1, 2};
  relu.max_length = 1;
  EXPECT_EQ(Message(relu, {.x = p.x, .positions = TensorView::Of(positions.data(), {2})}, p.y),
            "[apply_features] positions must be contiguous int64 [B or N] = [1] but is int64 [2]");
}

TEST(ApplyFeaturesGradient, WritesWhatIsAskedFor) {
  const MapCase c(FeatureMap::kRfa, 4, 5);
  const MapProblem p(c, DType::kFloat64, 1, 2, 2);
  Tensor dy(DType::kFloat64, p.y.shape()), dx(DType::kFloat64, p.x.shape());
  Tensor dw(DType::kFloat64, p.w.shape()), alone(DType::kFloat64, p.x.shape());
  for (double& g : dy.as<double>()) g = 1;
  ApplyFeaturesGradient(c.function, {p.x, p.w}, dy, {.dx = dx, .dw = dw});
  ApplyFeaturesGradient(c.function, {p.x, p.w}, dy, {.dx = alone});
  double size = 0;
  for (std::size_t i = 0; i < dx.as<double>().size(); ++i) {
    EXPECT_EQ(dx.as<double>()[i], alone.as<double>()[i]);
    size += std::abs(dx.as<double>()[i]);
  }
  EXPECT_GT(size, 0);
  EXPECT_THROW(ApplyFeaturesGradient(c.function, {.x = p.x}, dy, {.dw = dw}), Error);
  EXPECT_THROW(ApplyFeaturesGradient(c.function, {p.x, p.w}, dy, {.dx = dw}), Error);
}

}  // namespace
}  // namespace ttr::rows
