// Every layer of the zoo, through the public API: it runs; cut anywhere or token by token it gives
// the same; heads and sequences do not meet; NaN stays where it belongs.
#include "ttr/zoo.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "src/recipe/family.h"
#include "tests/support/calls.h"
#include "tests/support/recipes.h"
#include "tests/support/regressions.h"
#include "ttr/error.h"

namespace ttr {
namespace {

using test::Call;
using test::LargestDifference;
using test::RunInPieces;
using test::RunWhole;

class ZooLayer : public ::testing::TestWithParam<std::string> {
 protected:
  Recipe recipe() const { return ParseRecipe(GetParam()); }
};

INSTANTIATE_TEST_SUITE_P(All, ZooLayer, ::testing::ValuesIn(test::LayerRecipes()), test::CaseName);

TEST_P(ZooLayer, RunsOnTheDefinition) {
  const Call call(recipe(), test::SmallDims(recipe()), DType::kFloat64, 1);
  const test::Result result = RunWhole(Layer(recipe(), kDefinition), call);
  double largest = 0;
  for (const double y : result.y.as<double>()) {
    ASSERT_TRUE(std::isfinite(y));
    largest = std::max(largest, std::abs(y));
  }
  EXPECT_GT(largest, 0);
  EXPECT_EQ(result.state.empty(), !recipe().reading.causal);
}

TEST_P(ZooLayer, WholeIsSplitIsStep) {
  if (!recipe().reading.causal) GTEST_SKIP() << "reads the whole sequence at once";
  const Call call(recipe(), test::SmallDims(recipe()), DType::kFloat64, 2);
  for (const std::string_view engine : {kDefinition, MakePlan(recipe()).engine}) {
    const Layer layer(recipe(), engine);
    const test::Result whole = RunWhole(layer, call);
    // A quotient by a small sum has the condition of its own size.
    double size = 1;
    for (const double y : whole.y.as<double>()) size = std::max(size, std::abs(y));
    const auto expect = [&](const test::Result& pieces, const std::string& what) {
      EXPECT_LT(LargestDifference(whole.y, pieces.y), 1e-12 * size * size) << what;
      for (const State::Entry& entry : whole.state.entries()) {
        EXPECT_LT(LargestDifference(entry.view, pieces.state.Get(entry.name)), 1e-11)
            << entry.name << ", " << what;
      }
    };
    for (const std::int64_t piece : {1, 3, 5}) {
      expect(RunInPieces(layer, call, piece), "pieces of " + std::to_string(piece));
    }
    expect(RunDecoder(layer, call), "deferred");
  }
}

TEST_P(ZooLayer, PackedSequencesDoNotMeet) {
  const Dims dims = test::SmallDims(recipe());
  const Call call(recipe(), dims, DType::kFloat64, 3);
  const Layer layer(recipe(), kDefinition);
  // The tokens of batch 0 as one packed batch of three sequences: 4, none, and the rest.
  const test::Result packed = test::RunPacked(layer, call, {0, 4, 4, dims.tokens});
  const test::Result first = test::RunTokens(layer, call, 0, 4);
  const test::Result last = test::RunTokens(layer, call, 4, dims.tokens - 4);
  EXPECT_EQ(LargestDifference(packed.y.view().Slice(1, 0, 4), first.y), 0);
  EXPECT_EQ(LargestDifference(packed.y.view().Slice(1, 4, dims.tokens - 4), last.y), 0);
}

TEST_P(ZooLayer, NanReachesOnlyWhatDependsOnIt) {
  if (!recipe().reading.causal) GTEST_SKIP() << "reads the whole sequence at once";
  const Dims dims = test::SmallDims(recipe());
  const Call clean(recipe(), dims, DType::kFloat64, 4);
  Call spoilt(recipe(), dims, DType::kFloat64, 4);
  const std::int64_t row = 5 * (spoilt.inputs.v.size(1) / dims.tokens);
  spoilt.inputs.v.Set({0, row, 0, 0}, std::numeric_limits<double>::quiet_NaN());
  for (const std::string_view engine : {kDefinition, MakePlan(recipe()).engine}) {
    const Layer layer(recipe(), engine);
    const test::Result expected = RunWhole(layer, clean);
    const test::Result got = RunWhole(layer, spoilt);
    const std::int64_t spoilt_heads = dims.output_heads() / dims.value_heads;
    bool arrived = false;
    for (std::int64_t b = 0; b < dims.batch; ++b) {
      for (std::int64_t t = 0; t < dims.tokens; ++t) {
        for (std::int64_t h = 0; h < dims.output_heads(); ++h) {
          for (std::int64_t c = 0; c < dims.value_dim; ++c) {
            const double y = got.y.view().At({b, t, h, c});
            if (b == 0 && t >= 5 && h < spoilt_heads) {
              arrived = arrived || std::isnan(y);
            } else {
              // Chunks of least squares end before what is not finite, mini-batches of networks go
              // token by token, and so they round elsewhere.
              const std::string_view name = layer.plan().engine;
              const double rounding = name == "least_squares" || name == "network" ? 1e-11 : 0;
              const double clean_y = expected.y.view().At({b, t, h, c});
              ASSERT_NEAR(y, clean_y, rounding * std::max(1.0, std::abs(clean_y)))
                  << b << " " << t << " " << h;
            }
          }
        }
      }
    }
    EXPECT_TRUE(arrived);
  }
}

TEST_P(ZooLayer, ThreadsDoNotChangeBits) {
  const Call call(recipe(), test::SmallDims(recipe()), DType::kFloat32, 5);
  const Layer layer(recipe());
  const auto two = MakeExecutor(2);
  const test::Result one =
      RunWhole(layer, call, {.executor = &SequentialExecutor(), .scratch = {}});
  const test::Result other = RunWhole(layer, call, {.executor = two.get(), .scratch = {}});
  EXPECT_EQ(LargestDifference(one.y, other.y), 0);
}

TEST_P(ZooLayer, WithoutTokensTheStateIsTheStart) {
  if (!recipe().reading.causal) GTEST_SKIP() << "reads the whole sequence at once";
  Dims dims = test::SmallDims(recipe());
  dims.tokens = 0;
  const Call call(recipe(), dims, DType::kFloat64, 7);
  const Layer layer(recipe(), kDefinition);
  const test::Result result = RunWhole(layer, call);
  const State start = layer.InitialState(call.inputs);
  ASSERT_EQ(result.state.entries().size(), start.entries().size());
  for (const State::Entry& entry : start.entries()) {
    EXPECT_EQ(LargestDifference(entry.view, result.state.Get(entry.name)), 0) << entry.name;
    EXPECT_NE(entry.view.dtype(), DType::kFloat32) << entry.name;
  }
  const Call narrow(recipe(), dims, DType::kBFloat16, 7);
  const State single = layer.InitialState(narrow.inputs);
  for (const State::Entry& entry : single.entries()) {
    EXPECT_NE(entry.view.dtype(), DType::kFloat64) << entry.name;
    EXPECT_NE(entry.view.dtype(), DType::kBFloat16) << entry.name;
  }
}

TEST_P(ZooLayer, GoesFromOneStateIntoAnother) {
  if (!recipe().reading.causal) GTEST_SKIP() << "reads the whole sequence at once";
  const Dims dims = test::SmallDims(recipe());
  const Call call(recipe(), dims, DType::kFloat64, 9);
  const Layer layer(recipe());
  const Tensor y(DType::kFloat64, OutputShape(dims));
  const auto outputs = [&](std::int64_t first, std::int64_t count) {
    return Outputs{.y = y.view().Slice(1, first, count)};
  };
  State start, kept, final;
  layer.Forward(test::TokensOf(call, 0, 5), start, outputs(0, 5));
  for (const State::Entry& entry : start.entries()) kept.Set(entry.name, Tensor::Copy(entry.view));
  layer.Forward(test::TokensOf(call, 5, 6), start, final, outputs(5, 6));
  for (const State::Entry& entry : kept.entries()) {
    EXPECT_EQ(LargestDifference(entry.view, start.Get(entry.name)), 0) << entry.name;
  }
  const Tensor into = Tensor::Copy(y);
  layer.Forward(test::TokensOf(call, 5, 6), kept, outputs(5, 6));  // in place
  EXPECT_EQ(LargestDifference(into, y), 0);
  test::TrimPairs(recipe(), kept);
  test::TrimPairs(recipe(), final);
  for (const State::Entry& entry : kept.entries()) {
    EXPECT_EQ(LargestDifference(entry.view, final.Get(entry.name)), 0) << entry.name;
  }
}

// How far two answers to the last token may be apart where each is as exact as its system's
// condition says.
double LastRounding(const Call& call) {
  const Dims& dims = call.dims;
  const std::vector<test::Condition> conditions = test::Conditions(call);
  const std::vector<double> lengths = test::QueryLengths(call);
  double condition = 0;
  for (std::size_t i = 1; i <= static_cast<std::size_t>(dims.batch * dims.heads); ++i) {
    const test::Condition& last = conditions[conditions.size() - i];
    condition = std::max(condition, last.number * last.memory);
  }
  return 2 * 10 * 0x1p-52 * condition * *std::max_element(lengths.begin(), lengths.end());
}

TEST_P(ZooLayer, MemorizeThenRetrieveIsForward) {
  const Recipe r = recipe();
  if (!r.reading.causal || r.reading.read == Read::kBefore || r.reading.correction != 0) {
    GTEST_SKIP() << "reads something else than the memory after the token";
  }
  Dims dims = test::SmallDims(r);
  const Call call(r, dims, DType::kFloat64, 8);
  for (const std::string_view engine : {kDefinition, MakePlan(r).engine}) {
    const Layer layer(r, engine);
    const test::Result whole = RunWhole(layer, call);
    State state;
    Inputs writes = call.inputs;
    writes.q = {};
    layer.Memorize(writes, state);
    Inputs reads = call.inputs;  // constants stay; what belongs to tokens goes
    for (const InputSpec& spec : InputSpecs(r)) {
      if (spec.shapes.front().front() == Axis::kBatch) reads.*spec.view = {};
    }
    if (call.inputs.q.defined()) reads.q = call.inputs.q.Slice(1, dims.tokens - 1, 1);
    if (!call.inputs.q.defined()) continue;  // a gated vector has no query
    Tensor y(DType::kFloat64, {dims.batch, 1, dims.output_heads(), dims.value_dim});
    layer.Retrieve(reads, state, {y.view(), {}});
    double rounding = 1e-12;
    if (FamilyOf(r) == Family::kLeastSquares) rounding = std::max(rounding, LastRounding(call));
    EXPECT_LT(LargestDifference(whole.y.view().Slice(1, dims.tokens - 1, 1), y), rounding);
  }
}

}  // namespace
}  // namespace ttr
