// Networks that are trained while they read, beside the definition. And what they are by other
// names.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

#include "tests/support/calls.h"
#include "tests/support/engines.h"
#include "tests/support/gradients.h"
#include "tests/support/targets.h"
#include "ttr/error.h"
#include "ttr/layer.h"

namespace ttr {
namespace {

using test::Call;
using test::LargestDifference;
using test::RunWhole;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Rates at which the memories of these tests learn, and small differences stay small.
void Slow(const Call& call, double factor = 0.1) {
  factor /= std::pow(static_cast<double>(call.recipe.function.depth), 3);
  const TensorView step = call.inputs.step;
  for (std::int64_t i = 0; i < step.shape().elements(); ++i) {
    StoreElement(step.data(), step.dtype(), i, factor * LoadElement(step.data(), step.dtype(), i));
  }
}

double Largest(const TensorView& view) {
  const Tensor copy = Tensor::Copy(view, DType::kFloat64);
  double largest = 0;
  for (const double x : copy.as<double>()) largest = std::max(largest, std::abs(x));
  return largest;
}

class Network : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override { ASSERT_EQ(layer.plan().engine, "network"); }

  Dims Sizes(std::int64_t tokens, std::int64_t channels) const {
    Dims dims = test::TwoMemories(tokens, channels,
                                  layer.recipe().function.residual ? channels : channels + 3);
    dims.hidden = layer.recipe().function.expansion * dims.key_dim;
    return dims;
  }

  void ExpectNear(const test::Result& defined, const test::Result& got, double rounding,
                  const std::string& what) const {
    EXPECT_LE(LargestDifference(defined.y, got.y), rounding) << what;
    EXPECT_EQ(LargestDifference(defined.status, got.status), 0) << what;
    for (const State::Entry& entry : defined.state.entries()) {
      EXPECT_LE(LargestDifference(entry.view, got.state.Get(entry.name)),
                rounding * (1 + Largest(entry.view)))
          << what << ", " << entry.name;
    }
  }

  // Whole, in pieces and token by token.
  void ExpectAgreement(const Call& call, double rounding) const {
    const test::Result defined = RunWhole(Layer(layer.recipe(), kDefinition), call);
    ASSERT_LT(Largest(defined.y), 1e3);
    for (const std::string& target : test::Targets()) {
      const test::OnTarget on(target);
      ExpectNear(defined, RunWhole(layer, call), rounding, "whole, " + target);
    }
    if (layer.recipe().reading.read == Read::kBatchEnd) {
      const std::int64_t piece = 2 * layer.recipe().optimizer.mini_batch;
      ExpectNear(defined, RunInPieces(layer, call, piece), rounding, "in whole mini-batches");
      return;
    }
    ExpectNear(defined, RunInPieces(layer, call, 1), rounding, "token by token");
    ExpectNear(defined, RunInPieces(layer, call, 7), rounding, "in pieces of 7");
    ExpectNear(defined, RunInPieces(layer, call, 37), rounding, "in pieces of 37");
    ExpectNear(defined, RunDecoder(layer, call), rounding, "decoder");
  }

  Layer layer{ParseRecipe(GetParam())};
};

INSTANTIATE_TEST_SUITE_P(
    All, Network,
    testing::Values("ttt_linear", "ttt_mlp", "titans", "titans{mini_batch: 16}",
                    "ttt_linear{mini_batch: 3}", "ttt_linear{mini_batch: 1}",
                    "ttt_linear{mini_batch: 1000}", "ttt_mlp{mini_batch: 40}",
                    "ttt_linear{norm: false}", "ttt_linear{residual: false}",
                    "ttt_linear{bias: false}", "ttt_mlp{row_factor: one, read: before}",
                    "ttt_mlp{read: before, mini_batch: 5}",
                    "ttt_mlp{depth: 3, activation: tanh, expansion: 2}",
                    "ttt_mlp{depth: 4, activation: relu, expansion: 1, mini_batch: 70}",
                    "titans{depth: 1}", "titans{weight_decay: coupled, mini_batch: 3}",
                    "titans{weight_decay: none, mini_batch: 16, bias: true, output_norm: rms}",
                    "titans{momentum: false, mini_batch: 16}", "titans{momentum: false}",
                    "titans{momentum: false, weight_decay: coupled, mini_batch: 40, read: before}",
                    "titans{mini_batch: 40, activation: gelu, norm: true, bias: true}",
                    "titans{mini_batch: 4, read: before, normalise_qk: true, scale: 0.5}",
                    "titans{depth: 4, activation: tanh, read: before}",
                    "ttt_linear{normalise_qk: true, scale: 2, output_norm: l2}",
                    "lact{mini_batch: 8, expansion: 2}", "in_place_ttt{mini_batch: 7}",
                    "ttt_linear{loss: dot_product}", "ttt_mlp{gated: true, expansion: 2}",
                    "ttt_linear{read: batch_start, mini_batch: 40}",
                    "ttt_linear{read: batch_end, mini_batch: 3}",
                    "ttt_mlp{read: batch_end, mini_batch: 40, gated: true, expansion: 2}",
                    "titans{depth: 3, gated: true, bias: true, expansion: 1}",
                    "titans{mini_batch: 40, read: batch_start, gated: true, expansion: 2}",
                    "titans{mini_batch: 5, read: batch_end, loss: dot_product}",
                    "titans{adapt: adam, curvature_decay: 0.9, eps: 0.1, expansion: 2}",
                    "titans{adapt: adam, curvature_decay: 0.9, eps: 0.1, weight_decay: coupled, "
                    "read: before, gated: true, bias: true, expansion: 1}",
                    "ttt_mlp{mini_batch: 1, row_factor: one, adapt: adagrad, eps: 0.1}"),
    [](const auto& one) { return "case" + std::to_string(one.index); });

TEST_P(Network, IsThatOfTheDefinition) {
  for (const std::int64_t channels : {5, 16}) {
    const Call wide(layer.recipe(), Sizes(90, channels), DType::kFloat64, 1, true);
    Slow(wide);
    ExpectAgreement(wide, 1e-11);
    const Call narrow(layer.recipe(), Sizes(90, channels), DType::kFloat32, 1, true);
    Slow(narrow);
    ExpectAgreement(narrow, 1e-3);
  }
}

TEST_P(Network, HasSequencesAndSharedHeads) {
  Dims dims = test::SmallDims(layer.recipe());
  const Call call(layer.recipe(), dims, DType::kFloat64, 2, true);
  Slow(call);
  ExpectAgreement(call, 1e-11);
  const std::vector<std::int64_t> bounds = {0, 0, 4, 5, 11};
  const test::Result packed = RunPacked(layer, call, bounds);
  const test::Result expected = RunPacked(Layer(layer.recipe(), kDefinition), call, bounds);
  ExpectNear(expected, packed, 1e-11, "packed");
  dims.query_heads = 2;
  const Call few(layer.recipe(), dims, DType::kFloat64, 2, true);
  Slow(few);
  ExpectAgreement(few, 1e-11);
}

// A state of which nothing is as a mini-batch leaves it.
TEST_P(Network, GoesOnFromAnyState) {
  const Call call(layer.recipe(), Sizes(50, 5), DType::kFloat64, 3, true);
  Slow(call, 0.02);
  const Layer defined(layer.recipe(), kDefinition);
  for (const std::int64_t position : {0, 1, 2}) {
    const auto run = [&](const Layer& of) {
      test::Result result;
      result.state = test::RandomState(layer, call.inputs, 7);
      for (const State::Entry& entry : result.state.entries()) {
        if (entry.name != "state.position") continue;
        for (std::int64_t h = 0; h < 2; ++h) {
          const std::int64_t last = layer.recipe().optimizer.mini_batch - 1;
          entry.view.Set({0, h}, static_cast<double>(std::min(position + h, last)));
        }
      }
      result.y = Tensor(DType::kFloat64, OutputShape(call.dims));
      result.status = Tensor(DType::kInt8, StatusShape(call.dims));
      of.Forward(call.inputs, result.state, {.y = result.y.view(), .status = result.status.view()});
      return result;
    };
    const test::Result expected = run(defined);
    ExpectNear(expected, run(layer), 1e-10 * (1 + Largest(expected.y)), "resumed");
  }
}

TEST_P(Network, LeavesWhatIsNotFiniteToItsReaders) {
  const Call call(layer.recipe(), Sizes(90, 5), DType::kFloat64, 4, true);
  Slow(call);
  call.inputs.v.Set({0, 40, 0, 1}, kNan);
  call.inputs.q.Set({0, 20, 0, 0}, kNan);
  call.inputs.k.Set({0, 60, 1, 2}, kInfinity);
  // Padding: whatever a pair of step 0 holds is not written.
  for (const std::int64_t t : {17, 18, 30}) {
    call.inputs.k.Set({0, t, 1, 0}, kNan);
    call.inputs.step.Set({0, t, 1}, 0);
  }
  const test::Result defined = RunWhole(Layer(layer.recipe(), kDefinition), call);
  const auto same = [&](const test::Result& got) {
    for (std::int64_t t = 0; t < 90; ++t) {
      for (std::int64_t h = 0; h < 2; ++h) {
        EXPECT_EQ(got.status.view().At({0, t, h}), defined.status.view().At({0, t, h})) << t;
        for (std::int64_t c = 0; c < call.dims.value_dim; ++c) {
          const double x = defined.y.view().At({0, t, h, c}), y = got.y.view().At({0, t, h, c});
          EXPECT_EQ(std::isfinite(x), std::isfinite(y)) << t << ", " << h;
          if (std::isfinite(x)) {
            EXPECT_NEAR(x, y, 1e-11) << t << ", " << h;
          }
        }
      }
    }
  };
  same(RunWhole(layer, call));
  if (layer.recipe().reading.read == Read::kBatchEnd) return;
  same(RunInPieces(layer, call, 1));
  same(RunInPieces(layer, call, 7));
}

TEST_P(Network, KeepsTheBitsOfEveryNumberOfThreads) {
  Dims dims = Sizes(60, 8);
  dims.batch = 2;
  const Call call(layer.recipe(), dims, DType::kFloat32, 5, true);
  Slow(call);
  const auto five = MakeExecutor(5);
  const test::Result one = RunWhole(layer, call, {.executor = &SequentialExecutor()});
  const test::Result many = RunWhole(layer, call, {.executor = five.get()});
  EXPECT_EQ(test::Bytes(one.y), test::Bytes(many.y));
  for (const State::Entry& entry : one.state.entries()) {
    EXPECT_EQ(LargestDifference(entry.view, many.state.Get(entry.name)), 0) << entry.name;
  }
}

// One memory, of which threads divide the products.
TEST_P(Network, KeepsTheBitsOfEveryTeam) {
  for (const std::int64_t channels : {60, 65}) {
    Dims dims = Sizes(70, channels);
    dims.heads = dims.key_heads = dims.value_heads = 1;
    dims.query_heads = 2;
    const Call call(layer.recipe(), dims, DType::kFloat32, 5, true);
    Slow(call);
    const test::Result one = RunWhole(layer, call, {.executor = &SequentialExecutor()});
    for (const int threads : {2, 3, 16}) {
      const auto several = MakeExecutor(threads);
      const test::Result many = RunWhole(layer, call, {.executor = several.get()});
      EXPECT_EQ(test::Bytes(one.y), test::Bytes(many.y)) << threads;
      for (const State::Entry& entry : one.state.entries()) {
        EXPECT_EQ(LargestDifference(entry.view, many.state.Get(entry.name)), 0) << entry.name;
      }
    }
  }
}

TEST_P(Network, ReadsWithoutWriting) {
  const Call call(layer.recipe(), Sizes(37, 5), DType::kFloat64, 6, true);
  Slow(call);
  const Layer defined(layer.recipe(), kDefinition);
  test::Result mine = RunWhole(layer, call), theirs = RunWhole(defined, call);
  for (const std::int64_t tokens : {1, 36}) {
    Inputs queries = test::TokensOf(call, 0, tokens);
    queries.k = queries.v = queries.step = queries.momentum = queries.weight_decay = {};
    Dims dims = call.dims;
    dims.tokens = tokens;
    const Tensor y(DType::kFloat64, OutputShape(dims)), expected(DType::kFloat64, y.shape());
    layer.Retrieve(queries, mine.state, {.y = y.view()});
    defined.Retrieve(queries, theirs.state, {.y = expected.view()});
    EXPECT_LE(LargestDifference(expected, y), 1e-11) << tokens;
  }
}

TEST_P(Network, SharesStartWeights) {
  Dims dims = Sizes(20, 5);
  dims.batch = 3;
  const Call call(layer.recipe(), dims, DType::kFloat64, 8, true);
  Slow(call);
  const auto run = [&](const Layer& of) {
    test::Result result;
    result.y = Tensor(DType::kFloat64, OutputShape(dims));
    result.status = Tensor(DType::kInt8, StatusShape(dims));
    for (std::int64_t l = 1; l <= layer.recipe().function.depth; ++l) {
      const bool last = l == layer.recipe().function.depth;
      const std::int64_t in = l == 1 ? dims.key_dim : dims.hidden;
      const std::int64_t hidden = dims.hidden * (layer.recipe().function.gated ? 2 : 1);
      const Tensor w = test::Normal(DType::kFloat64, {2, in, last ? dims.value_dim : hidden}, 50);
      for (double& x : w.as<double>()) x *= 0.3;
      result.state.Set("state.w" + std::to_string(l), Tensor::Copy(w));
    }
    of.Forward(call.inputs, result.state, {.y = result.y.view(), .status = result.status.view()});
    return result;
  };
  ExpectNear(run(Layer(layer.recipe(), kDefinition)), run(layer), 1e-11, "shared");
}

void ExpectSame(const char* network, const char* other, double momentum) {
  const Layer one(ParseRecipe(network)), two(ParseRecipe(other));
  ASSERT_EQ(one.plan().engine, "network");
  ASSERT_NE(two.plan().engine, "network");
  const Dims dims = test::TwoMemories(50, 16, 19);
  const Call call(one.recipe(), dims, DType::kFloat64, 9, true);
  Slow(call, 0.5);
  for (const TensorView* view : {&call.inputs.momentum, &call.inputs.weight_decay}) {
    if (!view->defined()) continue;
    for (double& x : std::span(view->as<double>(), 100)) x *= momentum;
  }
  const Tensor y(DType::kFloat64, OutputShape(dims)), expected(DType::kFloat64, y.shape());
  State mine, theirs;
  Inputs inputs = call.inputs;
  one.Forward(inputs, mine, {.y = y.view()});
  if (momentum == 0) inputs.momentum = inputs.weight_decay = {};
  if (two.recipe().optimizer.solver == Solver::kGradient) {
    inputs.importance = inputs.step;
    inputs.step = {};
  }
  two.Forward(inputs, theirs, {.y = expected.view()});
  EXPECT_LE(LargestDifference(expected, y), 1e-12 * (1 + Largest(expected))) << network;
  EXPECT_LE(LargestDifference(theirs.Get("state"), mine.Get("state.w1")),
            1e-12 * (1 + Largest(expected)))
      << network;
}

TEST(Networks, AreOtherLayersInOneMatrix) {
  const char* const plain = "ttt_linear{norm: false, residual: false, bias: false, row_factor: one";
  ExpectSame((std::string(plain) + ", mini_batch: 1}").c_str(), "deltanet", 0);
  ExpectSame((std::string(plain) + ", mini_batch: 50}").c_str(),
             "linear_attention{importance: input}", 0);
  ExpectSame((std::string(plain) + ", mini_batch: 1, loss: dot_product}").c_str(),
             "linear_attention{importance: input}", 0);
  ExpectSame("titans{depth: 1}", "deltanet", 0);
  ExpectSame("titans{depth: 1}", "momentum_deltanet", 1);
}

// The rates of the papers: base rate 1 over the channels for TTT-Linear, .1 for TTT-MLP.
TEST(Networks, StayFiniteInStreams) {
  constexpr std::int64_t kTokens = 100000, kPiece = 1000;
  for (const char* recipe : {"ttt_linear", "ttt_mlp{expansion: 2}", "titans{mini_batch: 16}"}) {
    const Layer layer(ParseRecipe(recipe));
    Dims dims = test::TwoMemories(kPiece, 8, 8);
    dims.heads = dims.key_heads = dims.value_heads = dims.query_heads = 1;
    dims.hidden = layer.recipe().function.expansion * 8;
    State state;
    for (std::int64_t t = 0; t < kTokens; t += kPiece) {
      const Call call(layer.recipe(), dims, DType::kFloat32,
                      static_cast<std::uint64_t>(t / kPiece));
      Slow(call, 1.0 / 16);
      const Tensor y(DType::kFloat32, OutputShape(dims));
      const Tensor status(DType::kInt8, StatusShape(dims));
      layer.Forward(call.inputs, state, {.y = y.view(), .status = status.view()});
      ASSERT_LT(Largest(y), 100) << recipe << ", " << t;
      ASSERT_EQ(Largest(status), 0) << recipe << ", " << t;
    }
  }
}

// What leaves the finite numbers says so, and nothing that came before.
TEST(Networks, SayThatTheyDiverge) {
  for (const char* recipe : {"titans", "titans{mini_batch: 16}", "titans{mini_batch: 3}",
                             "ttt_linear{norm: false, mini_batch: 4}"}) {
    const Layer layer(ParseRecipe(recipe)), defined(layer.recipe(), kDefinition);
    Dims dims = test::TwoMemories(300, 6, 6);
    dims.hidden = 24;
    const Call call(layer.recipe(), dims, DType::kFloat64, 11);
    Slow(call, layer.recipe().optimizer.momentum ? 160 : 1e6);
    const test::Result expected = RunWhole(defined, call), got = RunWhole(layer, call);
    EXPECT_EQ(expected.status.view().At({0, 0, 0}), 0);
    EXPECT_EQ(expected.status.view().At({0, 299, 0}), 2) << recipe;
    for (std::int64_t t = 0; t < 300; ++t) {
      const auto status = got.status.view().At({0, t, 0});
      // A step of rounding may decide where an overflow happens, by one token.
      if (t > 0 && t < 299 &&
          expected.status.view().At({0, t - 1, 0}) != expected.status.view().At({0, t + 1, 0})) {
        continue;
      }
      EXPECT_EQ(status, expected.status.view().At({0, t, 0})) << recipe << ", " << t;
      if (status == 0) {
        EXPECT_TRUE(std::isfinite(got.y.view().At({0, t, 0, 0}))) << t;
      }
    }
  }
}

std::string MessageOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Networks, RefuseBadInput) {
  const Layer layer(ParseRecipe("titans{mini_batch: 4}"));
  Dims dims = test::TwoMemories(5, 3, 3);
  dims.hidden = 12;
  const Call call(layer.recipe(), dims, DType::kFloat64, 1);
  const Tensor y(DType::kFloat64, OutputShape(dims));
  const auto message = [&](State state) {
    const std::string text = MessageOf([&] { layer.Forward(call.inputs, state, {.y = y.view()}); });
    EXPECT_EQ(Largest(y), 0) << text;
    EXPECT_EQ(text.find('\n'), std::string::npos);
    return text;
  };
  const auto with = [&](const char* name, Tensor tensor) {
    State state = layer.InitialState(call.inputs);
    state.Set(name, std::move(tensor));
    return message(std::move(state));
  };
  const auto names = [](const std::string& text, const char* what) {
    return text.find(what) != std::string::npos;
  };
  EXPECT_TRUE(names(with("state.w1", Tensor(DType::kFloat64, {1, 2, 3, 11})), "state.w"));
  EXPECT_TRUE(names(with("state.w2", Tensor(DType::kFloat64, {1, 2, 12})), "state.w2"));
  Tensor position(DType::kInt64, {1, 2});
  position.view().Set({0, 1}, 4);
  EXPECT_TRUE(names(with("state.position", std::move(position)), "state.position"));
  State orphan;
  orphan.Set("state.anchor_w1", Tensor(DType::kFloat64, {1, 2, 3, 12}));
  EXPECT_TRUE(names(message(std::move(orphan)), "state.position"));
  call.inputs.step.Set({0, 2, 1}, -0.1);
  EXPECT_TRUE(names(message({}), "step"));

  const Layer residual(ParseRecipe("ttt_linear"));
  const Call square(residual.recipe(), test::TwoMemories(5, 3, 3), DType::kFloat64, 1);
  Inputs inputs = square.inputs;
  const Tensor v(DType::kFloat64, {1, 5, 2, 4}), wide(DType::kFloat64, {1, 5, 2, 4});
  inputs.v = v.view();
  State state;
  EXPECT_NE(MessageOf([&] { residual.Forward(inputs, state, {.y = wide.view()}); }), "");
  EXPECT_TRUE(state.empty());
}

}  // namespace
}  // namespace ttr
