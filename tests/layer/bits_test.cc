// The same bits, as layer.h promises them.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/calls.h"
#include "tests/support/gradients.h"
#include "tests/support/recipes.h"
#include "ttr/layer.h"

namespace ttr {
namespace {

using test::Call;
using test::LargestDifference;
using test::Result;

Dims SomeDims(const Recipe& recipe) {
  Dims dims = test::SmallDims(recipe);
  dims.batch = 3;
  dims.tokens = 150;
  dims.value_dim = dims.key_dim == dims.value_dim ? 12 : 40;
  dims.key_dim = 12;
  return dims;
}

// Batch row b of a call's inputs, as a batch of one.
Inputs RowOf(const Call& call, std::int64_t b) {
  Inputs inputs = call.inputs;
  for (const InputSpec& spec : InputSpecs(call.recipe)) {
    TensorView& view = inputs.*spec.view;
    if (view.defined() && spec.shapes.front().front() == Axis::kBatch) view = view.Slice(0, b, 1);
  }
  return inputs;
}

void ExpectSameState(const State& got, const State& expected, std::int64_t row, const char* what) {
  for (const State::Entry& entry : expected.entries()) {
    TensorView mine = got.Get(entry.name);
    ASSERT_TRUE(mine.defined()) << entry.name;
    if (row >= 0) mine = mine.Slice(0, row, 1);
    // Beside longer sequences there are rows behind those of the pairs.
    if (got.Get("state.k").defined() && entry.view.rank() > 2) {
      mine = mine.Slice(1, 0, entry.view.size(1));
    }
    EXPECT_EQ(LargestDifference(mine, entry.view), 0) << entry.name << ", " << what;
  }
}

class Bits : public ::testing::TestWithParam<std::string> {
 protected:
  Bits() : recipe(ParseRecipe(GetParam())), layer(recipe) {}

  Recipe recipe;
  Layer layer;
};

std::vector<std::string> FastRecipes() {
  std::vector<std::string> names = test::LayerRecipes();
  std::erase_if(names, [](const std::string& name) {
    const Recipe recipe = ParseRecipe(name);
    // Of degree 3 these sizes are the definition's, of degree 2 they are slow.
    const bool many =
        recipe.function.kind == FunctionClass::kPolynomial && recipe.function.degree > 1;
    return MakePlan(recipe).engine == kDefinition || many;
  });
  return names;
}
INSTANTIATE_TEST_SUITE_P(Recipes, Bits, ::testing::ValuesIn(FastRecipes()), test::CaseName);

TEST_P(Bits, OfAnyThreads) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    const Call call(recipe, SomeDims(recipe), dtype, 21);
    const Result one = RunWhole(layer, call, {.executor = &SequentialExecutor()});
    const auto five = MakeExecutor(5);
    const Result several = RunWhole(layer, call, {.executor = five.get()});
    EXPECT_EQ(LargestDifference(one.y, several.y), 0);
    ExpectSameState(several.state, one.state, -1, "threads");
  }
}

TEST_P(Bits, OfAnyBatchAround) {
  const Call call(recipe, SomeDims(recipe), DType::kFloat32, 21);
  const Result whole = RunWhole(layer, call);
  for (std::int64_t b = 0; b < call.dims.batch; ++b) {
    Tensor y(DType::kFloat32, whole.y.view().Slice(0, b, 1).shape());
    State state;
    layer.Forward(RowOf(call, b), state, {.y = y});
    test::TrimPairs(recipe, state);
    EXPECT_EQ(LargestDifference(whole.y.view().Slice(0, b, 1), y), 0) << b;
    ExpectSameState(whole.state, state, b, "batch");
  }
}

TEST_P(Bits, PackedAndAlone) {
  const Call call(recipe, SomeDims(recipe), DType::kFloat32, 21);
  const std::vector<std::int64_t> bounds{0, 70, 74, 150};  // up to 3 rows are decoded
  const Result packed = RunPacked(layer, call, bounds);
  for (std::size_t n = 0; n + 1 < bounds.size(); ++n) {
    const std::int64_t count = bounds[n + 1] - bounds[n];
    const Result alone = RunTokens(layer, call, bounds[n], count);
    EXPECT_EQ(LargestDifference(packed.y.view().Slice(1, bounds[n], count), alone.y), 0) << n;
    ExpectSameState(packed.state, alone.state, static_cast<std::int64_t>(n), "packed");
  }
}

TEST_P(Bits, CutAtMultiplesOf64Rows) {
  if (!recipe.reading.causal) GTEST_SKIP() << "nothing to go on from";
  if (64 % recipe.optimizer.mini_batch != 0) GTEST_SKIP() << "cut inside a mini-batch";
  const bool weighs =
      (layer.plan().engine == "kernel_smoother" || layer.plan().engine == "local_polynomial") &&
      (recipe.weights.decay != Decay::kNone || recipe.weights.importance != Importance::kNone);
  const bool sums =
      layer.plan().engine == "least_squares" || layer.plan().engine == "kernel_dictionary";
  if (sums || recipe.weights.importance == Importance::kLog || weighs) {
    GTEST_SKIP() << "its sums are wider than its state";
  }
  const Call call(recipe, SomeDims(recipe), DType::kFloat32, 21);
  const Result whole = RunWhole(layer, call), cut = RunInPieces(layer, call, 64);
  EXPECT_EQ(LargestDifference(whole.y, cut.y), 0);
  ExpectSameState(cut.state, whole.state, -1, "cut");
}

TEST_P(Bits, OfGradients) {
  if (!layer.HasGradients()) GTEST_SKIP() << "differences of the definition";
  const Call call(recipe, SomeDims(recipe), DType::kFloat32, 21);
  const Tensor dy = test::Normal(DType::kFloat32, OutputShape(call.dims), 3);
  const auto five = MakeExecutor(5);
  const test::Gradients one =
      test::Differentiate(layer, call.inputs, {}, dy, {}, {.executor = &SequentialExecutor()});
  const test::Gradients several =
      test::Differentiate(layer, call.inputs, {}, dy, {}, {.executor = five.get()});
  for (const InputSpec& spec : InputSpecs(call.recipe)) {
    const TensorView gradient = one.inputs.*spec.view;
    if (!gradient.defined()) continue;
    EXPECT_EQ(LargestDifference(gradient, several.inputs.*spec.view), 0) << spec.name;
  }
  for (std::int64_t b = 0; b < call.dims.batch; ++b) {
    const test::Gradients row =
        test::Differentiate(layer, RowOf(call, b), {}, dy.view().Slice(0, b, 1), {});
    for (const InputSpec& spec : InputSpecs(call.recipe)) {
      const TensorView gradient = row.inputs.*spec.view;
      if (!gradient.defined() || spec.shapes.front().front() != Axis::kBatch) continue;
      EXPECT_EQ(LargestDifference((one.inputs.*spec.view).Slice(0, b, 1), gradient), 0)
          << spec.name << " of row " << b;
    }
  }
}

}  // namespace
}  // namespace ttr
