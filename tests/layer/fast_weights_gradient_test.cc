// Gradients of the layers that the fast-weights engine runs, against those of the definition.
#include <gtest/gtest.h>

#include <string>

#include "tests/support/calls.h"
#include "tests/support/gradients.h"
#include "ttr/layer.h"

namespace ttr {
namespace {

using test::Call;
using test::Differentiate;
using test::ExpectClose;
using test::Gradients;
using test::Normal;
using test::RandomState;

class FastWeightsGradient : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override { ASSERT_EQ(layer_.plan().engine, Engine::kFastWeights); }

  static Dims SomeDims(const Recipe& recipe, std::int64_t tokens, std::int64_t heads,
                       std::int64_t key_heads, std::int64_t value_heads, std::int64_t query_heads) {
    Dims dims = test::SmallDims(recipe);
    dims.batch = 1;
    dims.tokens = tokens;
    dims.heads = heads;
    dims.key_heads = key_heads;
    dims.value_heads = value_heads;
    dims.query_heads = query_heads;
    return dims;
  }

  Tensor OutputGradient(const Dims& dims, DType dtype) const {
    return Normal(dtype, {dims.batch, dims.tokens, dims.output_heads(), dims.value_dim}, 30);
  }

  Layer layer_{ParseRecipe(GetParam())};
};

INSTANTIATE_TEST_SUITE_P(
    All, FastWeightsGradient,
    testing::Values(
        "linear_attention", "linear_attention{eta: 0.5, scale: 2, read: before}",
        "linear_attention{normalise_qk: true, scale: rsqrt_dk, output_norm: l2}",
        "linear_attention{features: elu1, normalise_sum: sum}",
        "linear_attention{features: relu, importance: input}",
        "linear_attention{features: cosformer}", "linear_attention{features: dpfp}",
        "linear_attention{features: t2r}", "linear_attention{features: hedgehog_exp}",
        "linear_attention{features: hedgehog_softmax}", "linear_attention{features: taylor2}",
        "linear_attention{features: rebased}", "linear_attention{features: rfa}",
        "linear_attention{features: favor}", "linear_attention{features: dijiang}",
        "linear_attention{features: power2}", "retnet{output_norm: rms}", "mamba2",
        "mamba2{importance: input, normalise_sum: sum, features: elu1}", "gla",
        "gla{normalise_sum: sum, features: elu1, read: before}", "hgrn2",
        "hgrn2{importance: root_complement, read: before}", "rwkv6",
        "rwkv6{decay: scalar, normalise_qk: true}", "mlstm", "mlstm{read: before}",
        "mlstm{decay: none}", "mlstm{normalise_sum: none, decay: 0.9}", "deltanet",
        "deltanet{read: before, normalise_qk: true}", "nlms{eta: 0.5, eps: 0.1}", "longhorn",
        "efla{decay: 0.9, output_norm: rms}", "leaky_lms", "leaky_lms{step: longhorn}",
        "decoupled_lms{decay: scalar, read: before}", "gated_deltanet",
        "gated_deltanet{features: hedgehog_softmax, normalise_qk: true}", "kda",
        "kda{step: efla, read: before}", "comba", "comba{decay: channel, normalise_qk: true}",
        "gated_deltanet2", "gated_deltanet2{decay: 0.9, step: input}", "delta_product",
        "delta_product{steps: 3, decay: channel, read: before}", "delta_product{step: nlms}",
        "rwkv7", "rwkv7{decay: scalar, read: before}", "rwkv7{decay: none}",
        "preconditioned_deltanet",
        "preconditioned_deltanet{decay: channel, curvature_decay: 0.9, curvature_centre: 0.5}"),
    [](const auto& one) { return "case" + std::to_string(one.index); });

TEST_P(FastWeightsGradient, IsThatOfTheDefinition) {
  struct Heads {
    std::int64_t memories, keys, values, queries, tokens;
  };
  // Own keys, values and queries; shared ones; many queries. Over a chunk's border and within one.
  for (const Heads h :
       {Heads{1, 1, 1, 1, 19}, Heads{4, 2, 4, 2, 3}, Heads{4, 4, 1, 2, 3}, Heads{2, 1, 2, 4, 2}}) {
    const Recipe& recipe = layer_.recipe();
    const bool has_keys = test::SmallDims(recipe).key_heads != test::SmallDims(recipe).heads;
    const Dims dims =
        SomeDims(recipe, h.tokens, h.memories, has_keys ? h.keys : h.memories, h.values, h.queries);
    const Call call(recipe, dims, DType::kFloat64, 3, true);
    const State initial = RandomState(layer_, call.inputs, 10);
    const State dstate = RandomState(layer_, call.inputs, 20);
    const Tensor dy = OutputGradient(dims, DType::kFloat64);
    const Gradients got = Differentiate(layer_, call.inputs, initial, dy, dstate);
    const Layer defined(recipe, Engine::kDefinition);
    const Gradients expected = Differentiate(defined, call.inputs, initial, dy, dstate);
    // Central differences of step 6e-6 are off by 6e-12 times the third derivative.
    ExpectClose(got, expected, 1e-7);
  }
}

TEST_P(FastWeightsGradient, IsTheSameInFloat32) {
  const Dims dims = SomeDims(layer_.recipe(), 70, 2, 2, 2, 2);
  const Call narrow(layer_.recipe(), dims, DType::kFloat32, 5, true);
  const Tensor dy = OutputGradient(dims, DType::kFloat32);
  const Gradients got = Differentiate(layer_, narrow.inputs, {}, dy, {});
  // The same numbers in double precision.
  Inputs wide = narrow.inputs;
  std::vector<Tensor> copies;
  for (const InputField& field : InputFields()) {
    const TensorView& input = narrow.inputs.*field.view;
    if (!input.defined() || !IsFloating(input.dtype())) continue;
    copies.push_back(Tensor::Copy(input, DType::kFloat64));
    wide.*field.view = copies.back().view();
  }
  const Tensor wide_dy = Tensor::Copy(dy, DType::kFloat64);
  const Gradients expected = Differentiate(layer_, wide, {}, wide_dy, {});
  ExpectClose(got, expected, 2e-3);
}

TEST_P(FastWeightsGradient, HasTheSameBitsForAnyNumberOfThreads) {
  Dims dims = SomeDims(layer_.recipe(), 40, 4, 2, 2, 8);
  dims.batch = 2;
  const bool has_keys =
      test::SmallDims(layer_.recipe()).key_heads != test::SmallDims(layer_.recipe()).heads;
  if (!has_keys) dims.key_heads = dims.heads;
  const Call call(layer_.recipe(), dims, DType::kFloat32, 4, true);
  const Tensor dy = OutputGradient(dims, DType::kFloat32);
  const auto three = MakeExecutor(3);
  const Gradients one = Differentiate(layer_, call.inputs, {}, dy, {},
                                      {.executor = &SequentialExecutor(), .scratch = {}});
  const Gradients many =
      Differentiate(layer_, call.inputs, {}, dy, {}, {.executor = three.get(), .scratch = {}});
  ExpectClose(one, many, 0);
}

}  // namespace
}  // namespace ttr
