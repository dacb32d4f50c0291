// Gradients of the layers that the fast-weights engine runs, against those of the definition.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "tests/support/calls.h"
#include "tests/support/gradients.h"
#include "ttr/error.h"
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
  void SetUp() override { ASSERT_EQ(layer_.plan().engine, "fast_weights"); }

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
        "preconditioned_deltanet{decay: channel, curvature_decay: 0.9, curvature_centre: 0.5}",
        "gateloop", "gateloop{read: before, scale: 0.5}", "gateloop{importance: complement}",
        "gateloop{importance: input, output_norm: l2}",
        "gateloop{importance: root_complement, read: before}",
        "gateloop{read: before, bonus: true, features: relu}", "momentum_deltanet",
        "momentum_deltanet{decay: scalar, weight_decay: coupled, read: before}",
        "momentum_deltanet{weight_decay: none, step: longhorn, normalise_qk: true}",
        "momentum_deltanet{weight_decay: none, decay: scalar, scale: 0.5}",
        "momentum_deltanet{decay: 0.9, step: nlms, output_norm: l2, read: before}",
        "momentum_deltanet{features: elu1, output_norm: rms}",
        "linear_attention{function: affine, normalise_sum: sum, features: elu1, read: before}",
        "retnet{function: affine, features: taylor2, scale: 0.5}", "mlstm{function: affine}",
        "mamba2{function: affine, causal: false, features: cosformer}",
        "nlms{function: affine, eta: 0.5, eps: 0.1}",
        "gated_deltanet{function: affine, normalise_qk: true}",
        "deltanet{function: affine, features: hedgehog_exp, step: longhorn, read: before}",
        "delta_product{function: affine, steps: 3, step: nlms, features: elu1}",
        "momentum_deltanet{function: affine, normalise_qk: true}",
        "leaky_lms{function: affine, step: longhorn}", "preconditioned_deltanet{function: affine}",
        "linear_attention{causal: false}",
        "linear_attention{causal: false, normalise_qk: true, scale: rsqrt_dk, output_norm: l2}",
        "linear_attention{causal: false, features: cosformer, normalise_sum: sum}",
        "linear_attention{causal: false, features: hedgehog_exp, importance: input, eta: 0.5}",
        "retnet{causal: false, output_norm: rms, scale: 0.5}",
        "mamba2{causal: false, importance: input, normalise_sum: sum, features: elu1, scale: 2}",
        "gla{causal: false, scale: 0.5}",
        "gla{causal: false, importance: input, normalise_sum: sum, normalise_qk: true}",
        "hgrn2{causal: false}", "hgrn2{causal: false, importance: root_complement}",
        "gateloop{causal: false}",
        "gateloop{causal: false, importance: input, output_norm: l2, scale: 2}",
        "mlstm{causal: false}", "mlstm{causal: false, decay: none}",
        "mlstm{causal: false, normalise_sum: none, decay: 0.9}"),
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
    const Layer defined(recipe, kDefinition);
    const Gradients expected = Differentiate(defined, call.inputs, initial, dy, dstate);
    // Central differences of step 6e-6 are off by 6e-12 times the third derivative.
    ExpectClose(got, expected, 1e-7);
  }
}

// A gate of -inf has the gradient 0 by definition, and what it forgets gets none.
TEST_P(FastWeightsGradient, IsThatOfTheDefinitionWhereGatesForget) {
  constexpr double kForget = -std::numeric_limits<double>::infinity();
  const Recipe& recipe = layer_.recipe();
  const Dims dims = SomeDims(recipe, 7, 1, 1, 1, 1);
  const Call call(recipe, dims, DType::kFloat64, 7, true);
  const TensorView& gates = call.inputs.log_decay;
  if (!gates.defined()) GTEST_SKIP() << "no gates";
  const std::int64_t width = gates.shape().elements() / dims.tokens;
  for (const std::int64_t t : {0, 4}) {
    for (std::int64_t d = 0; d < width; ++d) gates.as<double>()[t * width + d] = kForget;
  }
  if (width > 1) gates.as<double>()[2 * width] = kForget;  // one channel of a token
  const State initial = RandomState(layer_, call.inputs, 10);
  const Tensor dy = OutputGradient(dims, DType::kFloat64);
  const Gradients got = Differentiate(layer_, call.inputs, initial, dy, {});
  const Layer defined(recipe, kDefinition);
  ExpectClose(got, Differentiate(defined, call.inputs, initial, dy, {}), 1e-7);
}

// Blocks of 64 tokens, the last of them short, of which each has the decays of all behind it.
class WholeGradient : public FastWeightsGradient {};

INSTANTIATE_TEST_SUITE_P(
    All, WholeGradient,
    testing::Values("linear_attention{causal: false}",
                    "mamba2{causal: false, normalise_sum: sum, features: elu1}",
                    "mamba2{causal: false, importance: input}",
                    "gla{causal: false, importance: input}", "gateloop{causal: false}",
                    "mlstm{causal: false}"),
    [](const auto& one) { return "case" + std::to_string(one.index); });

TEST_P(WholeGradient, IsThatOfTheDefinitionOverBlocks) {
  const Recipe& recipe = layer_.recipe();
  const Dims dims = SomeDims(recipe, 131, 1, 1, 1, 2);
  for (const bool forgets : {false, true}) {
    const Call call(recipe, dims, DType::kFloat64, 3, true);
    if (const TensorView& gates = call.inputs.log_decay; gates.defined()) {
      const std::int64_t count = gates.shape().elements();
      for (std::int64_t i = 0; i < count; ++i) gates.as<double>()[i] *= 0.02;
      if (forgets) gates.as<double>()[count / 2] = -std::numeric_limits<double>::infinity();
    }
    if (const TensorView& weights = call.inputs.log_importance; weights.defined()) {
      // No weight is above 1, the first maximum of all.
      for (std::int64_t t = 0; t < dims.tokens; ++t) weights.as<double>()[t] -= 5;
    }
    const Tensor dy = OutputGradient(dims, DType::kFloat64);
    const Layer defined(recipe, kDefinition);
    ExpectClose(Differentiate(layer_, call.inputs, {}, dy, {}),
                Differentiate(defined, call.inputs, {}, dy, {}), 1e-7);
  }
}

TEST_P(WholeGradient, OfWhatIsForgottenIsZero) {
  const Recipe& recipe = layer_.recipe();
  if (recipe.weights.decay == Decay::kNone) GTEST_SKIP() << "nothing is forgotten";
  constexpr std::int64_t kForgotten = 70;
  const Dims dims = SomeDims(recipe, 100, 1, 1, 1, 1);
  const Call call(recipe, dims, DType::kFloat64, 3, true);
  const TensorView& gates = call.inputs.log_decay;
  const std::int64_t width = gates.shape().elements() / dims.tokens;
  for (std::int64_t d = 0; d < width; ++d) {
    gates.as<double>()[kForgotten * width + d] = -std::numeric_limits<double>::infinity();
  }
  const Tensor dy = OutputGradient(dims, DType::kFloat64);
  const Gradients expected = Differentiate(layer_, call.inputs, {}, dy, {});
  // What is no number is forgotten with the rest.
  for (std::int64_t c = 0; c < dims.value_dim; ++c) {
    call.inputs.v.Set({0, 2, 0, c}, std::numeric_limits<double>::quiet_NaN());
  }
  if (recipe.function.features == FeatureMap::kNone) {
    call.inputs.k.Set({0, 4, 0, 0}, std::numeric_limits<double>::quiet_NaN());
  }
  if (const TensorView& weights = call.inputs.importance; weights.defined()) {
    weights.Set({0, 6, 0}, std::numeric_limits<double>::quiet_NaN());
  }
  const Gradients got = Differentiate(layer_, call.inputs, {}, dy, {});
  for (const InputField& field : InputFields()) {
    const TensorView& x = got.inputs.*field.view;
    if (!x.defined()) continue;
    EXPECT_EQ(test::LargestDifference(x, expected.inputs.*field.view), 0) << field.name;
    if (field.view == &Inputs::q) continue;
    const TensorView forgotten = x.Slice(1, 0, kForgotten);
    EXPECT_EQ(test::LargestDifference(forgotten, Tensor(x.dtype(), forgotten.shape()).view()), 0)
        << field.name;
  }
}

TEST_P(FastWeightsGradient, WithoutTokensIsThatOfTheState) {
  const Dims dims = SomeDims(layer_.recipe(), 0, 2, 2, 2, 2);
  const Call call(layer_.recipe(), dims, DType::kFloat64, 8, true);
  const State initial = RandomState(layer_, call.inputs, 10);
  const State dstate = RandomState(layer_, call.inputs, 20);
  const Tensor dy = OutputGradient(dims, DType::kFloat64);
  const Gradients got = Differentiate(layer_, call.inputs, initial, dy, dstate);
  for (const State::Entry& entry : dstate.entries()) {
    if (entry.name == "state.position") continue;
    EXPECT_EQ(test::LargestDifference(got.initial.Get(entry.name), entry.view), 0) << entry.name;
  }
}

TEST_P(FastWeightsGradient, IsTheSameInFloat32) {
  const Dims dims = SomeDims(layer_.recipe(), 70, 2, 2, 2, 2);
  const Call narrow(layer_.recipe(), dims, DType::kFloat32, 5, true);
  const Tensor dy = OutputGradient(dims, DType::kFloat32);
  const Gradients got = Differentiate(layer_, narrow.inputs, {}, dy, {});
  // The inputs in double precision.
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

class WholeLinesGradient : public testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(All, WholeLinesGradient,
                         testing::Values("gated_deltanet", "gated_deltanet{scale: 0.5}",
                                         "linear_attention{scale: 1}", "kda{scale: 0.5}",
                                         "rwkv7{scale: 1}", "gla{read: before, scale: 1}"),
                         [](const auto& one) { return "case" + std::to_string(one.index); });

// Rows of whole cache lines are read and written where they lie; more of them than a block has.
TEST_P(WholeLinesGradient, IsThatOfTheDefinition) {
  const Layer layer(ParseRecipe(GetParam()));
  Dims dims = test::SmallDims(layer.recipe());
  dims.batch = 1;
  dims.heads = dims.key_heads = dims.value_heads = dims.query_heads = 1;
  dims.key_dim = dims.value_dim = 16;
  dims.tokens = 67;
  const Call call(layer.recipe(), dims, DType::kFloat64, 3, true);
  ASSERT_EQ(reinterpret_cast<std::uintptr_t>(call.inputs.v.data()) % 64, 0u);
  const State initial = RandomState(layer, call.inputs, 10);
  const Tensor dy = Normal(DType::kFloat64, {1, dims.tokens, 1, dims.value_dim}, 6);
  const Layer defined(layer.recipe(), kDefinition);
  ExpectClose(Differentiate(layer, call.inputs, initial, dy, {}),
              Differentiate(defined, call.inputs, initial, dy, {}), 1e-7);
}

// Gradients that no cache holds are written past them; those of another type than the arithmetic's
// are converted on their way, and are the same numbers.
TEST_P(WholeLinesGradient, IsTheSameWrittenPastTheCaches) {
  const Layer layer(ParseRecipe(GetParam()));
  Dims dims = test::SmallDims(layer.recipe());
  dims.batch = 1;
  dims.heads = dims.key_heads = dims.value_heads = dims.query_heads = 8;
  dims.key_dim = dims.value_dim = 64;
  dims.tokens = 1030;
  const Call call(layer.recipe(), dims, DType::kFloat32, 3, true);
  const Tensor dy = Normal(DType::kFloat32, {1, dims.tokens, 8, dims.value_dim}, 6);
  ExpectClose(Differentiate(layer, call.inputs, {}, dy, {}, {}, DType::kFloat32),
              Differentiate(layer, call.inputs, {}, dy, {}, {}, DType::kFloat64), 0);
}

class PairedGradient : public testing::TestWithParam<const char*> {
 protected:
  PairedGradient() : dims_(test::SmallDims(layer_.recipe())) {
    dims_.batch = dims_.heads = dims_.key_heads = dims_.value_heads = dims_.query_heads = 1;
  }

  Layer layer_{ParseRecipe(GetParam())};
  Layer defined_{layer_.recipe(), kDefinition};
  Dims dims_;
};

INSTANTIATE_TEST_SUITE_P(All, PairedGradient,
                         testing::Values("gateloop", "gateloop{read: before}",
                                         "momentum_deltanet{decay: scalar}",
                                         "momentum_deltanet{decay: scalar, read: before}"),
                         [](const auto& one) { return "case" + std::to_string(one.index); });

// A block and a little more: pairs pass from block to block.
TEST_P(PairedGradient, IsThatOfTheDefinitionOverManyTokens) {
  dims_.tokens = 70;
  const Call call(layer_.recipe(), dims_, DType::kFloat64, 3, true);
  const State initial = RandomState(layer_, call.inputs, 10);
  const State dstate = RandomState(layer_, call.inputs, 20);
  const Tensor dy = Normal(DType::kFloat64, {1, dims_.tokens, 1, dims_.value_dim}, 6);
  ExpectClose(Differentiate(layer_, call.inputs, initial, dy, dstate),
              Differentiate(defined_, call.inputs, initial, dy, dstate), 1e-7);
}

class ForgottenGradient : public PairedGradient {};

INSTANTIATE_TEST_SUITE_P(All, ForgottenGradient,
                         testing::Values("gateloop", "gateloop{read: before}",
                                         "momentum_deltanet{decay: scalar}",
                                         "momentum_deltanet{decay: scalar, read: before}", "gla",
                                         "gla{read: before}", "mamba2{read: before}",
                                         "gated_deltanet", "gated_deltanet{read: before}", "kda"),
                         [](const auto& one) { return "case" + std::to_string(one.index); });

TEST_P(ForgottenGradient, IsZero) {
  dims_.tokens = 70;
  const Call call(layer_.recipe(), dims_, DType::kFloat64, 3, true);
  const Tensor dy = Normal(DType::kFloat64, {1, dims_.tokens, 1, dims_.value_dim}, 6);
  for (std::int64_t c = 0; c < dims_.value_dim; ++c) dy.view().Set({0, 0, 0, c}, 0);
  // From an empty memory, whose decay does not matter.
  const State initial = RandomState(layer_, call.inputs, 10);
  auto fill = [&](double x) {
    for (const State::Entry& entry : initial.entries()) {
      // A last update is no memory: it does not decay.
      if (entry.name == "state.momentum") continue;
      for (std::int64_t i = 0; i < entry.view.shape().elements(); ++i) {
        StoreElement(entry.view.data(), entry.view.dtype(), i, x);
      }
    }
  };
  fill(0);
  const Gradients expected = Differentiate(defined_, call.inputs, initial, dy, {});
  // Then from a memory that is no number, and is forgotten.
  fill(std::numeric_limits<double>::quiet_NaN());
  const TensorView& gates = call.inputs.log_decay;
  for (std::int64_t d = 0; d < gates.shape().elements() / dims_.tokens; ++d) {
    StoreElement(gates.data(), gates.dtype(), d, -std::numeric_limits<double>::infinity());
  }
  const Gradients got = Differentiate(layer_, call.inputs, initial, dy, {});
  for (const InputField& field : InputFields()) {
    const TensorView& x = got.inputs.*field.view;
    if (!x.defined()) continue;
    // The first token read before reads what is no number yet.
    const std::int64_t first = field.view == &Inputs::q ? 1 : 0;
    const std::int64_t count = dims_.tokens - first;
    EXPECT_LE(test::LargestDifference(x.Slice(1, first, count),
                                      (expected.inputs.*field.view).Slice(1, first, count)),
              1e-7)
        << field.name;
  }
  for (const State::Entry& entry : got.initial.entries()) {
    if (entry.name == "state.momentum") {
      EXPECT_LE(test::LargestDifference(entry.view, expected.initial.Get(entry.name)), 1e-7);
      continue;
    }
    for (std::int64_t d = 0; d < dims_.key_dim; ++d) {
      for (std::int64_t c = 0; c < dims_.value_dim; ++c) {
        EXPECT_EQ(entry.view.At({0, 0, d, c}), 0) << entry.name;
      }
    }
  }
}

// The gradient of a sum, of a layer that has none.
TEST(ForeignGradient, IsRefused) {
  const Layer layer(ParseRecipe("retnet"));
  Dims dims = test::TwoMemories(5, 3, 16);
  const Call call(layer.recipe(), dims, DType::kFloat64, 3, true);
  const Tensor dy = Normal(DType::kFloat64, {1, dims.tokens, 2, dims.value_dim}, 6);
  State dstate = RandomState(layer, call.inputs, 20);
  dstate.Set("state.n", Normal(DType::kFloat64, {1, 2, dims.key_dim}, 7));
  EXPECT_THROW(Differentiate(layer, call.inputs, {}, dy, dstate), Error);
}

// An intercept makes rows of the memory as long as a line that keys do not fill.
TEST(AffineGradient, EndsWithTheKeys) {
  const Layer layer(ParseRecipe("retnet{function: affine}"));
  ASSERT_EQ(layer.plan().engine, "fast_weights");
  constexpr std::int64_t kWidth = 16, kTokens = 9;
  Dims dims = test::SmallDims(layer.recipe());
  dims.batch = dims.heads = dims.key_heads = dims.value_heads = dims.query_heads = 1;
  dims.tokens = kTokens;
  dims.key_dim = kWidth - 1;
  const Call call(layer.recipe(), dims, DType::kFloat64, 3, true);
  const Tensor dy = Normal(DType::kFloat64, {1, kTokens, 1, dims.value_dim}, 6);
  const Gradients expected = Differentiate(layer, call.inputs, {}, dy, {});
  constexpr double kMark = 123;
  Tensor lines[2];
  Inputs gradients;
  for (Tensor& rows : lines) {
    rows = Tensor(DType::kFloat64, {1, kTokens, 1, kWidth});
    std::ranges::fill(rows.as<double>(), kMark);
  }
  gradients.q = lines[0].view().Slice(3, 0, dims.key_dim);
  gradients.k = lines[1].view().Slice(3, 0, dims.key_dim);
  State dinitial;
  layer.Backward(call.inputs, {}, dy, {}, gradients, dinitial);
  EXPECT_LE(test::LargestDifference(gradients.q, expected.inputs.q), 1e-12);
  EXPECT_LE(test::LargestDifference(gradients.k, expected.inputs.k), 1e-12);
  for (const Tensor& rows : lines) {
    for (std::int64_t t = 0; t < kTokens; ++t) {
      EXPECT_EQ(rows.view().At({0, t, 0, kWidth - 1}), kMark);
    }
  }
}

// The second memory may be of another dtype than the first.
TEST_P(PairedGradient, TakesASecondStateOfAnotherType) {
  dims_.tokens = 4;
  const Call call(layer_.recipe(), dims_, DType::kFloat64, 3, true);
  const State initial = RandomState(layer_, call.inputs, 10);
  State mixed;
  for (const State::Entry& entry : initial.entries()) {
    const bool first = entry.name == "state";
    mixed.Set(entry.name, Tensor::Copy(entry.view, first ? DType::kFloat64 : DType::kFloat32));
  }
  State rounded;
  for (const State::Entry& entry : mixed.entries()) {
    rounded.Set(entry.name, Tensor::Copy(entry.view, DType::kFloat64));
  }
  const Tensor dy = Normal(DType::kFloat64, {1, dims_.tokens, 1, dims_.value_dim}, 6);
  const Gradients got = Differentiate(layer_, call.inputs, mixed, dy, initial);
  const Gradients expected = Differentiate(layer_, call.inputs, rounded, dy, initial);
  EXPECT_EQ(test::LargestDifference(got.inputs.v, expected.inputs.v), 0);
  EXPECT_EQ(test::LargestDifference(got.inputs.log_decay, expected.inputs.log_decay), 0);
  ExpectClose(got, expected, 1e-6);  // the gradient of a float32 state is one
}

}  // namespace
}  // namespace ttr
