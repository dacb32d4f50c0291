// Steps that leave the tensors of a state behind (Run::defers): what they answer, what settling
// writes, and who may look in between.
#include <gtest/gtest.h>

#include <cmath>
#include <deque>
#include <iterator>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/calls.h"
#include "tests/support/engines.h"
#include "ttr/error.h"
#include "ttr/layer.h"
#include "ttr/util/random.h"

namespace ttr {
namespace {

using test::Call;
using test::kDeferring;
using test::LargestDifference;
using test::Result;

Dims SomeDims() {
  Dims dims;
  dims.tokens = 60;
  dims.key_dim = 21;
  dims.value_dim = 37;
  dims.heads = dims.key_heads = dims.value_heads = 2;
  dims.query_heads = 4;
  return dims;
}

// Every number of a token's rows.
void FillToken(const TensorView& view, std::int64_t token, double number) {
  const Tensor row(view.dtype(), view.Slice(1, token, 1).shape());
  for (std::int64_t i = 0; i < row.elements(); ++i) {
    StoreElement(const_cast<void*>(row.data()), row.dtype(), i, number);
  }
  CopyInto(row.view(), view.Slice(1, token, 1));
}

Tensor Step(const Layer& layer, const Call& call, std::int64_t token, State& state,
            const Run& run) {
  Tensor y(call.inputs.v.dtype(), {1, 1, call.dims.output_heads(), call.dims.value_dim});
  layer.Step(test::TokensOf(call, token, 1), state, {.y = y, .status = {}}, run);
  return y;
}

class DeferredState : public ::testing::TestWithParam<std::string> {
 protected:
  DeferredState() : call(ParseRecipe(GetParam()), SomeDims(), DType::kFloat64, 3) {}

  // After this many tokens, left behind.
  State After(std::int64_t tokens) const {
    State state;
    for (std::int64_t t = 0; t < tokens; ++t) Step(layer, call, t, state, kDeferring);
    return state;
  }
  // The same with its tensors written after every token.
  State Plain(std::int64_t tokens) const {
    State state;
    for (std::int64_t t = 0; t < tokens; ++t) Step(layer, call, t, state, {});
    return state;
  }
  void ExpectSame(const State& state, const State& expected, const char* what) const {
    ASSERT_EQ(state.entries().size(), expected.entries().size());
    for (const State::Entry& entry : expected.entries()) {
      EXPECT_LT(LargestDifference(entry.view, state.Get(entry.name)), 1e-10)
          << entry.name << ", " << what;
    }
  }

  Call call;
  Layer layer{ParseRecipe(GetParam())};
};

INSTANTIATE_TEST_SUITE_P(Recipes, DeferredState,
                         ::testing::Values("rls{ridge: 0.1}", "weighted_rls{ridge: 0.1}",
                                           "affine_rls{ridge: 0.1}",
                                           "rls{ridge: 0.1, decay: 0.9, read: before}",
                                           "rls{ridge: 0.1, decay: scalar, output_norm: l2}",
                                           "gated_deltanet", "kda", "rwkv7", "comba",
                                           "delta_product", "preconditioned_deltanet",
                                           "gated_deltanet{read: before, output_norm: rms}"),
                         [](const auto& recipe) { return std::to_string(recipe.index); });

TEST_P(DeferredState, IsThatOfStepsThatWriteIt) {
  EXPECT_TRUE(layer.Defers());
  for (const std::string& target : SupportedTargets()) {
    const test::OnTarget on(target);
    State deferred, plain;
    for (std::int64_t t = 0; t < 60; ++t) {
      const Tensor y = Step(layer, call, t, deferred, kDeferring);
      EXPECT_LT(LargestDifference(y, Step(layer, call, t, plain, {})), 1e-10)
          << target << ", token " << t;
      EXPECT_TRUE(deferred.behind());
      EXPECT_FALSE(plain.behind());
    }
    Layer::Settle(deferred);
    EXPECT_FALSE(deferred.behind());
    ExpectSame(deferred, plain, target.c_str());
  }
}

// Tensors that tokens have gone ahead of are of no use to anybody.
TEST_P(DeferredState, IsNotReadOrReplacedBehind) {
  State state = After(40);
  const Tensor other(DType::kFloat64, {1, 2, 21, 37});
  const Tensor y(DType::kFloat64, {1, 1, 4, 37});
  const auto expect_error = [](const auto& act) {
    try {
      act();
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("Layer::Settle"), std::string::npos) << error.what();
    }
  };
  expect_error([&] { state.Get("state"); });
  expect_error([&] { state.entries(); });
  expect_error([&] { state.Set("state", Tensor::Copy(other)); });
  expect_error([&] { state.Bind("state", other.view()); });
  expect_error([&] {
    layer.Retrieve({.q = test::TokensOf(call, 40, 1).q}, state, {.y = y.view(), .status = {}});
  });
  expect_error([&] {
    State gradient;
    layer.Backward(test::TokensOf(call, 40, 1), state, y, {}, {}, gradient);
  });
  EXPECT_TRUE(state.behind());
  Layer::Settle(state);
  ExpectSame(state, Plain(40), "after errors");
}

TEST_P(DeferredState, IsSettledByWhoeverGoesOnWithIt) {
  const State expected = Plain(50);
  Tensor y(DType::kFloat64, {1, 10, 4, 37});
  State forward = After(40);
  layer.Forward(test::TokensOf(call, 40, 10), forward, {.y = y, .status = {}});
  EXPECT_FALSE(forward.behind());
  ExpectSame(forward, expected, "Forward");
  State memorize = After(40);
  Inputs written = test::TokensOf(call, 40, 10);
  written.q = {};
  layer.Memorize(written, memorize);
  ExpectSame(memorize, expected, "Memorize");
  State step = After(40);
  for (std::int64_t t = 40; t < 50; ++t)
    Step(layer, call, t, step, t % 3 == 0 ? ttr::Run() : kDeferring);
  Layer::Settle(step);
  ExpectSame(step, expected, "Step, now and then settled");
}

TEST_P(DeferredState, MayBeChangedOnceItIsSettled) {
  State deferred = After(40), plain = Plain(40);
  Layer::Settle(deferred);
  for (State* const state : {&deferred, &plain}) {
    const TensorView b = state->Get("state");
    for (std::int64_t j = 0; j < 37; ++j) b.Set({0, 1, 3, j}, 7);
  }
  for (std::int64_t t = 40; t < 50; ++t) {
    const Tensor y = Step(layer, call, t, deferred, kDeferring);
    EXPECT_LT(LargestDifference(y, Step(layer, call, t, plain, {})), 1e-9) << t;
  }
}

TEST_P(DeferredState, IsCopiedAndMovedWithWhatItIsBehind) {
  const State state = After(40);
  State copy = state, moved = State(state);
  for (std::int64_t t = 40; t < 50; ++t) Step(layer, call, t, copy, kDeferring);
  State last = std::move(moved);
  EXPECT_TRUE(last.behind());
  EXPECT_FALSE(moved.behind());  // NOLINT: a moved state is one without entries
  Layer::Settle(copy);
  Layer::Settle(last);
  ExpectSame(copy, Plain(50), "the copy");
  ExpectSame(last, Plain(40), "the original");
  State cleared = state;
  cleared.clear();
  EXPECT_FALSE(cleared.behind());
  EXPECT_TRUE(cleared.empty());
}

TEST_P(DeferredState, IsWrittenWhereTheCallersMemoryIs) {
  const State expected = Plain(40);
  State state = layer.InitialState(test::TokensOf(call, 0, 1));
  std::vector<Tensor> memory;
  memory.reserve(state.entries().size());
  for (const State::Entry& entry : std::vector<State::Entry>(state.entries())) {
    memory.push_back(Tensor::Copy(entry.view));
    state.Bind(entry.name, memory.back().view());
  }
  for (std::int64_t t = 0; t < 40; ++t) Step(layer, call, t, state, kDeferring);
  Layer::Settle(state);
  ExpectSame(state, expected, "bound");
  EXPECT_EQ(state.entries()[0].view.data(), memory[0].data());
}

// What is no number is no number in the same places, and gone when it is forgotten.
TEST_P(DeferredState, ConfinesWhatIsNoNumber) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const TensorView Inputs::* input : {&Inputs::k, &Inputs::v}) {
    for (const double number : {std::numeric_limits<double>::quiet_NaN(), kInfinity}) {
      SCOPED_TRACE((input == &Inputs::k ? "key " : "value ") + std::to_string(number));
      const Call other(layer.recipe(), SomeDims(), DType::kFloat64, 4);
      (other.inputs.*input).Set({0, 30, 1, 2}, number);
      if (other.inputs.log_decay.defined()) FillToken(other.inputs.log_decay, 35, -kInfinity);
      const Result plain = RunInPieces(layer, other, 1);
      const Result deferred = RunInPieces(layer, other, 1, kDeferring);
      EXPECT_LT(LargestDifference(plain.y, deferred.y), 1e-9);
      EXPECT_EQ(LargestDifference(plain.status, deferred.status), 0);
      ExpectSame(deferred.state, plain.state, "after all");
    }
  }
}

// A gate that leaves less than the least number, and a key that adds nothing.
TEST(DeferredLeastSquares, BearsGatesThatLeaveNothing) {
  const Layer layer(ParseRecipe("rls{ridge: 0.1, decay: scalar}"));
  for (const double log_decay : {-40., -70., -86., -90., -100.}) {
    const Call call(layer.recipe(), SomeDims(), DType::kFloat32, 9);
    for (std::int64_t h = 0; h < 2; ++h) {
      call.inputs.log_decay.Set({0, 40, h}, log_decay);
      for (std::int64_t i = 0; i < 21; ++i) call.inputs.k.Set({0, 40, h, i}, 0);
    }
    const Result plain = RunInPieces(layer, call, 1);
    const Result deferred = RunInPieces(layer, call, 1, kDeferring);
    for (const State::Entry& entry : plain.state.entries()) {
      EXPECT_LT(LargestDifference(entry.view, deferred.state.Get(entry.name)), 1e-4)
          << entry.name << ", " << log_decay;
    }
  }
}

TEST(DeferredLeastSquares, BearsKeysOfOtherScales) {
  for (const char* const text : {"rls{ridge: 0.1}", "rls{ridge: 0.1, decay: 0.9}"}) {
    const Layer layer(ParseRecipe(text));
    for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
      for (const double scale : {1e-9, 1e-4, 1e4, 1e9, 1e15}) {
        const Call call(layer.recipe(), SomeDims(), dtype, 5);
        for (std::int64_t t = 30; t < 60; ++t) {
          for (std::int64_t h = 0; h < 2; ++h) {
            for (std::int64_t i = 0; i < 21; ++i) {
              call.inputs.k.Set({0, t, h, i}, scale * call.inputs.k.At({0, t, h, i}));
            }
          }
        }
        const Result plain = RunInPieces(layer, call, 1);
        const Result deferred = RunInPieces(layer, call, 1, kDeferring);
        double size = 0;
        for (const State::Entry& entry : plain.state.entries()) {
          const Tensor zero(entry.view.dtype(), entry.view.shape());
          size = LargestDifference(entry.view, zero);
          ASSERT_TRUE(std::isfinite(size)) << text << scale;
          EXPECT_LT(LargestDifference(entry.view, deferred.state.Get(entry.name)),
                    (dtype == DType::kFloat32 ? 1e-4 : 1e-12) * size)
              << text << ", scale " << scale << ", " << entry.name;
        }
      }
    }
  }
}

TEST(DeferredLeastSquares, HasTheStatusOfWhatIsNotDetermined) {
  for (const char* const text :
       {"rls{ridge: 0}", "rls{ridge: 0, decay: 0.5}", "rls{ridge: 0, read: before}"}) {
    const Layer layer(ParseRecipe(text));
    const Call call(layer.recipe(), SomeDims(), DType::kFloat64, 6);
    const Result plain = RunInPieces(layer, call, 1);
    const Result deferred = RunInPieces(layer, call, 1, kDeferring);
    EXPECT_EQ(LargestDifference(plain.status, deferred.status), 0) << text;
    EXPECT_LT(LargestDifference(plain.y, deferred.y), 1e-6) << text;
  }
}

// The write of one token is left to the next one, beside all that has decayed meanwhile.
class DeferredWrites : public ::testing::TestWithParam<std::string> {
 protected:
  Layer layer{ParseRecipe(GetParam())};

  void ExpectSame(const Call& call, double tolerance) const {
    const Result plain = RunInPieces(layer, call, 1);
    const Result deferred = RunInPieces(layer, call, 1, kDeferring);
    EXPECT_LE(LargestDifference(plain.y, deferred.y), tolerance);
    for (const State::Entry& entry : plain.state.entries()) {
      EXPECT_LE(LargestDifference(entry.view, deferred.state.Get(entry.name)), tolerance)
          << entry.name;
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Recipes, DeferredWrites,
                         ::testing::Values("gated_deltanet", "kda", "rwkv7", "comba",
                                           "gated_deltanet{read: before}"),
                         [](const auto& recipe) { return std::to_string(recipe.index); });

// Numbers are kept over what has decayed: gates small and large, 0 and mixed, must neither lose nor
// overflow any.
TEST_P(DeferredWrites, BearGatesOfAllSizes) {
  const double gates[] = {0, -1e-3, -0.7, -7, -70, -1000, -std::numeric_limits<double>::infinity()};
  for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
    const double tolerance = dtype == DType::kFloat32 ? 1e-4 : 1e-12;
    for (const double gate : gates) {
      SCOPED_TRACE(gate);
      const Call call(layer.recipe(), SomeDims(), dtype, 10);
      for (std::int64_t t = 0; t < 60; ++t) FillToken(call.inputs.log_decay, t, gate);
      ExpectSame(call, tolerance);
    }
    const Call mixed(layer.recipe(), SomeDims(), dtype, 11);
    const Tensor gate(mixed.inputs.log_decay.dtype(), mixed.inputs.log_decay.shape());
    CounterRandom random(5, 0);
    for (std::int64_t i = 0; i < gate.elements(); ++i) {
      const double number = gates[random.Below(std::size(gates))];
      StoreElement(const_cast<void*>(gate.data()), gate.dtype(), i, number);
    }
    CopyInto(gate.view(), mixed.inputs.log_decay);
    ExpectSame(mixed, tolerance);
  }
}

// Columns of a memory that are cut among threads share keys and decays, which one of them leaves.
TEST_P(DeferredWrites, HaveTheBitsOfOneThread) {
  Dims dims = SomeDims();
  dims.tokens = 8;
  dims.key_dim = dims.value_dim = 416;
  dims.heads = dims.key_heads = dims.value_heads = dims.query_heads = 1;
  const Call call(layer.recipe(), dims, DType::kFloat32, 12);
  const auto three = MakeExecutor(3);
  State one, several;
  for (std::int64_t t = 0; t < dims.tokens; ++t) {
    const Tensor y = Step(layer, call, t, one, {.executor = &SequentialExecutor(), .defers = true});
    const ttr::Run run{.executor = three.get(), .defers = true};
    EXPECT_EQ(LargestDifference(y, Step(layer, call, t, several, run)), 0) << t;
  }
  Layer::Settle(one);
  Layer::Settle(several, {.executor = three.get()});
  EXPECT_EQ(LargestDifference(one.Get("state"), several.Get("state")), 0);
}

// Rows of whole lines are taken, and answers of several queries left, where they lie.
TEST(SingleTokens, TakeWholeLinesWhereTheyLie) {
  Dims dims = SomeDims();
  dims.key_dim = 32;
  dims.value_dim = 48;
  for (const char* const text : {"gated_deltanet", "gated_deltanet{scale: 0.5}", "kda", "retnet"}) {
    SCOPED_TRACE(text);
    const Layer layer(ParseRecipe(text)), definition(ParseRecipe(text), Engine::kDefinition);
    const Call call(layer.recipe(), dims, DType::kFloat32, 14);
    const Result expected = RunWhole(definition, call);
    EXPECT_LT(LargestDifference(expected.y, RunInPieces(layer, call, 1).y), 1e-5);
    EXPECT_LT(LargestDifference(expected.y, RunInPieces(layer, call, 1, kDeferring).y), 1e-5);
  }
}

// Layers that leave other things pending, of the same state.
TEST(DeferredElsewhere, IsTakenOnByOtherDeltaRules) {
  const Dims dims = SomeDims();
  std::deque<Layer> layers;
  std::deque<Call> calls;
  for (const char* const text : {"gated_deltanet", "kda", "deltanet", "rwkv7", "retnet", "nlms"}) {
    layers.emplace_back(ParseRecipe(text));
    calls.emplace_back(layers.back().recipe(), dims, DType::kFloat64, 13);
  }
  State deferred, plain;
  for (std::int64_t t = 0; t < dims.tokens; ++t) {
    const auto i = static_cast<std::size_t>(t / 2 * 5 % 6);
    const Tensor y = Step(layers[i], calls[i], t, deferred, kDeferring);
    EXPECT_LT(LargestDifference(y, Step(layers[i], calls[i], t, plain, {})), 1e-11) << t;
    EXPECT_EQ(deferred.behind(), layers[i].Defers());
  }
  Layer::Settle(deferred);
  EXPECT_LT(LargestDifference(deferred.Get("state"), plain.Get("state")), 1e-11);
}

// Where there is no such form a step is a step.
TEST(DeferredElsewhere, ChangesNothing) {
  for (const char* const text :
       {"retnet", "mesa", "rls{ridge_kind: relative}", "lru", "nadaraya_watson"}) {
    SCOPED_TRACE(text);
    const Layer layer(ParseRecipe(text));
    EXPECT_FALSE(layer.Defers());
    const Call call(layer.recipe(), test::SmallDims(layer.recipe()), DType::kFloat32, 7);
    const Result plain = RunInPieces(layer, call, 1);
    State state;
    for (std::int64_t t = 0; t < call.dims.tokens; ++t) {
      Tensor y(DType::kFloat32,
               {call.dims.batch, 1, call.dims.output_heads(), call.dims.value_dim});
      layer.Step(test::TokensOf(call, t, 1), state, {.y = y, .status = {}}, kDeferring);
      EXPECT_FALSE(state.behind());
      EXPECT_EQ(LargestDifference(y, plain.y.view().Slice(1, t, 1)), 0);
    }
  }
}

// Of two layers each knows what the other has left behind.
TEST(DeferredElsewhere, IsSettledForOtherLayers) {
  const Layer one(ParseRecipe("rls{ridge: 0.1}")), other(ParseRecipe("mesa{ridge: 0.1}"));
  const Call call(one.recipe(), SomeDims(), DType::kFloat64, 3);
  State deferred, plain;
  for (std::int64_t t = 0; t < 60; ++t) {
    const Layer& layer = t % 7 == 6 ? other : one;
    Inputs inputs = test::TokensOf(call, t, 1);
    Tensor decay(DType::kFloat64, {1, 1, 2});
    if (&layer == &other) inputs.log_decay = decay.view();
    Tensor y(DType::kFloat64, {1, 1, 4, 37}), expected(DType::kFloat64, {1, 1, 4, 37});
    layer.Step(inputs, deferred, {.y = y, .status = {}}, kDeferring);
    layer.Step(inputs, plain, {.y = expected, .status = {}});
    EXPECT_LT(LargestDifference(y, expected), 1e-10) << t;
    EXPECT_EQ(deferred.behind(), &layer == &one);
  }
}

TEST(DeferredLeastSquares, TakesAnyThreadsAndNarrowInputs) {
  const Layer layer(ParseRecipe("weighted_rls{ridge: 0.1}"));
  Dims dims = SomeDims();
  dims.key_dim = dims.value_dim = 64;
  dims.heads = dims.key_heads = dims.value_heads = dims.query_heads = 40;
  dims.tokens = 5;
  const Call call(layer.recipe(), dims, DType::kBFloat16, 8);
  const auto several = MakeExecutor(3);
  State state, other;
  for (std::int64_t t = 0; t < dims.tokens; ++t) {
    const Tensor y = Step(layer, call, t, state, kDeferring);
    const ttr::Run run{.executor = several.get(), .defers = true};
    EXPECT_EQ(LargestDifference(y, Step(layer, call, t, other, run)), 0) << t;
  }
  Layer::Settle(state);
  Layer::Settle(other, {.executor = several.get()});
  for (const State::Entry& entry : state.entries()) {
    EXPECT_EQ(LargestDifference(entry.view, other.Get(entry.name)), 0) << entry.name;
  }
}

}  // namespace
}  // namespace ttr
