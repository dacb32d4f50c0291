// Bits are the same where layer.h promises it, in scratch of the size that it says.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/calls.h"
#include "tests/support/engines.h"
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

  // With the sizes that follow from the others.
  Dims DimsOf(const Call& call) const {
    return CheckInputs("Bits", layer.requirements(), call.inputs);
  }

  Recipe recipe;
  Layer layer;
};

std::vector<std::string> FastRecipes() {
  std::vector<std::string> names = test::LayerRecipes();
  std::erase_if(names, [](const std::string& name) {
    const Recipe recipe = ParseRecipe(name);
    // These sizes are the definition's at degree 3, and slow at degree 2.
    const bool many =
        recipe.function.kind == FunctionClass::kPolynomial && recipe.function.degree > 1;
    return MakePlan(recipe).engine == kDefinition || many;
  });
  return names;
}
INSTANTIATE_TEST_SUITE_P(Recipes, Bits, ::testing::ValuesIn(FastRecipes()), test::CaseName);

void ExpectSame(const Result& got, const Result& expected, const char* what) {
  EXPECT_EQ(LargestDifference(got.y, expected.y), 0) << what;
  ExpectSameState(got.state, expected.state, -1, what);
}

TEST_P(Bits, OfAnyThreads) {
  const auto five = MakeExecutor(5);
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    const Call call(recipe, SomeDims(recipe), dtype, 21);
    std::vector<std::byte> scratch(layer.ScratchBytes(DimsOf(call), 5), std::byte{0xff});
    const Result one = RunWhole(layer, call, {.executor = &SequentialExecutor()});
    const CallOptions several{.executor = five.get(), .scratch = scratch};
    ExpectSame(RunWhole(layer, call, several), one, "threads");
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

// Row b as a call of its own.
struct RowCall : Call {
  RowCall(const Call& of, std::int64_t b) : Call(of.recipe, of.dims, DType::kFloat32, 21) {
    inputs = RowOf(*this, b);
    dims.batch = 1;
  }
};

// By Step and by a Decoder.
TEST_P(Bits, OfSingleTokens) {
  if (!recipe.reading.causal) GTEST_SKIP() << "no single tokens";
  Dims dims = SomeDims(recipe);
  dims.tokens = 9;
  const Call call(recipe, dims, DType::kFloat32, 21);
  const auto five = MakeExecutor(5);
  const CallOptions one{.executor = &SequentialExecutor()}, several{.executor = five.get()};
  const Result steps = RunInPieces(layer, call, 1, one), decoded = RunDecoder(layer, call, one);
  ExpectSame(RunInPieces(layer, call, 1, several), steps, "threads, steps");
  ExpectSame(RunDecoder(layer, call, several), decoded, "threads, decoder");
  for (std::int64_t b = 0; b < dims.batch; ++b) {
    const RowCall row(call, b);
    const Result step = RunInPieces(layer, row, 1), decode = RunDecoder(layer, row);
    EXPECT_EQ(LargestDifference(steps.y.view().Slice(0, b, 1), step.y), 0) << b;
    EXPECT_EQ(LargestDifference(decoded.y.view().Slice(0, b, 1), decode.y), 0) << b;
    ExpectSameState(steps.state, step.state, b, "batch, steps");
    ExpectSameState(decoded.state, decode.state, b, "batch, decoder");
  }
}

// Memorize, then Retrieve.
Result WriteAndRead(const Layer& layer, const Call& call, const CallOptions& options = {}) {
  Result result;
  result.y = Tensor(DType::kFloat32, OutputShape(call.dims));
  Inputs writes = call.inputs, reads = call.inputs;
  writes.q = {};
  for (const InputSpec& spec : InputSpecs(call.recipe)) {
    if (spec.shapes.front().front() == Axis::kBatch && !spec.of_query) reads.*spec.view = {};
  }
  layer.Memorize(writes, result.state, options);
  layer.Retrieve(reads, result.state, {.y = result.y}, options);
  test::TrimPairs(call.recipe, result.state);
  return result;
}

TEST_P(Bits, OfWritesAndReads) {
  const Call call(recipe, SomeDims(recipe), DType::kFloat32, 21);
  if (!recipe.reading.causal || recipe.reading.correction != 0 || !call.inputs.q.defined()) {
    GTEST_SKIP() << "not written and read apart";
  }
  const auto five = MakeExecutor(5);
  const Result one = WriteAndRead(layer, call, {.executor = &SequentialExecutor()});
  ExpectSame(WriteAndRead(layer, call, {.executor = five.get()}), one, "threads");
  for (std::int64_t b = 0; b < call.dims.batch; ++b) {
    const Result row = WriteAndRead(layer, RowCall(call, b));
    EXPECT_EQ(LargestDifference(one.y.view().Slice(0, b, 1), row.y), 0) << b;
    ExpectSameState(one.state, row.state, b, "batch");
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
  const std::string_view engine = layer.plan().engine;
  const bool sums =
      engine == "least_squares" || engine == "kernel_dictionary" || engine == "curvature";
  if (sums || recipe.weights.importance == Importance::kLog || weighs) {
    GTEST_SKIP() << "its sums are wider than its state";
  }
  const Call call(recipe, SomeDims(recipe), DType::kFloat32, 21);
  const Result whole = RunWhole(layer, call), cut = RunInPieces(layer, call, 64);
  EXPECT_EQ(LargestDifference(whole.y, cut.y), 0);
  ExpectSameState(cut.state, whole.state, -1, "cut");
}

TEST_P(Bits, OfCallsThatSave) {
  const Call call(recipe, SomeDims(recipe), DType::kFloat32, 21);
  test::AlignedBytes saved(layer.SavedBytes(DimsOf(call)), std::byte{0xff});
  if (saved.empty()) GTEST_SKIP() << "nothing to save";
  ExpectSame(RunWhole(layer, call, {.saved = saved}), RunWhole(layer, call), "saved");
}

TEST_P(Bits, OfGradients) {
  if (!layer.HasGradients()) GTEST_SKIP() << "differences of the definition";
  const Call call(recipe, SomeDims(recipe), DType::kFloat32, 21);
  const Tensor dy = test::Normal(DType::kFloat32, OutputShape(call.dims), 3);
  const auto five = MakeExecutor(5);
  std::vector<std::byte> scratch(layer.BackwardScratchBytes(DimsOf(call), 5), std::byte{0xff});
  const test::Gradients one =
      test::Differentiate(layer, call.inputs, {}, dy, {}, {.executor = &SequentialExecutor()});
  const test::Gradients several = test::Differentiate(layer, call.inputs, {}, dy, {},
                                                      {.executor = five.get(), .scratch = scratch});
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

// Few tokens fill no unit of rows; what scratch held before must not count. Infinity passes
// comparisons that NaN does not.
TEST_P(Bits, OfFewTokensWhateverScratchHeld) {
  Dims dims = SomeDims(recipe);
  dims.batch = 1;
  dims.tokens = 4;
  const Call call(recipe, dims, DType::kFloat32, 21);
  const Tensor dy = test::Normal(DType::kFloat32, OutputShape(dims), 3);
  const bool differentiates = layer.HasGradients();
  const std::size_t bytes =
      std::max(layer.ScratchBytes(DimsOf(call), 1),
               differentiates ? layer.BackwardScratchBytes(DimsOf(call), 1) : 0);
  std::vector<float> scratch(bytes / sizeof(float) + 64);
  const auto with = [&](float held) {
    std::ranges::fill(scratch, held);
    return ttr::CallOptions{.executor = &SequentialExecutor(),
                            .scratch = std::as_writable_bytes(std::span(scratch))};
  };
  const float infinite = std::numeric_limits<float>::infinity();
  ExpectSame(RunWhole(layer, call, with(0)), RunWhole(layer, call, with(infinite)), "forward");
  if (!differentiates) return;
  const test::Gradients clean = test::Differentiate(layer, call.inputs, {}, dy, {}, with(0));
  for (const float held : {infinite, std::numeric_limits<float>::quiet_NaN()}) {
    const test::Gradients other = test::Differentiate(layer, call.inputs, {}, dy, {}, with(held));
    for (const InputSpec& spec : InputSpecs(recipe)) {
      const TensorView gradient = clean.inputs.*spec.view;
      if (!gradient.defined()) continue;
      EXPECT_EQ(LargestDifference(gradient, other.inputs.*spec.view), 0)
          << spec.name << " " << held;
    }
  }
}

TEST_P(Bits, OfGradientsPackedAndAlone) {
  if (!layer.HasGradients()) GTEST_SKIP() << "differences of the definition";
  Dims dims = SomeDims(recipe);
  dims.batch = 1;
  const Call call(recipe, dims, DType::kFloat32, 21);
  const Tensor dy = test::Normal(DType::kFloat32, OutputShape(dims), 3);
  const std::vector<std::int64_t> bounds{0, 70, 74, 150};
  Inputs packed = call.inputs;
  packed.cu_seqlens = TensorView::Of(bounds.data(), {static_cast<std::int64_t>(bounds.size())});
  const test::Gradients together = test::Differentiate(layer, packed, {}, dy, {});
  for (std::size_t n = 0; n + 1 < bounds.size(); ++n) {
    const std::int64_t first = bounds[n], count = bounds[n + 1] - first;
    const test::Gradients alone = test::Differentiate(layer, test::TokensOf(call, first, count), {},
                                                      dy.view().Slice(1, first, count), {});
    for (const InputSpec& spec : InputSpecs(recipe)) {
      const TensorView gradient = alone.inputs.*spec.view;
      if (!gradient.defined() || spec.shapes.front().front() != Axis::kBatch) continue;
      const std::int64_t rows = gradient.size(1) / count;  // of a token
      const TensorView mine = (together.inputs.*spec.view).Slice(1, first * rows, count * rows);
      EXPECT_EQ(LargestDifference(mine, gradient), 0) << spec.name << " of sequence " << n;
    }
  }
}

}  // namespace
}  // namespace ttr
