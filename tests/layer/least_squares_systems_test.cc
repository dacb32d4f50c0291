// Tokens that each have a system of their own (a ridge that does not fade beside what does):
// blocks, lanes, and what may not pass between them.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "tests/support/calls.h"
#include "ttr/layer.h"
#include "ttr/target.h"

namespace ttr {
namespace {

using test::Call;
using test::RunWhole;

constexpr double kInf = std::numeric_limits<double>::infinity();

Dims DimsOf(std::int64_t tokens, std::int64_t key_dim, std::int64_t value_dim) {
  Dims dims;
  dims.tokens = tokens;
  dims.key_dim = key_dim;
  dims.value_dim = value_dim;
  dims.heads = dims.key_heads = dims.value_heads = 2;
  dims.query_heads = 4;
  return dims;
}

double LargestOf(const Tensor& tensor) {
  double largest = 0;
  const Tensor numbers = Tensor::Copy(tensor.view(), DType::kFloat64);
  for (const double x : numbers.as<double>()) largest = std::max(largest, std::abs(x));
  return largest;
}

// Dimensions around whole panels, squares and blocks, counts of tokens around whole lanes, several
// queries a memory, scratch full of NaN. The ridge keeps the systems well conditioned.
TEST(LeastSquaresSystems, AgreeWithTheDefinitionAtEverySize) {
  struct Size {
    std::int64_t tokens, key_dim, value_dim, queries;
  };
  for (const Size& size : {Size{9, 1, 1, 1}, Size{33, 4, 3, 3}, Size{64, 5, 16, 2},
                           Size{257, 16, 17, 1}, Size{15, 63, 64, 1}, Size{300, 17, 5, 5},
                           Size{50, 64, 64, 2}, Size{17, 129, 20, 1}, Size{7, 256, 256, 2}}) {
    for (const char* recipe : {"mesa", "mesa{ridge_kind: relative, read: before}"}) {
      for (const DType dtype : {DType::kFloat64, DType::kFloat32, DType::kBFloat16}) {
        Dims dims = DimsOf(size.tokens, size.key_dim, size.value_dim);
        dims.query_heads = 2 * size.queries;
        const Call call(ParseRecipe(recipe), dims, dtype, 3);
        const Tensor defined = RunWhole(Layer(call.recipe, kDefinition), call).y;
        const Layer layer(call.recipe);
        ASSERT_EQ(layer.plan().engine, "least_squares");
        std::vector<std::byte> scratch(layer.ScratchBytes(call.dims, 1), std::byte{0xff});
        const Tensor computed =
            RunWhole(layer, call,
                     {.executor = &SequentialExecutor(), .scratch = std::span<std::byte>(scratch)})
                .y;
        const double tolerance = dtype == DType::kFloat64   ? 1e-12
                                 : dtype == DType::kFloat32 ? 1e-4
                                                            : 1.0 / 128;
        EXPECT_LE(test::LargestDifference(defined, computed), tolerance * (1 + LargestOf(defined)))
            << recipe << " D " << size.key_dim << ", " << size.tokens << " tokens, " << Name(dtype);
      }
    }
  }
}

// What is not finite reaches its token and later ones alone, wherever it stands in a block, and no
// farther than where the memory is forgotten.
TEST(LeastSquaresSystems, KeepsWhatIsNotFiniteFromEarlierTokens) {
  for (const char* recipe : {"mesa", "mesa{ridge_kind: relative}", "mesa{read: before}"}) {
    for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
      for (const std::int64_t bad : {0, 1, 70, 137, 299}) {
        Call call(ParseRecipe(recipe), DimsOf(300, 5, 3), dtype, 5);
        const Layer layer(call.recipe);
        const TensorView& gates = call.inputs.log_decay;
        const std::int64_t forgotten = bad + 90;
        for (std::int64_t h = 0; h < 2 && forgotten < 300; ++h) gates.Set({0, forgotten, h}, -kInf);
        const Tensor whole = RunWhole(layer, call).y;
        for (const double number : {kInf, std::numeric_limits<double>::quiet_NaN()}) {
          call.inputs.k.Set({0, bad, 0, 2}, number);
          const test::Result result = RunWhole(layer, call);
          const std::int64_t late = call.recipe.reading.read == Read::kBefore ? 1 : 0;
          for (std::int64_t t = 0; t < 300; ++t) {
            for (std::int64_t h = 0; h < 4; ++h) {
              const bool reached = h < 2 && t >= bad + late && t < forgotten + late;
              const double y = result.y.view().At({0, t, h, 1});
              const double of_numbers = whole.view().At({0, t, h, 1});
              if (reached) {
                EXPECT_TRUE(std::isnan(y)) << recipe << " " << bad << " token " << t;
              } else {
                EXPECT_NEAR(y, of_numbers, 1e-4 * (1 + std::abs(of_numbers)))
                    << recipe << " " << bad << " token " << t;
              }
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace ttr
