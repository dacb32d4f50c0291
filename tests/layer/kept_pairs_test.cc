// Room for kept pairs: what a state owns grows, what is bound does not; windows that move now and
// then; pairs in bfloat16; a bandwidth a head.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/support/calls.h"
#include "ttr/error.h"
#include "ttr/layer.h"

namespace ttr {
namespace {

using test::Call;
using test::LargestDifference;

Dims OneSequence(std::int64_t tokens) { return test::TwoMemories(tokens, 3, 4); }

// A state whose entries lie in memory of the caller's, with room for so many pairs.
struct BoundPairs {
  BoundPairs(const Layer& layer, const Dims& dims, std::int64_t rows,
             DType dtype = DType::kFloat64) {
    for (const StateSpec& spec : layer.requirements().state) {
      const DType made = spec.counts()                    ? DType::kInt64
                         : spec.role == EntryRole::kPairs ? dtype
                                                          : DType::kFloat64;
      tensors.emplace_back(made, StateShape(spec, layer.recipe(), dims, rows));
      state.Bind(spec.name, tensors.back().view());
    }
  }
  std::vector<Tensor> tensors;
  State state;
};

std::string ErrorOf(const Layer& layer, const Inputs& inputs, State& state, const TensorView& y) {
  try {
    layer.Forward(inputs, state, {.y = y});
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

class KeptPairs : public testing::TestWithParam<std::string_view> {
 protected:
  Layer Of(const char* recipe) const {
    const Recipe parsed = ParseRecipe(recipe);
    return GetParam() == kDefinition ? Layer(parsed, kDefinition) : Layer(parsed);
  }
};
INSTANTIATE_TEST_SUITE_P(Engines, KeptPairs, testing::Values(kDefinition, "planned"),
                         [](const auto& one) { return std::string(one.param); });

TEST_P(KeptPairs, GrowToTwiceTheirSize) {
  const Layer layer = Of("decayed_softmax");
  const Call call(layer.recipe(), OneSequence(9), DType::kFloat64, 1);
  State state;
  std::vector<std::int64_t> rows;
  const Tensor y(DType::kFloat64, {1, 1, 2, 4});
  for (std::int64_t t = 0; t < 9; ++t) {
    layer.Step(test::TokensOf(call, t, 1), state, {.y = y});
    rows.push_back(state.Get("state.v").size(1));
    EXPECT_EQ(state.Get("state.length").At({0, 1}), static_cast<double>(t + 1));
  }
  EXPECT_EQ(rows, (std::vector<std::int64_t>{1, 2, 4, 4, 8, 8, 8, 8, 16}));
}

TEST_P(KeptPairs, StayInMemoryOfTheCallersWhileThereIsRoom) {
  for (const char* recipe : {"softmax", "decayed_softmax", "window_softmax{window: 3}"}) {
    const Layer layer = Of(recipe);
    const Call call(layer.recipe(), OneSequence(11), DType::kFloat64, 2);
    const test::Result whole = test::RunWhole(layer, call);
    BoundPairs bound(layer, call.dims, 11);
    const Tensor y(DType::kFloat64, OutputShape(call.dims));
    for (const auto& [first, count] : {std::pair{0, 4}, std::pair{4, 1}, std::pair{5, 6}}) {
      layer.Forward(test::TokensOf(call, first, count), bound.state,
                    {.y = y.view().Slice(1, first, count)});
    }
    EXPECT_LT(LargestDifference(y, whole.y), 1e-13) << recipe;
    for (std::size_t i = 0; i < bound.tensors.size(); ++i) {
      EXPECT_EQ(bound.state.entries()[i].view.data(), bound.tensors[i].data()) << recipe;
    }
    test::TrimPairs(layer.recipe(), bound.state);
    for (const State::Entry& entry : whole.state.entries()) {
      EXPECT_LT(LargestDifference(entry.view, bound.state.Get(entry.name)), 1e-13)
          << recipe << " " << entry.name;
    }
  }
}

TEST_P(KeptPairs, ThatAreBoundAndFullAreAnErrorBeforeAnythingIsWritten) {
  const Layer layer = Of("softmax");
  const Call call(layer.recipe(), OneSequence(5), DType::kFloat64, 3);
  BoundPairs bound(layer, call.dims, 4);
  const Tensor y(DType::kFloat64, OutputShape(call.dims));
  y.as<double>()[0] = 42;
  EXPECT_EQ(
      ErrorOf(layer, call.inputs, bound.state, y),
      "[Forward] state.k must be of S >= 5 pairs, as memory of the caller's does not grow but "
      "is of S = 4");
  EXPECT_EQ(y.as<double>()[0], 42);
  EXPECT_EQ(bound.state.Get("state.length").At({0, 0}), 0);
  layer.Forward(test::TokensOf(call, 0, 4), bound.state, {.y = y.view().Slice(1, 0, 4)});
  EXPECT_EQ(bound.state.Get("state.length").At({0, 0}), 4);
  // Room may be asked for.
  ReservePairs("test", layer.requirements(), call.dims, call.inputs, bound.state);
  EXPECT_EQ(bound.state.Get("state.k").size(1), 9);
  EXPECT_EQ(ErrorOf(layer, call.inputs, bound.state, y), "no error");
}

TEST_P(KeptPairs, OfAWindowUseTwiceAsManyRows) {
  const Layer layer = Of("window_softmax{window: 4}");
  const Call call(layer.recipe(), OneSequence(40), DType::kFloat64, 4);
  const test::Result whole = test::RunWhole(layer, call);
  // The least that serves, and more than is used.
  for (const std::int64_t rows : {4, 5, 8, 30}) {
    BoundPairs bound(layer, call.dims, rows);
    const Tensor y(DType::kFloat64, OutputShape(call.dims));
    std::int64_t t = 0;
    for (const std::int64_t count : {1, 2, 9, 1, 1, 1, 5, 3, 1, 16}) {
      layer.Forward(test::TokensOf(call, t, count), bound.state,
                    {.y = y.view().Slice(1, t, count)});
      t += count;
      EXPECT_LE(bound.state.Get("state.length").At({0, 0}), 8);
    }
    ASSERT_EQ(t, 40);
    EXPECT_LT(LargestDifference(y, whole.y), 1e-13) << rows;
  }
  EXPECT_LE(whole.state.Get("state.k").size(1), 8);
  BoundPairs few(layer, call.dims, 3);
  const Tensor y(DType::kFloat64, OutputShape(call.dims));
  EXPECT_NE(ErrorOf(layer, call.inputs, few.state, y).find("S >= 4"), std::string::npos);
}

TEST_P(KeptPairs, GoFromOneStateIntoAnother) {
  const Layer layer = Of("decayed_softmax");
  const Call call(layer.recipe(), OneSequence(9), DType::kFloat64, 5);
  const test::Result whole = test::RunWhole(layer, call);
  State start;
  const Tensor y(DType::kFloat64, OutputShape(call.dims));
  layer.Forward(test::TokensOf(call, 0, 4), start, {.y = y.view().Slice(1, 0, 4)});
  BoundPairs into(layer, call.dims, 12);
  layer.Forward(test::TokensOf(call, 4, 5), start, into.state, {.y = y.view().Slice(1, 4, 5)});
  EXPECT_LT(LargestDifference(y, whole.y), 1e-13);
  EXPECT_EQ(into.state.Get("state.k").data(), into.tensors[0].data());
  EXPECT_EQ(into.state.Get("state.length").At({0, 0}), 9);
  EXPECT_EQ(start.Get("state.length").At({0, 0}), 4);
}

TEST_P(KeptPairs, OfTwoBytesAreRoundedAsTheyAreWritten) {
  for (const auto& [recipe, dtype] :
       {std::pair("softmax", DType::kBFloat16), std::pair("softmax", DType::kFloat16),
        std::pair("softmax{normalise_qk: true}", DType::kBFloat16),
        std::pair("softmax{normalise_qk: true}", DType::kFloat16)}) {
    const Layer layer = Of(recipe);
    const Call call(layer.recipe(), OneSequence(70), DType::kFloat32, 6);
    // The call on pairs that are rounded already.
    const Call rounded(layer.recipe(), OneSequence(70), DType::kFloat32, 6);
    if (!layer.recipe().reading.normalise_qk) {
      CopyInto(Tensor::Copy(call.inputs.k, dtype), rounded.inputs.k);
    }
    CopyInto(Tensor::Copy(call.inputs.v, dtype), rounded.inputs.v);
    const test::Result expected = test::RunWhole(layer, rounded);
    const double distance = layer.recipe().reading.normalise_qk ? 1e-2 : 1e-5;
    for (const std::int64_t piece : {70, 9, 1}) {
      BoundPairs bound(layer, call.dims, 70, dtype);
      const Tensor y(DType::kFloat32, OutputShape(call.dims));
      for (std::int64_t t = 0; t < 70; t += piece) {
        const std::int64_t count = std::min<std::int64_t>(piece, 70 - t);
        layer.Forward(test::TokensOf(call, t, count), bound.state,
                      {.y = y.view().Slice(1, t, count)});
      }
      EXPECT_LT(LargestDifference(y, expected.y), distance) << recipe << " " << piece;
      EXPECT_EQ(bound.state.Get("state.k").dtype(), dtype);
    }
  }
}

TEST_P(KeptPairs, TakeABandwidthAHead) {
  const Layer layer = Of("nadaraya_watson{bandwidth: 7}");
  const Call call(layer.recipe(), OneSequence(9), DType::kFloat64, 7);
  const std::vector<double> bandwidth{0.5, 3};
  Inputs inputs = call.inputs;
  inputs.bandwidth = TensorView::Of(bandwidth.data(), {2});
  const Tensor y(DType::kFloat64, OutputShape(call.dims)), one(DType::kFloat64, y.shape());
  State state;
  layer.Forward(inputs, state, {.y = y});
  for (std::int64_t h = 0; h < 2; ++h) {
    Recipe recipe = layer.recipe();
    recipe.similarity.bandwidth = bandwidth[static_cast<std::size_t>(h)];
    State other;
    Layer(recipe, layer.plan().engine).Forward(call.inputs, other, {.y = one});
    EXPECT_LT(LargestDifference(y.view().Slice(2, h, 1), one.view().Slice(2, h, 1)), 1e-13);
  }
  // Without any width only a hit is near: here nothing is.
  const std::vector<double> none{0, 0};
  inputs.bandwidth = TensorView::Of(none.data(), {2});
  const Tensor status(DType::kInt8, {1, 9, 2});
  State fresh;
  layer.Forward(inputs, fresh, {.y = y, .status = status});
  for (const double number : y.as<double>()) EXPECT_EQ(number, 0);
  for (const std::int8_t number : status.as<std::int8_t>()) EXPECT_EQ(number, 3);
  const std::vector<double> negative{1, -1};
  inputs.bandwidth = TensorView::Of(negative.data(), {2});
  EXPECT_NE(ErrorOf(layer, inputs, fresh, y).find("bandwidth must be >= 0"), std::string::npos);
}

}  // namespace
}  // namespace ttr
