// Every layer of the zoo, through the public API: it runs; cut anywhere or token by token it gives
// the same; heads and sequences do not meet; NaN stays where it belongs.
#include "ttr/zoo.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/support/calls.h"
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

std::vector<std::string> Names() {
  std::vector<std::string> names;
  for (const ZooEntry& entry : Zoo()) names.emplace_back(entry.name);
  // Feature maps are no layers of their own; each stands here on linear attention.
  for (const FeatureEntry& map : FeatureMaps()) {
    names.push_back("linear_attention{features: " + std::string(map.name) + "}");
  }
  // Options that no entry of the zoo has set, alone and together.
  for (const char* recipe : {
           "linear_attention{normalise_qk: true, scale: rsqrt_dk, output_norm: l2}",
           "linear_attention{decay: 0.9, eta: 0.5, read: before}",
           "gla{normalise_sum: sum, read: before}",
           "retnet{output_norm: rms}",
           "deltanet{read: before, normalise_qk: true}",
           "deltanet{decay: 0.99, step: longhorn, output_norm: rms, scale: 0.5}",
           "gated_deltanet{step: efla, read: before}",
           "nlms{eta: 0.5, eps: 0.1, decay: scalar}",
           "delta_product{steps: 3, step: nlms}",
           "kda{features: relu}",
           "kda{read: before, normalise_qk: true}",
           "gla{importance: input, eta: 0.5}",
           "hgrn2{normalise_sum: sum}",
           "hgrn2{importance: root_complement, read: before, scale: 2}",
           "gateloop{read: before, scale: 0.5}",
           "mlstm{decay: none, read: before}",
           "mlstm{normalise_sum: none, decay: 0.9}",
           "linear_attention{importance: input, normalise_sum: sum, read: before, bonus: false}",
           "rwkv6{decay: scalar}",
           "rwkv7{decay: scalar, read: before}",
           "rwkv7{decay: none}",
           "comba{decay: channel, read: before}",
           "gated_deltanet2{decay: 0.9, step: input}",
           "delta_product{steps: 4, decay: channel, read: before}",
           "leaky_lms{decay: scalar, step: efla}",
           "decoupled_lms{decay: 0.9, read: before}",
           "momentum_deltanet{decay: scalar, weight_decay: coupled, read: before}",
           "momentum_deltanet{weight_decay: none, step: longhorn, normalise_qk: true}",
           "preconditioned_deltanet{decay: channel, curvature_decay: 0.9, curvature_centre: 0.5}",
           "preconditioned_deltanet{decay: 0.9, step: one, read: before}",
           "rls{read: before, ridge: 0}",
           "weighted_rls{ridge_kind: constant, scale: 2}",
           "affine_rls{features: taylor2, decay: 0.9}",
           "decay(scalar) x importance(input) | linear | conjugate_gradient(steps: 9, ridge: 0.1)",
           "softmax{kernel: gaussian, bandwidth: 2, window: 4}",
           "nadaraya_watson{kernel: triweight, bandwidth: 3, decay: 0.9}",
           "kernel_ridge{kernel: laplace, bandwidth: 2}",
           "local_linear{kernel: gaussian, bandwidth: 4, window: 6}",
           "titans{depth: 1, mini_batch: 4}",
           "titans{depth: 3, bias: true, activation: tanh}",
           "ttt_mlp{bias: false, mini_batch: 3, row_factor: one}",
       }) {
    names.emplace_back(recipe);
  }
  return names;
}

std::string CaseName(const ::testing::TestParamInfo<std::string>& info) {
  std::string name;
  for (const char c : info.param) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) name += c;
  }
  return name;
}

INSTANTIATE_TEST_SUITE_P(All, ZooLayer, ::testing::ValuesIn(Names()), CaseName);

class EngineLayer : public ZooLayer {};

std::vector<std::string> NamesWithAnEngine() {
  std::vector<std::string> names = Names();
  std::erase_if(names, [](const std::string& name) {
    return MakePlan(ParseRecipe(name)).engine == Engine::kDefinition;
  });
  return names;
}

INSTANTIATE_TEST_SUITE_P(All, EngineLayer, ::testing::ValuesIn(NamesWithAnEngine()), CaseName);

TEST_P(ZooLayer, RunsOnTheDefinition) {
  const Call call(recipe(), test::SmallDims(recipe()), DType::kFloat64, 1);
  const test::Result result = RunWhole(Layer(recipe(), Engine::kDefinition), call);
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
  for (const Engine engine : {Engine::kDefinition, MakePlan(recipe()).engine}) {
    const Layer layer(recipe(), engine);
    const test::Result whole = RunWhole(layer, call);
    for (const std::int64_t piece : {1, 3, 5}) {
      const test::Result pieces = RunInPieces(layer, call, piece);
      EXPECT_LT(LargestDifference(whole.y, pieces.y), 1e-11) << "pieces of " << piece;
      for (const State::Entry& entry : whole.state.entries()) {
        EXPECT_LT(LargestDifference(entry.view, pieces.state.Get(entry.name)), 1e-11)
            << entry.name << ", pieces of " << piece;
      }
    }
  }
}

TEST_P(ZooLayer, PackedSequencesDoNotMeet) {
  const Dims dims = test::SmallDims(recipe());
  const Call call(recipe(), dims, DType::kFloat64, 3);
  const Layer layer(recipe(), Engine::kDefinition);
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
  for (const Engine engine : {Engine::kDefinition, MakePlan(recipe()).engine}) {
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
              ASSERT_EQ(y, expected.y.view().At({b, t, h, c})) << b << " " << t << " " << h;
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

TEST_P(EngineLayer, AgreesWithTheDefinition) {
  for (const std::int64_t tokens : {0, 1, 7, 40}) {
    Dims dims = test::SmallDims(recipe());
    dims.tokens = tokens;
    const Call call(recipe(), dims, DType::kFloat64, 6);
    const test::Result defined = RunWhole(Layer(recipe(), Engine::kDefinition), call);
    const test::Result computed = RunWhole(Layer(recipe()), call);
    // A quotient by a small sum has the condition of its own size.
    double largest = 1;
    for (const double y : defined.y.as<double>()) largest = std::max(largest, std::abs(y));
    EXPECT_LT(LargestDifference(defined.y, computed.y), 1e-12 * largest * largest);
    for (const State::Entry& entry : defined.state.entries()) {
      EXPECT_LT(LargestDifference(entry.view, computed.state.Get(entry.name)), 1e-12) << entry.name;
    }
  }
}

TEST_P(ZooLayer, WithoutTokensTheStateIsTheStart) {
  if (!recipe().reading.causal) GTEST_SKIP() << "reads the whole sequence at once";
  Dims dims = test::SmallDims(recipe());
  dims.tokens = 0;
  const Call call(recipe(), dims, DType::kFloat64, 7);
  const Layer layer(recipe(), Engine::kDefinition);
  const test::Result result = RunWhole(layer, call);
  const State start = layer.InitialState(call.inputs);
  ASSERT_EQ(result.state.entries().size(), start.entries().size());
  for (const State::Entry& entry : start.entries()) {
    EXPECT_EQ(LargestDifference(entry.view, result.state.Get(entry.name)), 0) << entry.name;
  }
}

TEST_P(ZooLayer, MemorizeThenRetrieveIsForward) {
  const Recipe r = recipe();
  if (!r.reading.causal || r.reading.read == Read::kBefore || r.reading.correction != 0) {
    GTEST_SKIP() << "reads something else than the memory after the token";
  }
  Dims dims = test::SmallDims(r);
  const Call call(r, dims, DType::kFloat64, 8);
  for (const Engine engine : {Engine::kDefinition, MakePlan(r).engine}) {
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
    EXPECT_LT(LargestDifference(whole.y.view().Slice(1, dims.tokens - 1, 1), y), 1e-12);
  }
}

}  // namespace
}  // namespace ttr
