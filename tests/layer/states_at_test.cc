// States at inner tokens of one call: those of calls that end there.
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "src/recipe/family.h"
#include "tests/layer/decoder_calls.h"
#include "tests/support/calls.h"
#include "tests/support/recipes.h"
#include "ttr/error.h"
#include "ttr/layer.h"

namespace ttr {
namespace {

using test::Call;
using test::ErrorOf;
using test::LargestDifference;
using Places = std::vector<std::int64_t>;

std::vector<std::string> Recipes() {
  std::vector<std::string> recipes = test::LayerRecipes();
  std::erase_if(recipes, [](const std::string& text) { return !ParseRecipe(text).reading.causal; });
  return recipes;
}

class StatesAt : public ::testing::TestWithParam<std::string> {
 protected:
  StatesAt() : layer(ParseRecipe(GetParam())) {}

  Dims Sizes(std::int64_t batch, std::int64_t tokens) const {
    Dims dims = test::SmallDims(layer.recipe());
    dims.batch = batch;
    dims.tokens = tokens;
    return dims;
  }
  void ExpectStates(State& a, State& b, const std::string& where) const {
    test::TrimPairs(layer.recipe(), a);
    test::TrimPairs(layer.recipe(), b);
    ASSERT_EQ(a.entries().size(), b.entries().size()) << where;
    for (const State::Entry& entry : a.entries()) {
      EXPECT_LE(LargestDifference(entry.view, b.Get(entry.name)), 1e-8)
          << where << ", " << entry.name;
    }
  }

  Layer layer;
};

INSTANTIATE_TEST_SUITE_P(Recipes, StatesAt, ::testing::ValuesIn(Recipes()), test::CaseName);

// What a call leaves whose outputs were NaN before.
Tensor ForwardAt(const Layer& layer, const Call& call, const Inputs& inputs, State& state,
                 const Places& at, std::vector<State>& states) {
  const TensorView& v = inputs.v;
  Tensor y(v.dtype(), {v.size(0), v.size(1) / RowsPerToken(call.recipe), call.dims.output_heads(),
                       call.dims.value_dim});
  test::Fill(y, std::numeric_limits<double>::quiet_NaN());
  states.resize(at.size());
  layer.Forward(inputs, state, {.y = y}, at, states);
  return y;
}

TEST_P(StatesAt, AreThoseOfCallsThatEndThere) {
  const Call call(layer.recipe(), Sizes(2, 23), DType::kFloat64, 3);
  const test::Result whole = test::RunWhole(layer, call);
  for (const Places& at : {Places{}, Places{1, 5, 16}, Places{23}}) {
    State state;
    std::vector<State> states;
    const Tensor y = ForwardAt(layer, call, call.inputs, state, at, states);
    EXPECT_LE(LargestDifference(y, whole.y), 1e-8);
    State last = whole.state;
    ExpectStates(state, last, "the end");
    for (std::size_t i = 0; i < at.size(); ++i) {
      State prefix, rest;
      std::vector<State> none;
      ForwardAt(layer, call, test::TokensOf(call, 0, at[i]), prefix, {}, none);
      ExpectStates(states[i], prefix, std::to_string(at[i]));
      if (at[i] == call.dims.tokens) continue;
      // The bits of a run that begins there.
      const std::int64_t end = i + 1 < at.size() ? at[i + 1] : call.dims.tokens;
      const Tensor again =
          ForwardAt(layer, call, test::TokensOf(call, at[i], end - at[i]), states[i], {}, none);
      EXPECT_EQ(LargestDifference(again, y.view().Slice(1, at[i], end - at[i])), 0) << at[i];
    }
  }
}

// Places within a sequence, at its end, and behind an empty one.
TEST_P(StatesAt, AreOfTheirOwnSequence) {
  const Call call(layer.recipe(), Sizes(1, 33), DType::kFloat64, 4);
  std::vector<std::int64_t> bounds = {0, 7, 7, 20, 33};
  Inputs inputs = call.inputs;
  inputs.cu_seqlens = TensorView::Of(bounds.data(), {5});
  const Places at = {3, 7, 15, 33};
  State state;
  std::vector<State> states;
  if (KeepsPairs(layer.recipe())) {
    EXPECT_EQ(ErrorOf([&] { ForwardAt(layer, call, inputs, state, at, states); }),
              "[Forward] at must be absent for packed sequences of a memory that keeps pairs but "
              "is 4 places");
    return;
  }
  const Tensor y = ForwardAt(layer, call, inputs, state, at, states);
  test::Result whole = test::RunPacked(layer, call, bounds);
  EXPECT_LE(LargestDifference(y, whole.y), 1e-8);
  ExpectStates(state, whole.state, "the end");
  const Places begins = {0, 0, 7, 20};
  for (std::size_t i = 0; i < at.size(); ++i) {
    test::Result prefix = test::RunTokens(layer, call, begins[i], at[i] - begins[i]);
    ExpectStates(states[i], prefix.state, std::to_string(at[i]));
  }
}

// Packed sequences that go on from states of the caller's, which are updated where they lie.
TEST(StatesAtInPlace, GoesOnFromTheCallersStates) {
  const Layer layer("gated_deltanet");
  Dims dims = test::SmallDims(layer.recipe());
  dims.batch = 1;
  dims.tokens = 20;
  const Call call(layer.recipe(), dims, DType::kFloat64, 6);
  std::vector<std::int64_t> bounds = {0, 8, 20};
  Inputs inputs = call.inputs;
  inputs.cu_seqlens = TensorView::Of(bounds.data(), {3});
  State first, whole;
  std::vector<State> states;
  ForwardAt(layer, call, inputs, first, {}, states);
  const Tensor there = Tensor::Copy(first.Get("state"));
  State mine;
  mine.Bind("state", there);
  whole.Set("state", Tensor::Copy(there));
  const Tensor expected = ForwardAt(layer, call, inputs, whole, {}, states);
  const Tensor y = ForwardAt(layer, call, inputs, mine, {5, 12}, states);
  EXPECT_LE(LargestDifference(y, expected), 1e-10);
  EXPECT_EQ(mine.Get("state").data(), there.data());
  EXPECT_LE(LargestDifference(there, whole.Get("state")), 1e-10);
}

TEST(StatesAtErrors, NameWhatIsWrong) {
  const Layer layer(ParseRecipe("gated_deltanet"));
  Dims dims = test::SomeDims();
  dims.tokens = 9;
  const Call call(layer.recipe(), dims, DType::kFloat32, 1);
  const auto error = [&](const Places& at) {
    State state;
    std::vector<State> states;
    return ErrorOf([&] { ForwardAt(layer, call, call.inputs, state, at, states); });
  };
  EXPECT_EQ(error({0}),
            "[Forward] at must be rising from 1 to 9, the number of tokens but is 0 "
            "behind 0");
  EXPECT_EQ(error({4, 4}),
            "[Forward] at must be rising from 1 to 9, the number of tokens but is 4 "
            "behind 4");
  EXPECT_EQ(error({4, 10}),
            "[Forward] at must be rising from 1 to 9, the number of tokens but is "
            "10 behind 4");
  EXPECT_EQ(error({1, 9}), "no error");
  State state;
  Tensor y(DType::kFloat32, OutputShape(call.dims));
  EXPECT_EQ(ErrorOf([&] { layer.Forward(call.inputs, state, {.y = y}, Places{3}, {}); }),
            "[Forward] states must be 1, one for each place but is 0");
}

}  // namespace
}  // namespace ttr
