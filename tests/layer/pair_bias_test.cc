// A number of the caller's added to the logarithm of every weight: masks, weights by distance, and
// what the door says of others.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

#include "tests/recipe/message.h"
#include "tests/support/calls.h"
#include "tests/support/gradients.h"
#include "ttr/layer.h"

namespace ttr {
namespace {

using test::Call;
using test::LargestDifference;
using test::RunWhole;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// bias(t, s), for all queries.
template <class Bias>
void SetBias(const Call& call, const Bias& bias) {
  const TensorView& to = call.inputs.pair_bias;
  for (std::int64_t b = 0; b < to.size(0); ++b) {
    for (std::int64_t t = 0; t < to.size(1); ++t) {
      for (std::int64_t h = 0; h < to.size(2); ++h) {
        for (std::int64_t s = 0; s < to.size(3); ++s) to.Set({b, t, h, s}, bias(t, s));
      }
    }
  }
}

// The outputs of another recipe at a call's inputs, but its bias.
Tensor OutputsOf(const char* recipe, const Call& call) {
  Inputs inputs = call.inputs;
  inputs.pair_bias = {};
  State state;
  Tensor y(DType::kFloat64, OutputShape(call.dims));
  Layer(ParseRecipe(recipe)).Forward(inputs, state, {.y = y});
  return y;
}

class PairBias : public testing::TestWithParam<const char*> {
 protected:
  std::string With(const std::string& options) const {
    const std::string name = GetParam();
    return name.back() == '}' ? name.substr(0, name.size() - 1) + ", " + options + "}"
                              : name + "{" + options + "}";
  }
};

INSTANTIATE_TEST_SUITE_P(All, PairBias,
                         testing::Values("softmax", "kernel_smoother",
                                         "nadaraya_watson{bandwidth: 2}", "local_linear",
                                         "local_linear{kernel: gaussian, bandwidth: 3}"),
                         [](const auto& one) { return "case" + std::to_string(one.index); });

// 300 pairs are more than a block.
const Dims kDims = test::TwoMemories(300, 5, 3);

TEST_P(PairBias, ThatHidesTheFutureIsACausalMask) {
  const Call call(ParseRecipe(With("pair_bias: input, causal: false")), kDims, DType::kFloat64, 1);
  SetBias(call, [](std::int64_t t, std::int64_t s) { return s <= t ? 0 : -kInfinity; });
  const test::Result got = RunWhole(Layer(call.recipe), call);
  EXPECT_LE(LargestDifference(got.y, OutputsOf(GetParam(), call)), 1e-12);
}

TEST_P(PairBias, ThatHidesThePastIsAWindow) {
  const Call call(ParseRecipe(With("pair_bias: input")), kDims, DType::kFloat64, 2);
  SetBias(call, [](std::int64_t t, std::int64_t s) { return t - s < 40 ? 0 : -kInfinity; });
  const test::Result got = RunWhole(Layer(call.recipe), call);
  EXPECT_LE(LargestDifference(got.y, OutputsOf(With("window: 40").c_str(), call)), 1e-12);
}

TEST_P(PairBias, ThatFallsWithTheDistanceIsADecay) {
  const Call call(ParseRecipe(With("pair_bias: input")), kDims, DType::kFloat64, 3);
  SetBias(call, [](std::int64_t t, std::int64_t s) {
    return static_cast<double>(t - s) * std::log(0.97);
  });
  const test::Result got = RunWhole(Layer(call.recipe), call);
  EXPECT_LE(LargestDifference(got.y, OutputsOf(With("decay: 0.97").c_str(), call)), 1e-11);
}

// Functions of places are what their formulas give as an input.
TEST(PairBiases, OfPlacesAreTheirFormulas) {
  const auto expect = [&](const std::string& options, bool causal, auto bias) {
    const std::string reads = causal ? "" : ", causal: false";
    const Call call(ParseRecipe("softmax{pair_bias: input" + reads + "}"), kDims, DType::kFloat64,
                    7);
    SetBias(call, [&](std::int64_t t, std::int64_t s) {
      return bias(static_cast<double>(t), static_cast<double>(s));
    });
    const test::Result given = RunWhole(Layer(call.recipe), call);
    const std::string recipe = "softmax{pair_bias: " + options + reads + "}";
    EXPECT_LE(LargestDifference(given.y, OutputsOf(recipe.c_str(), call)), 1e-12) << recipe;
  };
  for (const bool causal : {true, false}) {
    expect("distance, extent: 20", causal,
           [](double t, double s) { return -std::abs(t - s) / 20; });
    expect("power, extent: 3, exponent: 1.5", causal,
           [](double t, double s) { return -1.5 * std::log1p(std::abs(t - s) / 3); });
    expect("block, extent: 64", causal, [](double t, double s) {
      return std::floor(t / 64) == std::floor(s / 64) ? 0 : -kInfinity;
    });
  }
  expect("prefix, extent: 33", false,
         [](double t, double s) { return s <= t || s < 33 ? 0 : -kInfinity; });
  EXPECT_THROW(ParseRecipe("softmax{pair_bias: prefix}"), Error);
  EXPECT_THROW(ParseRecipe("softmax{pair_bias: distance, extent: 0}"), Error);
}

// What is hidden may hold anything; NaN reaches the query whose weight it is, and no other; a query
// from whom all is hidden has no neighbour.
TEST_P(PairBias, HidesWhatIsNoNumber) {
  const Layer layer(ParseRecipe(With("pair_bias: input")));
  const Call call(layer.recipe(), test::TwoMemories(40, 4, 3), DType::kFloat64, 4);
  const test::Result before = RunWhole(layer, call);
  for (std::int64_t t = 0; t < 40; ++t) {
    for (std::int64_t h = 0; h < 2; ++h) call.inputs.pair_bias.Set({0, t, h, 7}, -kInfinity);
  }
  for (std::int64_t s = 0; s < 40; ++s) call.inputs.pair_bias.Set({0, 20, 1, s}, -kInfinity);
  const test::Result finite = RunWhole(layer, call);
  EXPECT_GT(LargestDifference(before.y, finite.y), 1e-3);
  call.inputs.k.Set({0, 7, 0, 1}, kNan);
  call.inputs.v.Set({0, 7, 1, 2}, kInfinity);
  const test::Result hidden = RunWhole(layer, call);
  EXPECT_EQ(LargestDifference(finite.y, hidden.y), 0);
  const bool mean = std::string(GetParam()) != "kernel_smoother";
  EXPECT_EQ(hidden.status.view().At({0, 20, 1}), mean ? 3 : 0);
  EXPECT_EQ(hidden.y.view().At({0, 20, 1, 0}), 0);
  call.inputs.pair_bias.Set({0, 30, 0, 3}, kNan);
  const test::Result spoilt = RunWhole(layer, call);
  for (std::int64_t t = 0; t < 40; ++t) {
    for (std::int64_t h = 0; h < 2; ++h) {
      const double y = spoilt.y.view().At({0, t, h, 0});
      if (t == 30 && h == 0) {
        EXPECT_TRUE(std::isnan(y));
      } else {
        EXPECT_EQ(y, hidden.y.view().At({0, t, h, 0})) << t << ", " << h;
      }
    }
  }
}

// One row for all batch rows and heads, by strides of 0; it may have columns to spare.
TEST_P(PairBias, IsBroadcastByStrides) {
  const Layer layer(ParseRecipe(With("pair_bias: input")));
  const Call call(layer.recipe(), test::SmallDims(layer.recipe()), DType::kFloat64, 5);
  const std::int64_t tokens = call.dims.tokens, columns = tokens + 2;
  const Tensor one = test::Normal(DType::kFloat64, {tokens, columns}, 6);
  SetBias(call, [&](std::int64_t t, std::int64_t s) { return one.view().At({t, s}); });
  const test::Result expected = RunWhole(layer, call);
  Inputs inputs = call.inputs;
  const std::int64_t strides[] = {0, columns, 0, 1};
  inputs.pair_bias = TensorView(one.data(), DType::kFloat64,
                                {call.dims.batch, tokens, call.dims.query_heads, columns}, strides);
  State state;
  const Tensor y(DType::kFloat64, OutputShape(call.dims));
  layer.Forward(inputs, state, {.y = y});
  EXPECT_EQ(LargestDifference(expected.y, y), 0);
  // A query of what is kept has a bias, too.
  inputs.pair_bias = inputs.pair_bias.Slice(1, tokens - 1, 1);
  const Inputs asked{.q = inputs.q.Slice(1, tokens - 1, 1), .pair_bias = inputs.pair_bias};
  const Tensor last(DType::kFloat64, y.view().Slice(1, tokens - 1, 1).shape());
  layer.Retrieve(asked, state, {.y = last});
  EXPECT_LE(LargestDifference(y.view().Slice(1, tokens - 1, 1), last), 1e-12);
}

TEST(PairBiases, OfTheWrongShapeAreRefused) {
  const Layer layer(ParseRecipe("softmax{pair_bias: input}"));
  const Call call(layer.recipe(), test::TwoMemories(6, 4, 3), DType::kFloat64, 1);
  State state;
  const Tensor y(DType::kFloat64, OutputShape(call.dims));
  const auto message = [&](const TensorView& bias) {
    Inputs inputs = call.inputs;
    inputs.pair_bias = bias;
    return Message([&] { layer.Forward(inputs, state, {.y = y}); });
  };
  EXPECT_EQ(message({}), "[Forward] pair_bias must be [B,T,Hq,S] but is absent");
  EXPECT_EQ(message(Tensor(DType::kFloat64, {1, 5, 2, 6})),
            "[Forward] pair_bias must be [B,T,Hq,S] = [1,6,2,6] but is [1,5,2,6]");
  EXPECT_EQ(message(Tensor(DType::kFloat64, {6, 6})),
            "[Forward] pair_bias must be [B,T,Hq,S] = [1,6,2,S] but is [6,6]");
  EXPECT_EQ(message(Tensor(DType::kFloat64, {1, 6, 2, 5})),
            "[Forward] pair_bias must be [B,T,Hq,S] with a column for each of S = 6 pairs that the "
            "call sees but is of S = 5");
  EXPECT_THROW(ParseRecipe("window_softmax{pair_bias: input}"), Error);
  EXPECT_THROW(ParseRecipe("rls{pair_bias: input}"), Error);
  EXPECT_THROW(ParseRecipe("kernel_ridge{pair_bias: input}"), Error);
  // Pairs of a state count, too: six of them, and one more.
  layer.Forward(call.inputs, state, {.y = y});
  const Inputs one = test::TokensOf(call, 0, 1);
  EXPECT_THROW(layer.Step(one, state, {.y = y.view().Slice(1, 0, 1)}), Error);
}

}  // namespace
}  // namespace ttr
