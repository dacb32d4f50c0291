// Regressions without a ridge, while they become determined: what rounding leaves of a direction
// that was never seen is no number, however nearly dependent the ones before are.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "tests/support/calls.h"
#include "ttr/layer.h"
#include "ttr/util/random.h"

namespace ttr {
namespace {

using test::Call;
using test::Result;

struct Case {
  const char* name;
  const char* recipe;
};
void PrintTo(const Case& one, std::ostream* out) { *out << one.recipe; }

class Rank : public testing::TestWithParam<Case> {};

INSTANTIATE_TEST_SUITE_P(
    All, Rank,
    testing::Values(Case{"Exact", "uniform | linear | exact"},
                    Case{"NotCausal", "uniform | linear | exact | reading(causal: false)"},
                    Case{"Relative", "decay(0.99) | linear | exact(ridge_kind: relative)"},
                    Case{"Blocks",
                         "uniform | linear | gradient(preconditioner: block_diagonal, block: 4)"}),
    [](const auto& one) { return std::string(one.param.name); });

// Keys become `rank` directions' multiples.
void Restrict(const Call& call, std::int64_t rank, std::uint64_t seed) {
  const std::int64_t n = call.dims.key_dim;
  CounterRandom random(seed, 7);
  std::vector<double> directions(static_cast<std::size_t>(rank * n)), key(n);
  for (double& x : directions) x = random.Normal() / std::sqrt(static_cast<double>(n));
  for (std::int64_t t = 0; t < call.dims.tokens; ++t) {
    std::ranges::fill(key, 0);
    for (std::int64_t r = 0; r < rank; ++r) {
      const double share = random.Normal();
      for (std::int64_t i = 0; i < n; ++i) key[i] += share * directions[r * n + i];
    }
    for (std::int64_t i = 0; i < n; ++i) call.inputs.k.Set({0, t, 0, i}, key[i]);
  }
}

// Within the square of a condition of thousands, times eps.
void ExpectNear(const Result& expected, const Result& got, const std::string& what) {
  const TensorView y = expected.y.view();
  for (std::int64_t t = 0; t < y.size(1); ++t) {
    double size = 1, error = 0;
    for (std::int64_t c = 0; c < y.size(3); ++c) {
      size = std::max(size, std::abs(y.At({0, t, 0, c})));
      error = std::max(error, std::abs(got.y.view().At({0, t, 0, c}) - y.At({0, t, 0, c})));
    }
    EXPECT_LE(error, 1e-5 * size) << what << ", token " << t;
    EXPECT_LT(size, 1e5) << what << ", token " << t;
  }
}

TEST_P(Rank, IsThatOfTheDefinition) {
  const Recipe recipe = ParseRecipe(GetParam().recipe);
  const Layer layer(recipe), definition(recipe, kDefinition);
  ASSERT_EQ(layer.plan().engine, "least_squares");
  for (const std::int64_t key_dim : {6, 19}) {
    Dims dims = test::TwoMemories(key_dim + 7, key_dim, 4);
    dims.heads = dims.key_heads = dims.value_heads = dims.query_heads = 1;
    for (std::int64_t seed = 0; seed < 500; ++seed) {
      const auto drawn = static_cast<std::uint64_t>(seed);
      const Call call(recipe, dims, DType::kFloat64, drawn);
      if (seed % 2 == 1) Restrict(call, 1 + seed % 97 % (key_dim - 1), drawn);
      const std::string what =
          "seed " + std::to_string(seed) + " of " + std::to_string(key_dim) + " channels";
      const Result expected = RunWhole(definition, call);
      ExpectNear(expected, RunWhole(layer, call), what);
      if (!recipe.reading.causal) continue;
      ExpectNear(expected, RunInPieces(layer, call, 1), what + ", token by token");
      ExpectNear(expected, test::RunDecoder(layer, call), what + ", deferred");
    }
  }
}

// After one step nothing is left of q but what no x reaches: the next would be along rounding.
TEST(ConjugateGradients, EndWhereNothingIsToBeSolved) {
  struct One {
    const char* text;
    double most;
  };
  // A preconditioner's own roundings are of its largest part, which q may have little of.
  for (const auto& [text, most] :
       {One{"uniform | linear | conjugate_gradient(steps: 4)", 1e6},
        One{"uniform | linear | conjugate_gradient(steps: 6, preconditioner: low_rank)", 1e9}}) {
    const Recipe recipe = ParseRecipe(text);
    const Layer layer(recipe), definition(recipe, kDefinition);
    Dims dims = test::TwoMemories(2, 19, 4);
    for (std::uint64_t seed = 0; seed < 1000; ++seed) {
      const Call call(recipe, dims, DType::kFloat64, seed);
      for (const Layer& of : {layer, definition}) {
        const Result got = RunWhole(of, call);
        for (std::int64_t h = 0; h < dims.heads; ++h) {
          EXPECT_EQ(got.status.view().At({0, 0, h}), 2) << text << ", seed " << seed;
          for (std::int64_t c = 0; c < dims.value_dim; ++c) {
            EXPECT_LT(std::abs(got.y.view().At({0, 0, h, c})), most) << text << ", seed " << seed;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace ttr
