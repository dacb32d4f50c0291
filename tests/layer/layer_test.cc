// What a layer checks at its boundary, and its gradients.
#include "ttr/layer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <initializer_list>
#include <limits>
#include <string>
#include <vector>

#include "tests/support/calls.h"
#include "ttr/error.h"

namespace ttr {
namespace {

using test::Call;

Dims OneHead(std::int64_t tokens, std::int64_t key_dim, std::int64_t value_dim) {
  Dims dims;
  dims.tokens = tokens;
  dims.key_dim = key_dim;
  dims.value_dim = value_dim;
  return dims;
}

template <class F>
std::string ErrorOf(const F& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

void ExpectSays(const std::string& text, std::initializer_list<const char*> words) {
  for (const char* word : words) EXPECT_NE(text.find(word), std::string::npos) << text;
}

TEST(Layer, NamesWhatIsWrongWithTheOutput) {
  const Call call(ParseRecipe("deltanet"), OneHead(4, 2, 3), DType::kFloat32, 1);
  const Layer layer(call.recipe);
  State state;
  Tensor short_y(DType::kFloat32, {1, 3, 1, 3});
  ExpectSays(ErrorOf([&] { layer.Forward(call.inputs, state, {short_y.view(), {}}); }),
             {"[Forward] y", "[1, 4, 1, 3]", "[1, 3, 1, 3]"});
  EXPECT_TRUE(state.empty());

  Tensor y(DType::kFloat32, {1, 4, 1, 3});
  Tensor status(DType::kFloat32, {1, 4, 1});
  ExpectSays(ErrorOf([&] { layer.Forward(call.inputs, state, {y.view(), status.view()}); }),
             {"[Forward] status must be int8"});
  Outputs outputs{.y = y.view()};
  outputs.iterations = status.view();
  ExpectSays(ErrorOf([&] { layer.Forward(call.inputs, state, outputs); }),
             {"[Forward] iterations must be int64 [1, 4, 1]", "float32"});
  const Tensor few(DType::kInt64, {1, 4});
  outputs.iterations = few.view();
  ExpectSays(ErrorOf([&] { layer.Forward(call.inputs, state, outputs); }),
             {"[Forward] iterations must be [1, 4, 1]"});
  outputs.iterations = {};
  outputs.residual = status.view();
  ExpectSays(ErrorOf([&] { layer.Forward(call.inputs, state, outputs); }),
             {"[Forward] residual must be float64 [1, 4, 1]", "float32"});
}

TEST(Layer, RefusesToWriteOverItsInputs) {
  const Call call(ParseRecipe("linear_attention"), OneHead(4, 3, 3), DType::kFloat32, 1);
  const Layer layer(call.recipe);
  State state;
  ExpectSays(ErrorOf([&] { layer.Forward(call.inputs, state, {call.inputs.v, {}}); }),
             {"[Forward] y", "overlapping v"});
  Tensor y(DType::kFloat32, {1, 4, 1, 3});
  state.Bind("state", TensorView(y.data(), DType::kFloat32, {1, 1, 3, 3}));
  ExpectSays(ErrorOf([&] { layer.Forward(call.inputs, state, {y.view(), {}}); }),
             {"overlapping state"});
  Tensor numbers(DType::kFloat64, {1, 4, 1, 3});
  Outputs outputs{.y = numbers.view()};
  outputs.iterations = TensorView(numbers.data(), DType::kInt64, {1, 4, 1});
  State empty;
  ExpectSays(ErrorOf([&] { layer.Forward(call.inputs, empty, outputs); }),
             {"[Forward] y", "overlapping iterations"});
  outputs.iterations = {};
  outputs.residual = TensorView(numbers.data(), DType::kFloat64, {1, 4, 1});
  ExpectSays(ErrorOf([&] { layer.Forward(call.inputs, empty, outputs); }),
             {"[Forward] y", "overlapping residual"});
}

TEST(Layer, RefusesGatesOutOfRangeBeforeAnyWork) {
  Call call(ParseRecipe("gated_deltanet"), OneHead(4, 2, 2), DType::kFloat32, 1);
  const Layer layer(call.recipe);
  Tensor y(DType::kFloat32, {1, 4, 1, 2});
  y.view().Set({0, 0, 0, 0}, 42);
  call.inputs.log_decay.Set({0, 3, 0}, 0.5);
  State state;
  ExpectSays(ErrorOf([&] { layer.Forward(call.inputs, state, {y.view(), {}}); }), {"log_decay"});
  EXPECT_EQ(y.view().At({0, 0, 0, 0}), 42);
  EXPECT_TRUE(state.empty());
}

TEST(Layer, StepTakesOneToken) {
  const Call call(ParseRecipe("deltanet"), OneHead(2, 2, 2), DType::kFloat32, 1);
  Tensor y(DType::kFloat32, {1, 2, 1, 2});
  State state;
  ExpectSays(ErrorOf([&] { Layer(call.recipe).Step(call.inputs, state, {y.view(), {}}); }),
             {"[Step] v", "T = 2"});
}

TEST(Layer, WhatReadsEverythingAtOnceHasNoMemory) {
  const Call call(ParseRecipe("intention"), OneHead(4, 2, 2), DType::kFloat32, 1);
  State state;
  ExpectSays(ErrorOf([&] { Layer(call.recipe).Memorize(call.inputs, state); }),
             {"whole sequence at once"});
}

TEST(Layer, AnEngineThatCannotIsRefused) {
  ExpectSays(ErrorOf([] { Layer(ParseRecipe("softmax"), "fast_weights"); }),
             {"engine", "definition", "fast_weights"});
}

TEST(Layer, AnsweringBeforeAnythingIsMemorizedGivesTheStart) {
  Tensor q(DType::kFloat64, {1, 1, 2, 3});
  for (double& x : q.as<double>()) x = 1;
  for (const char* name : {"rls", "deltanet", "softmax"}) {
    Tensor y(DType::kFloat64, {1, 1, 2, 5});
    for (double& x : y.as<double>()) x = 9;
    const State state;
    Layer(ParseRecipe(name)).Retrieve({.q = q.view()}, state, {y.view(), {}});
    for (const double x : y.as<double>()) EXPECT_EQ(x, 0) << name;
    EXPECT_TRUE(state.empty()) << name;
  }
}

TEST(Layer, StateOfTheCallerIsUpdatedInPlace) {
  for (const char* name : {"deltanet", "rls"}) {
    const Call call(ParseRecipe(name), OneHead(3, 2, 2), DType::kFloat64, 1);
    std::vector<double> memory(4, 0.0);
    State state;
    state.Bind("state", TensorView::Of(memory.data(), {1, 1, 2, 2}));
    Tensor y(DType::kFloat64, {1, 3, 1, 2});
    Layer(call.recipe).Forward(call.inputs, state, {y.view(), {}});
    EXPECT_NE(memory[0], 0) << name;
    EXPECT_EQ(state.Get("state").data(), memory.data()) << name;
  }
}

TEST(Layer, ScratchOfTheCallerIsEnough) {
  const Call call(ParseRecipe("gated_deltanet"), OneHead(100, 16, 16), DType::kFloat32, 1);
  const Layer layer(call.recipe);
  const test::Result plain = test::RunWhole(layer, call);
  std::vector<std::byte> scratch(layer.ScratchBytes(call.dims, 1), std::byte{0xff});
  const test::Result given = test::RunWhole(
      layer, call, {.executor = &SequentialExecutor(), .scratch = std::span<std::byte>(scratch)});
  EXPECT_EQ(test::LargestDifference(plain.y, given.y), 0);
}

TEST(Layer, ReadsAnyStridesAndMixedDtypes) {
  // q, k, v as slices of one fused bfloat16 tensor, [B, T, H, 3 D]; gates in float32.
  constexpr std::int64_t kTokens = 20;
  constexpr std::int64_t kDim = 8;
  const Dims dims = OneHead(kTokens, kDim, kDim);
  const Call wide(ParseRecipe("deltanet"), dims, DType::kBFloat16, 3);
  Tensor fused(DType::kBFloat16, {1, kTokens, 1, 3 * kDim});
  Inputs inputs;
  const auto place = [&](TensorView Inputs::* view, std::int64_t at) {
    const TensorView slice = fused.view().Slice(3, at * kDim, kDim);
    CopyInto(wide.inputs.*view, slice);
    inputs.*view = slice;
  };
  place(&Inputs::q, 0);
  place(&Inputs::k, 1);
  place(&Inputs::v, 2);
  const Tensor step = Tensor::Copy(wide.inputs.step, DType::kFloat32);
  inputs.step = step.view();

  const Layer layer(wide.recipe);
  State state;
  Tensor y(DType::kFloat32, {1, kTokens, 1, kDim});
  layer.Forward(inputs, state, {y.view(), {}});
  State same_state;
  Tensor same(DType::kFloat32, {1, kTokens, 1, kDim});
  layer.Forward(wide.inputs, same_state, {same.view(), {}});
  EXPECT_EQ(test::LargestDifference(y, same), 0);

  State exact_state;
  Tensor exact(DType::kFloat64, {1, kTokens, 1, kDim});
  Layer(wide.recipe, kDefinition).Forward(inputs, exact_state, {exact.view(), {}});
  EXPECT_LT(test::LargestDifference(y, exact), 1e-5);
}

TEST(Layer, EveryInputMayHaveADtypeOfItsOwn) {
  const Call call(ParseRecipe("gated_deltanet"), OneHead(40, 16, 16), DType::kBFloat16, 3);
  const Tensor q = Tensor::Copy(call.inputs.q, DType::kFloat64);
  const Tensor k = Tensor::Copy(call.inputs.k, DType::kFloat32);
  const Tensor decay = Tensor::Copy(call.inputs.log_decay, DType::kFloat64);
  Inputs mixed = call.inputs;  // v and step stay bfloat16
  mixed.q = q.view();
  mixed.k = k.view();
  mixed.log_decay = decay.view();
  Tensor y(DType::kFloat32, {1, 40, 1, 16});
  Tensor same(DType::kFloat32, {1, 40, 1, 16});
  State state;
  State same_state;
  const Layer layer(call.recipe);
  layer.Forward(mixed, state, {y.view(), {}});
  layer.Forward(call.inputs, same_state, {same.view(), {}});
  EXPECT_EQ(test::LargestDifference(y, same), 0);
}

// y_t = sum_{i <= t} (k_i . q_t) v_i: every gradient by hand.
TEST(Backward, OfLinearAttentionIsTheClosedForm) {
  constexpr std::int64_t kTokens = 5;
  const Call call(ParseRecipe("linear_attention"), OneHead(kTokens, 3, 2), DType::kFloat64, 9);
  const Call other(ParseRecipe("linear_attention"), OneHead(kTokens, 3, 2), DType::kFloat64, 10);
  const TensorView dy = other.inputs.v;
  Tensor dq(DType::kFloat64, {1, kTokens, 1, 3});
  Tensor dk(DType::kFloat64, {1, kTokens, 1, 3});
  Tensor dv(DType::kFloat64, {1, kTokens, 1, 2});
  Inputs gradients;
  gradients.q = dq.view();
  gradients.k = dk.view();
  gradients.v = dv.view();
  State dinitial;
  Layer(call.recipe).Backward(call.inputs, State(), dy, State(), gradients, dinitial);

  const auto at = [](const TensorView& x, std::int64_t t, std::int64_t c) {
    return x.At({0, t, 0, c});
  };
  const auto dot = [&](const TensorView& a, std::int64_t i, const TensorView& b, std::int64_t j) {
    double sum = 0;
    for (std::int64_t c = 0; c < a.size(3); ++c) sum += at(a, i, c) * at(b, j, c);
    return sum;
  };
  const Inputs& in = call.inputs;
  for (std::int64_t t = 0; t < kTokens; ++t) {
    for (std::int64_t c = 0; c < 3; ++c) {
      double q_gradient = 0;
      double k_gradient = 0;
      for (std::int64_t i = 0; i <= t; ++i) q_gradient += dot(in.v, i, dy, t) * at(in.k, i, c);
      for (std::int64_t i = t; i < kTokens; ++i) k_gradient += dot(in.v, t, dy, i) * at(in.q, i, c);
      EXPECT_NEAR(at(dq.view(), t, c), q_gradient, 1e-8);
      EXPECT_NEAR(at(dk.view(), t, c), k_gradient, 1e-8);
    }
    for (std::int64_t c = 0; c < 2; ++c) {
      double v_gradient = 0;
      for (std::int64_t i = t; i < kTokens; ++i) v_gradient += dot(in.k, t, in.q, i) * at(dy, i, c);
      EXPECT_NEAR(at(dv.view(), t, c), v_gradient, 1e-8);
    }
  }
  // The initial memory M_0 [Dk, Dv] adds M_0^T q_t to every y_t.
  for (std::int64_t a = 0; a < 3; ++a) {
    for (std::int64_t b = 0; b < 2; ++b) {
      double gradient = 0;
      for (std::int64_t t = 0; t < kTokens; ++t) gradient += at(in.q, t, a) * at(dy, t, b);
      EXPECT_NEAR(dinitial.Get("state").At({0, 0, a, b}), gradient, 1e-8);
    }
  }
}

TEST(Backward, GoesThroughTheFinalState) {
  // M_1 = e^g M_0 + v k^T; with L = sum dM . M_1: dg = e^g dM . M_0, dM_0 = e^g dM, dv = dM^T k.
  const Call call(ParseRecipe("mamba2"), OneHead(1, 2, 1), DType::kFloat64, 4);
  State initial;
  initial.Set("state", Tensor(DType::kFloat64, {1, 1, 2, 1}));
  initial.Get("state").Set({0, 0, 0, 0}, 2);
  initial.Get("state").Set({0, 0, 1, 0}, -1);
  State dstate;
  dstate.Set("state", Tensor(DType::kFloat64, {1, 1, 2, 1}));
  dstate.Get("state").Set({0, 0, 0, 0}, 3);
  dstate.Get("state").Set({0, 0, 1, 0}, 5);
  const Tensor dy(DType::kFloat64, {1, 1, 1, 1});
  Tensor dg(DType::kFloat64, {1, 1, 1});
  Tensor dv(DType::kFloat64, {1, 1, 1, 1});
  Inputs gradients;
  gradients.log_decay = dg.view();
  gradients.v = dv.view();
  State dinitial;
  Layer(call.recipe).Backward(call.inputs, initial, dy.view(), dstate, gradients, dinitial);
  const double g = std::exp(call.inputs.log_decay.At({0, 0, 0}));
  EXPECT_NEAR(dg.view().At({0, 0, 0}), g * (3 * 2 - 5 * 1), 1e-9);
  EXPECT_NEAR(dinitial.Get("state").At({0, 0, 0, 0}), 3 * g, 1e-9);
  EXPECT_NEAR(dinitial.Get("state").At({0, 0, 1, 0}), 5 * g, 1e-9);
  EXPECT_NEAR(dv.view().At({0, 0, 0, 0}),
              3 * call.inputs.k.At({0, 0, 0, 0}) + 5 * call.inputs.k.At({0, 0, 0, 1}), 1e-9);
}

TEST(Backward, AtTheEdgeOfARangeIsOneSided) {
  // log_decay = 0 may only fall, step = 0 only rise; with -inf nothing can move.
  Call call(ParseRecipe("gated_deltanet"), OneHead(3, 2, 2), DType::kFloat64, 4);
  call.inputs.log_decay.Set({0, 0, 0}, -std::numeric_limits<double>::infinity());
  call.inputs.log_decay.Set({0, 1, 0}, 0);
  call.inputs.step.Set({0, 1, 0}, 0);
  const Call other(call.recipe, call.dims, DType::kFloat64, 5);
  Tensor dg(DType::kFloat64, {1, 3, 1});
  Tensor dstep(DType::kFloat64, {1, 3, 1});
  Inputs gradients;
  gradients.log_decay = dg.view();
  gradients.step = dstep.view();
  State dinitial;
  const Layer layer(call.recipe);
  layer.Backward(call.inputs, State(), other.inputs.v, State(), gradients, dinitial);
  EXPECT_EQ(dg.view().At({0, 0, 0}), 0);
  EXPECT_NE(dg.view().At({0, 1, 0}), 0);
  EXPECT_NE(dstep.view().At({0, 1, 0}), 0);

  // Against a step of one's own inside the range, where both are smooth.
  const auto loss = [&] {
    State state;
    Tensor y(DType::kFloat64, {1, 3, 1, 2});
    Layer(call.recipe, kDefinition).Forward(call.inputs, state, {y.view(), {}});
    double sum = 0;
    for (std::int64_t t = 0; t < 3; ++t) {
      for (std::int64_t c = 0; c < 2; ++c) {
        sum += y.view().At({0, t, 0, c}) * other.inputs.v.At({0, t, 0, c});
      }
    }
    return sum;
  };
  const double at_edge = loss();
  call.inputs.step.Set({0, 1, 0}, 1e-6);
  EXPECT_NEAR(dstep.view().At({0, 1, 0}), (loss() - at_edge) / 1e-6, 1e-5);
}

}  // namespace
}  // namespace ttr
