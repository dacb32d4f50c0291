// Gradients through networks that are trained while they read, against those of the definition.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <string>

#include "tests/support/calls.h"
#include "tests/support/directions.h"
#include "tests/support/engines.h"
#include "tests/support/gradients.h"
#include "ttr/error.h"
#include "ttr/layer.h"

namespace ttr {
namespace {

using test::Call;
using test::Differentiate;
using test::ExpectClose;
using test::ExpectWithin;
using test::Gradients;
using test::Normal;
using test::RandomState;

void Scale(const TensorView& view, double factor) {
  for (std::int64_t i = 0; view.defined() && i < view.shape().elements(); ++i) {
    StoreElement(view.data(), view.dtype(), i, factor * LoadElement(view.data(), view.dtype(), i));
  }
}

class NetworkGradient : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override { ASSERT_EQ(layer_.plan().engine, "network"); }

  Dims Sizes(std::int64_t tokens, std::int64_t channels) const {
    Dims dims = test::TwoMemories(tokens, channels,
                                  layer_.recipe().function.residual ? channels : channels + 1);
    dims.hidden = layer_.recipe().function.expansion * dims.key_dim;
    return dims;
  }

  State Drawn(const Inputs& inputs, std::uint64_t seed, std::int64_t position) const {
    State state = RandomState(layer_, inputs, seed);
    for (const State::Entry& entry : state.entries()) {
      if (entry.name == "state.position") {
        for (std::int64_t i = 0; i < entry.view.shape().elements(); ++i) {
          StoreElement(entry.view.data(), DType::kInt64, i, static_cast<double>(position));
        }
      } else {
        Scale(entry.view, 0.5);
      }
      if (!entry.name.starts_with("state.squares_")) continue;
      // A root bends sharply at 0.
      for (double& x : std::span(entry.view.as<double>(), entry.view.shape().elements())) x += 0.5;
    }
    return state;
  }

  // Where a norm is of few small numbers it bends within 1e-3, of which a step of 6e-6 leaves five
  // digits.
  double Tolerance() const { return layer_.recipe().function.norm ? 1e-5 : 1e-7; }
  // From zeros it leaves fewer still, and squares that are 0 have no slope.
  State StartOf(const Call& call) const {
    const Function& function = layer_.recipe().function;
    const bool adapts = layer_.recipe().optimizer.adapt != Adapt::kNone;
    const bool draws = adapts || (function.norm && function.depth == 1);
    return draws ? Drawn(call.inputs, 10, 0) : State();
  }

  Layer layer_{ParseRecipe(GetParam())};
};

INSTANTIATE_TEST_SUITE_P(
    All, NetworkGradient,
    testing::Values(
        "ttt_linear", "ttt_mlp{expansion: 2}", "titans{expansion: 2}", "ttt_linear{mini_batch: 3}",
        "ttt_linear{mini_batch: 3, norm: false}",
        "ttt_linear{mini_batch: 70, residual: false, row_factor: one}",
        "ttt_mlp{mini_batch: 4, activation: silu, read: before, expansion: 2}",
        "ttt_mlp{mini_batch: 4, depth: 3, activation: tanh, expansion: 1}",
        "ttt_mlp{depth: 4, expansion: 1, mini_batch: 2, residual: false, norm: false}",
        "titans{depth: 1}", "titans{mini_batch: 4, expansion: 2}",
        "titans{weight_decay: coupled, mini_batch: 3, expansion: 2, bias: true}",
        "titans{weight_decay: none, mini_batch: 4, expansion: 1, norm: true}",
        "titans{momentum: false, mini_batch: 4, expansion: 1}",
        "titans{momentum: false, weight_decay: coupled, expansion: 1, read: before}",
        "titans{mini_batch: 4, read: before, normalise_qk: true, scale: 0.5, expansion: 1}",
        "titans{activation: relu, mini_batch: 2}", "ttt_linear{output_norm: rms, mini_batch: 2}",
        "ttt_mlp{normalise_qk: true, output_norm: l2, mini_batch: 5, expansion: 1}",
        "lact{mini_batch: 3, expansion: 2}", "in_place_ttt{mini_batch: 4}",
        "ttt_linear{loss: dot_product, mini_batch: 3}",
        "ttt_mlp{gated: true, mini_batch: 4, expansion: 1}",
        "titans{depth: 3, gated: true, bias: true, expansion: 1}",
        "titans{mini_batch: 3, read: batch_start, expansion: 1}",
        "ttt_linear{mini_batch: 34, read: batch_start}",
        "titans{mini_batch: 34, read: batch_start, gated: true, expansion: 1}",
        "titans{mini_batch: 3, read: batch_end, expansion: 1}",
        "ttt_mlp{mini_batch: 3, read: batch_end, gated: true, expansion: 1}",
        "ttt_linear{mini_batch: 40, read: batch_end, norm: false}",
        "titans{mini_batch: 34, read: batch_end, depth: 1, weight_decay: coupled}",
        "titans{adapt: adam, curvature_decay: 0.9, eps: 0.1, expansion: 1}",
        "titans{adapt: adam, curvature_decay: 0.5, eps: 0.5, weight_decay: coupled, read: before, "
        "gated: true, bias: true, expansion: 1}",
        "ttt_linear{mini_batch: 1, row_factor: one, adapt: adagrad, eps: 0.5, norm: false}",
        "titans{momentum: true, weight_decay: none, expansion: 2, read: before}"),
    [](const auto& one) { return "case" + std::to_string(one.index); });

// Central differences of step 6e-6 have some nine digits.
TEST_P(NetworkGradient, IsThatOfTheDefinition) {
  const Layer defined(layer_.recipe(), kDefinition);
  for (const bool resumed : {false, true}) {
    Dims dims = Sizes(resumed ? 5 : 6, 3);
    dims.query_heads = resumed ? 4 : 2;
    dims.key_heads = resumed ? 1 : 2;
    const Call call(layer_.recipe(), dims, DType::kFloat64, 3, true);
    Scale(call.inputs.step, 0.3);
    const Tensor dy = Normal(DType::kFloat64, OutputShape(dims), 30);
    State initial = StartOf(call), dstate;
    if (resumed) {
      const std::int64_t place =
          std::min<std::int64_t>(layer_.recipe().optimizer.mini_batch - 1, 2);
      initial = Drawn(call.inputs, 10, place);
      dstate = Drawn(call.inputs, 20, 0);
    }
    const Gradients got = Differentiate(layer_, call.inputs, initial, dy, dstate);
    const Gradients expected = Differentiate(defined, call.inputs, initial, dy, dstate);
    ExpectClose(got, expected, Tolerance());
  }
}

// Many parts, from several levels of checkpoints.
TEST_P(NetworkGradient, OfManyPartsIsThatOfTheDefinition) {
  const Layer defined(layer_.recipe(), kDefinition);
  const bool norm = layer_.recipe().function.norm;
  Dims dims = Sizes(36, norm ? 3 : 1);
  dims.heads = dims.key_heads = dims.value_heads = dims.query_heads = 1;
  const Call call(layer_.recipe(), dims, DType::kFloat64, 4, true);
  // Steps are not so small that a difference would go below 0, and do not shake the norm.
  Scale(call.inputs.step, norm ? 0.1 : 0.3);
  Scale(call.inputs.ln_weight, 0.3);
  const Tensor dy = Normal(DType::kFloat64, OutputShape(dims), 30);
  const State initial = StartOf(call);
  const Gradients expected = Differentiate(defined, call.inputs, initial, dy, {});
  ExpectClose(Differentiate(layer_, call.inputs, initial, dy, {}), expected, 10 * Tolerance());
  test::AlignedBytes saved(layer_.SavedBytes(dims, DType::kFloat64));
  State state = initial;
  const Tensor y(DType::kFloat64, OutputShape(dims));
  layer_.Forward(call.inputs, state, {.y = y.view()}, {.saved = saved});
  ExpectClose(Differentiate(layer_, call.inputs, initial, dy, {}, {.saved = saved}), expected,
              10 * Tolerance());
}

// Sizes fill vectors, over mini-batches, their chunks, and pieces between checkpoints.
TEST_P(NetworkGradient, AlongADirectionIsThatOfTheDefinition) {
  const Call call(layer_.recipe(), Sizes(100, 16), DType::kFloat64, 11, true);
  Scale(call.inputs.step, 0.1);
  test::ExpectSlopeOfTheDefinition(
      layer_, call, Normal(DType::kFloat64, OutputShape(call.dims), 31), 10 * Tolerance());
}

// In float32, of sizes that fill vectors, whole and packed.
TEST_P(NetworkGradient, InFloatIsThatInDouble) {
  Dims dims = Sizes(90, 16);
  const Call narrow(layer_.recipe(), dims, DType::kFloat32, 5, true);
  const Call wide(layer_.recipe(), dims, DType::kFloat64, 5, true);
  for (const InputField& field : InputFields()) {
    const TensorView& from = narrow.inputs.*field.view;
    if (from.defined()) CopyInto(from, wide.inputs.*field.view);
  }
  Scale(narrow.inputs.step, 0.125);
  Scale(wide.inputs.step, 0.125);
  const Tensor dy = Normal(DType::kFloat32, OutputShape(dims), 30);
  const Gradients expected = Differentiate(layer_, wide.inputs, {}, dy, {});
  const Gradients plain = Differentiate(layer_, narrow.inputs, {}, dy, {});
  for (const InputField& field : InputFields()) {
    const TensorView exact = expected.inputs.*field.view;
    if (!exact.defined()) continue;
    double largest = 1;
    for (std::int64_t i = 0; i < exact.shape().elements(); ++i) {
      largest = std::max(largest, std::abs(exact.as<double>()[i]));
    }
    EXPECT_LE(test::LargestDifference(plain.inputs.*field.view, exact), 1e-3 * largest)
        << field.name;
  }
}

TEST_P(NetworkGradient, HasTheSameBitsForAnyNumberOfThreads) {
  Dims dims = Sizes(40, 4);
  dims.batch = 2;
  const Call call(layer_.recipe(), dims, DType::kFloat32, 6, true);
  Scale(call.inputs.step, 0.3);
  const Tensor dy = Normal(DType::kFloat32, OutputShape(dims), 30);
  const auto five = MakeExecutor(5);
  const Gradients one =
      Differentiate(layer_, call.inputs, {}, dy, {}, {.executor = &SequentialExecutor()});
  const Gradients many = Differentiate(layer_, call.inputs, {}, dy, {}, {.executor = five.get()});
  ExpectWithin(one, many, 0);
}

// One memory, of which threads divide the products.
TEST_P(NetworkGradient, HasTheSameBitsForAnyTeam) {
  Dims dims = Sizes(70, 60);
  dims.heads = dims.key_heads = dims.value_heads = dims.query_heads = 1;
  const Call call(layer_.recipe(), dims, DType::kFloat32, 6, true);
  Scale(call.inputs.step, 0.1);
  const Tensor dy = Normal(DType::kFloat32, OutputShape(dims), 30);
  const Gradients one =
      Differentiate(layer_, call.inputs, {}, dy, {}, {.executor = &SequentialExecutor()});
  for (const int threads : {2, 7}) {
    const auto several = MakeExecutor(threads);
    const Gradients many =
        Differentiate(layer_, call.inputs, {}, dy, {}, {.executor = several.get()});
    ExpectWithin(one, many, 0);
  }
}

// Start weights that sequences share have one gradient, the sum.
TEST(NetworkGradients, OfSharedWeightsAddUp) {
  const Layer layer(ParseRecipe("ttt_mlp{mini_batch: 4, expansion: 2}"));
  const Layer defined(layer.recipe(), kDefinition);
  Dims dims = test::TwoMemories(6, 3, 3);
  dims.batch = 3;
  dims.hidden = 6;
  const Call call(layer.recipe(), dims, DType::kFloat64, 7, true);
  Scale(call.inputs.step, 0.3);
  State initial;
  initial.Set("state.w1", Normal(DType::kFloat64, {2, 3, 6}, 1));
  initial.Set("state.b1", Normal(DType::kFloat64, {2, 6}, 2));
  initial.Set("state.w2", Normal(DType::kFloat64, {2, 6, 3}, 3));
  initial.Set("state.b2", Normal(DType::kFloat64, {2, 3}, 4));
  const Tensor dy = Normal(DType::kFloat64, OutputShape(dims), 30);
  const Gradients expected = Differentiate(defined, call.inputs, initial, dy, {});
  Gradients got = Differentiate(layer, call.inputs, initial, dy, {});
  State asked;
  for (const State::Entry& entry : expected.initial.entries()) {
    const TensorView mine = got.initial.Get(entry.name);
    ASSERT_EQ(mine.shape(), entry.view.shape()) << entry.name;
    asked.Set(entry.name, Tensor::Copy(mine));
  }
  got.initial = asked;
  ExpectClose(got, expected, 1e-7);
}

// A state that lacks its anchors: they are the weights, and so is their gradient.
TEST(NetworkGradients, OfAbsentAnchorsAreThoseOfTheWeights) {
  const Layer layer(ParseRecipe("titans{mini_batch: 4, expansion: 1}"));
  const Layer defined(layer.recipe(), kDefinition);
  Dims dims = test::TwoMemories(6, 3, 3);
  dims.hidden = 3;
  const Call call(layer.recipe(), dims, DType::kFloat64, 7, true);
  Scale(call.inputs.step, 0.3);
  State initial;
  initial.Set("state.w1", Normal(DType::kFloat64, {1, 2, 3, 3}, 1));
  initial.Set("state.w2", Normal(DType::kFloat64, {1, 2, 3, 3}, 2));
  const Tensor dy = Normal(DType::kFloat64, OutputShape(dims), 30);
  const Gradients expected = Differentiate(defined, call.inputs, initial, dy, {});
  const Gradients got = Differentiate(layer, call.inputs, initial, dy, {});
  for (const char* name : {"state.w1", "state.w2"}) {
    EXPECT_LE(test::LargestDifference(got.initial.Get(name), expected.initial.Get(name)), 1e-6);
  }
}

// Row factors clipped at 0 take nothing and have no slope; ReLU has none below its corner.
TEST(NetworkGradients, OfClippedRowFactorsAreThoseOfTheDefinition) {
  const Layer layer(ParseRecipe("ttt_mlp{mini_batch: 4, expansion: 2, activation: relu}"));
  const Layer defined(layer.recipe(), kDefinition);
  Dims dims = test::TwoMemories(10, 3, 3);
  dims.hidden = 6;
  const Call call(layer.recipe(), dims, DType::kFloat64, 8, true);
  Scale(call.inputs.step, 0.3);
  for (std::int64_t h = 0; h < 2; ++h) call.inputs.row_bias.Set({h, 1 + 2 * h}, -0.7);
  const Tensor dy = Normal(DType::kFloat64, OutputShape(dims), 30);
  ExpectClose(Differentiate(layer, call.inputs, {}, dy, {}),
              Differentiate(defined, call.inputs, {}, dy, {}), 1e-5);
}

// Weights of .03 leave a deviation beside which the norm's eps counts.
TEST(NetworkGradients, ThroughTheEpsOfTheNormAreThoseOfTheDefinition) {
  const Layer layer(ParseRecipe("ttt_linear{mini_batch: 2}")), defined(layer.recipe(), kDefinition);
  const Dims dims = test::TwoMemories(3, 3, 3);
  const Call call(layer.recipe(), dims, DType::kFloat64, 9, true);
  Scale(call.inputs.step, 1e-2);
  State initial = RandomState(layer, call.inputs, 3);
  for (const State::Entry& entry : initial.entries()) Scale(entry.view, 3e-2);
  initial.Set("state.position", Tensor(DType::kInt64, {1, 2}));
  const Tensor dy = Normal(DType::kFloat64, OutputShape(dims), 30);
  ExpectClose(Differentiate(layer, call.inputs, initial, dy, {}),
              Differentiate(defined, call.inputs, initial, dy, {}), 1e-5);
}

TEST(NetworkGradients, RefuseWhatAnotherCallSaved) {
  const Layer layer(ParseRecipe("ttt_linear"));
  const Dims dims = test::TwoMemories(40, 4, 4);
  const Call call(layer.recipe(), dims, DType::kFloat32, 1);
  const Tensor dy = Normal(DType::kFloat32, OutputShape(dims), 2);
  test::AlignedBytes saved(layer.SavedBytes(dims));
  EXPECT_THROW(Differentiate(layer, call.inputs, {}, dy, {}, {.saved = saved}), Error);
}

}  // namespace
}  // namespace ttr
