// Gradients of the least-squares engine against central differences of the definition.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

#include "tests/support/calls.h"
#include "tests/support/directions.h"
#include "tests/support/gradients.h"
#include "tests/support/recipes.h"
#include "ttr/layer.h"

namespace ttr {
namespace {

using test::Call;
using test::Differentiate;
using test::ExpectClose;
using test::Gradients;
using test::Normal;

// Ridges are large enough for differences: what is nearly singular bends within their step.
const std::vector<std::string> kRecipes = {
    "rls{ridge: 0.5}",
    "rls{ridge: 0.5, read: before, scale: 0.7}",
    "weighted_rls{ridge: 0.5}",
    "weighted_rls{ridge: 0.5, decay: 0.8, read: before}",
    "weighted_rls{ridge: 2, decay: retention, output_norm: rms}",
    "weighted_rls{ridge: 2, features: t2r, normalise_qk: true, read: before}",
    "mesa{ridge: 0.5, decay: none}",
    "mesa{ridge: 0.5, decay: none, read: before, output_norm: l2}",
    "mesa{ridge: 0.5}",
    "mesa{ridge: 0.5, read: before, decay: 0.8, scale: 0.7}",
    "mesa{ridge: 0.5, decay: retention, output_norm: rms}",
    "mesa{ridge: 0.5, causal: false}",
    "affine_rls{ridge: 0.5}",
    "affine_rls{ridge: 0.5, ridge_kind: constant, decay: 0.9}",
    "affine_rls{ridge: 0.5, features: elu1, decay: scalar}",
    "feature_rls{ridge: 0.5, features: rebased}",
    "intention{ridge: 0.5, importance: input}",
    "intention{ridge: 0.5, ridge_kind: constant, normalise_qk: true, output_norm: rms}",
    "rls{ridge: 0}",
    "rls{ridge: 0, read: before}",
    "intention{ridge: 0}",
    "weighted_rls{ridge: 0, decay: 0.9}",
    "mesa{ridge_kind: relative, ridge: 0.2}",
    "mesa{ridge_kind: relative, ridge: 0.2, decay: 0.8, read: before, scale: 0.7}",
    "uniform | affine | exact(ridge: 0.2, ridge_kind: relative)",
    "mesa{ridge_kind: relative, ridge: 0.2, causal: false, output_norm: rms}",
    // Converged.
    "uniform | linear | conjugate_gradient(steps: 80, ridge: 0.5)",
    "uniform | linear | conjugate_gradient(steps: 80, ridge: 0.5, ridge_kind: constant, "
    "preconditioner: diagonal) | reading(causal: false)",
    "decay(scalar) x importance(input) | linear | conjugate_gradient(steps: 80, ridge: 0.5, "
    "ridge_kind: constant, tolerance: 1e-13)",
    "decay(scalar) | affine(features: elu1) | conjugate_gradient(steps: 80, ridge: 0.5, "
    "ridge_kind: constant)",
    "decay(retention) | linear | conjugate_gradient(steps: 80, ridge: 2) | reading(output_norm: "
    "rms)",
    "decay(0.95) | linear | conjugate_gradient(steps: 80, ridge: 0.5, preconditioner: "
    "block_diagonal, block: 2) | reading(read: before, scale: 0.7)",
    "decay(retention) | linear | conjugate_gradient(steps: 80, ridge: 0.5, ridge_kind: constant, "
    "preconditioner: block_diagonal)",
    "decay(scalar) x importance(input) | linear | conjugate_gradient(steps: 80, ridge: 0.5, "
    "ridge_kind: constant, preconditioner: chunk_factor, tolerance: 1e-13)",
    "kalmanet{ridge_kind: constant, ridge: 0.5, steps: 500}",
    "kalmanet{ridge_kind: constant, ridge: 0.5, importance: input, decay: 0.9, steps: 500, "
    "read: before}",
    "kalmanet{ridge_kind: fading, decay: none, ridge: 0.5, steps: 500}",
    "kalmanet{ridge: 0.2, steps: 400}",
    "kalmanet{ridge: 0.2, steps: 400, decay: retention, read: before}",
    "decay(scalar) x importance(input) | linear | conjugate_gradient(steps: 80, ridge: 0.2, "
    "ridge_kind: relative, preconditioner: diagonal)",
    "decay(scalar) | linear | conjugate_gradient(steps: 80, ridge: 0.5, ridge_kind: constant, "
    "preconditioner: low_rank, rank: 2)",
    "kalmanet{ridge_kind: fading, ridge: 0.5, decay: 0.98, steps: 500}",
    // Steps.
    "batch_gd{eta_kind: constant, eta: 0.1}",
    "batch_gd{eta_kind: constant, steps: 3, eta: 0.05, decay: scalar, importance: input, read: "
    "before}",
    "batch_gd{eta_kind: constant, steps: 6, eta: 0.01, causal: false, scale: 0.5, output_norm: "
    "rms}",
    "batch_gd{eta_kind: constant, steps: 40, eta: 0.02, decay: retention, features: elu1}",
    "batch_gd{eta_kind: constant, eta: 0.1, ridge: 0.3, ridge_kind: constant, decay: scalar}",
    "batch_gd",
    "batch_gd{steps: 1, function: affine}",
    "batch_gd{eta_kind: input, steps: 4}",
    "batch_gd{eta_kind: input, steps: 3, decay: scalar, importance: input, read: before, ridge: "
    "0.2}",
    "batch_gd{eta_kind: input, steps: 9, decay: 0.9, ridge_kind: relative, ridge: 0.1, function: "
    "affine}",
    "batch_gd{eta_kind: input, steps: 2, causal: false, ridge_kind: constant, ridge: 0.3}",
    "batch_gd{momentum: true, steps: 4}",
    "batch_gd{momentum: true, eta_kind: constant, eta: 0.1, steps: 3, decay: scalar, importance: "
    "input, read: before}",
    "batch_gd{momentum: true, steps: 9, decay: 0.9, ridge_kind: relative, ridge: 0.1, function: "
    "affine}",
    "batch_gd{momentum: true, steps: 2, causal: false, ridge_kind: constant, ridge: 0.3, "
    "output_norm: rms}",
    "batch_gd{steps: 3, eta: 0.7, decay: scalar, importance: input, read: before}",
    "batch_gd{ridge: 0.3, decay: retention, normalise_qk: true}",
    "batch_gd{ridge: 0.3, ridge_kind: constant, decay: scalar, importance: input, eta: 1.5}",
    "batch_gd{ridge: 0.2, ridge_kind: relative, decay: 0.9, steps: 12, function: affine}",
    "batch_gd{ridge: 0.2, ridge_kind: relative, causal: false, output_norm: rms}",
    "quasi_newton{eta_kind: constant, eta: 0.3, ridge: 0.5, decay: scalar, importance: input}",
    "quasi_newton{ridge: 0.5}",
    "quasi_newton{steps: 1, decay: scalar}",
    "quasi_newton{decay: scalar, importance: input, ridge_kind: constant, ridge: 0.5, eta: 0.4, "
    "function: affine}",
    "quasi_newton{decay: scalar, importance: input, ridge_kind: relative, ridge: 0.2, eta: 0.4}",
    "quasi_newton{preconditioner: block_diagonal, block: 2, decay: scalar, ridge: 0.5, read: "
    "before}",
    "quasi_newton{preconditioner: block_diagonal, block: 3, decay: 0.9, ridge_kind: constant, "
    "ridge: 0.5, steps: 7, eta: 0.3, causal: false}",
    "quasi_newton{preconditioner: block_diagonal, block: 3, decay: 0.9, ridge: 0, eta: 0.1, steps: "
    "3}",
    "quasi_newton{preconditioner: low_rank, rank: 1, ridge: 0.5}",
    "quasi_newton{preconditioner: low_rank, rank: 2, decay: scalar, importance: input, ridge: 0.5, "
    "steps: 2, read: before}",
    "quasi_newton{preconditioner: low_rank, rank: 2, decay: retention, ridge_kind: constant, "
    "ridge: 0.5, steps: 7, eta: 0.3, causal: false}",
    "quasi_newton{preconditioner: low_rank, rank: 2, ridge_kind: relative, ridge: 0.2, steps: 1, "
    "eta: 0.7, function: affine}",
    "quasi_newton{preconditioner: low_rank, rank: 40, decay: scalar, ridge_kind: constant, "
    "ridge: 0.5, eta: 0.4}",
    // By rotations.
    "rls{factor: qr, ridge: 0.5}",
    "rls{factor: qr, ridge: 0.5, read: before, scale: 0.7}",
    "weighted_rls{factor: qr, ridge: 0.5}",
    "weighted_rls{factor: qr, ridge: 0.5, decay: 0.8, read: before}",
    "weighted_rls{factor: qr, ridge: 2, decay: retention, output_norm: rms}",
    "mesa{factor: qr, ridge: 0.5}",
    "mesa{factor: qr, ridge: 0.5, read: before, decay: 0.8, scale: 0.7}",
    "mesa{factor: qr, ridge: 0.5, causal: false}",
    "affine_rls{factor: qr, ridge: 0.5}",
    "affine_rls{factor: qr, ridge: 0.5, ridge_kind: constant, decay: 0.9}",
    "affine_rls{factor: qr, ridge: 0.5, decay: scalar, importance: input}",
    "feature_rls{factor: qr, ridge: 0.5, features: rebased}",
    "intention{factor: qr, ridge: 0.5, ridge_kind: constant, normalise_qk: true, output_norm: rms}",
    "rls{factor: qr, ridge: 0}",
    "rls{factor: qr, ridge: 0, read: before}",
    "intention{factor: qr, ridge: 0}",
    "weighted_rls{factor: qr, ridge: 0, decay: 0.9}",
};

class LeastSquaresGradient : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const bool rotates = GetParam().find("factor: qr") != std::string::npos;
    ASSERT_EQ(layer_.plan().engine, rotates ? "least_squares_qr" : "least_squares");
    ASSERT_TRUE(layer_.HasGradients());
  }
  Recipe recipe() const { return ParseRecipe(GetParam()); }
  Layer layer_{recipe()};
};

INSTANTIATE_TEST_SUITE_P(All, LeastSquaresGradient, ::testing::ValuesIn(kRecipes),
                         [](const auto& recipe) { return "case" + std::to_string(recipe.index); });

// A Gram matrix and a B that goes with it: those of a sequence of random pairs.
State PastOf(const Layer& layer, const Call& call) {
  Dims dims = call.dims;
  dims.tokens = 2 * PhiDim(layer.recipe(), dims) + 2;
  const Call past(call.recipe, dims, DType::kFloat64, 77, true);
  State state;
  layer.Memorize(past.inputs, state);
  return state;
}

State RandomGradient(const State& state, std::uint64_t seed) {
  State gradient;
  for (const State::Entry& entry : state.entries()) {
    gradient.Set(entry.name, Normal(DType::kFloat64, entry.view.shape(), seed++));
  }
  return gradient;
}

// Only the sum of the two gradients of an entry means anything where a matrix is symmetric.
void Symmetrise(Gradients& gradients) {
  const TensorView a = gradients.initial.Get("state.a");
  if (!a.defined()) return;
  for (std::int64_t n = 0; n < a.size(0); ++n) {
    for (std::int64_t h = 0; h < a.size(1); ++h) {
      for (std::int64_t i = 0; i < a.size(2); ++i) {
        for (std::int64_t j = 0; j < i; ++j) {
          const double mean = (a.At({n, h, i, j}) + a.At({n, h, j, i})) / 2;
          a.Set({n, h, i, j}, mean);
          a.Set({n, h, j, i}, mean);
        }
      }
    }
  }
}

// What lies above the diagonal of a triangle is no part of it.
void ClearAboveDiagonal(const TensorView& r) {
  for (std::int64_t n = 0; r.defined() && n < r.size(0); ++n) {
    for (std::int64_t h = 0; h < r.size(1); ++h) {
      for (std::int64_t i = 0; i < r.size(2); ++i) {
        for (std::int64_t j = i + 1; j < r.size(2); ++j) r.Set({n, h, i, j}, 0);
      }
    }
  }
}

Tensor AnswerGradient(const Dims& dims, std::uint64_t seed) {
  return Normal(DType::kFloat64, {dims.batch, dims.tokens, dims.output_heads(), dims.value_dim},
                seed);
}

Dims SomeDims(std::int64_t tokens) {
  Dims dims;
  dims.tokens = tokens;
  dims.heads = dims.value_heads = 2;
  dims.key_heads = 1;
  dims.query_heads = 4;
  dims.key_dim = 3;
  dims.value_dim = 4;
  dims.features = 3;
  return dims;
}

// With everything that is optional, but no ridge in place of one that is 0.
struct FullCall : Call {
  FullCall(const Recipe& asked, const Dims& sizes, std::uint64_t seed)
      : Call(asked, sizes, DType::kFloat64, seed, true) {
    if (asked.optimizer.ridge == 0) inputs.ridge = {};
  }
};

TEST_P(LeastSquaresGradient, IsThatOfTheDefinition) {
  const Dims dims = SomeDims(20);
  const FullCall call(recipe(), dims, 3);
  const Layer defined(recipe(), kDefinition);
  const Tensor dy = AnswerGradient(dims, 30);
  const bool causal = recipe().reading.causal;
  for (const bool past : {false, true}) {
    if (past && !causal) continue;
    const State initial = past ? PastOf(layer_, call) : State();
    const State dstate = causal ? RandomGradient(layer_.InitialState(call.inputs), 20) : State();
    Gradients got = Differentiate(layer_, call.inputs, initial, dy, dstate);
    Gradients expected = Differentiate(defined, call.inputs, initial, dy, dstate);
    Symmetrise(got);
    Symmetrise(expected);
    // Nothing has a derivative by a memory that is singular.
    if (!past) got.initial = expected.initial = {};
    ExpectClose(got, expected, 3e-7);
  }
}

// Fewer than there are dimensions: without a ridge all of them are answered by least norm.
TEST_P(LeastSquaresGradient, IsThatOfTheDefinitionOfFewTokens) {
  const Dims dims = SomeDims(2);
  const FullCall call(recipe(), dims, 4);
  const Tensor dy = AnswerGradient(dims, 35);
  Gradients got = Differentiate(layer_, call.inputs, {}, dy, {});
  Gradients expected = Differentiate(Layer(recipe(), kDefinition), call.inputs, {}, dy, {});
  got.initial = expected.initial = {};
  ExpectClose(got, expected, 3e-7);
}

TEST_P(LeastSquaresGradient, IsThatOfTheDefinitionOfPackedSequences) {
  const Dims dims = SomeDims(9);
  FullCall call(recipe(), dims, 10);
  const Tensor offsets(DType::kInt64, {4});
  const std::int64_t begins[] = {0, 2, 2, 9};
  std::copy(std::begin(begins), std::end(begins), offsets.as<std::int64_t>().begin());
  call.inputs.cu_seqlens = offsets.view();
  const Tensor dy = AnswerGradient(dims, 36);
  Gradients got = Differentiate(layer_, call.inputs, {}, dy, {});
  Gradients expected = Differentiate(Layer(recipe(), kDefinition), call.inputs, {}, dy, {});
  got.initial = expected.initial = {};
  ExpectClose(got, expected, 3e-7);
}

// What is forgotten gets no gradient, and a gate of -inf has the gradient 0 by definition.
TEST_P(LeastSquaresGradient, IsThatOfTheDefinitionWhereGatesForget) {
  const Dims dims = SomeDims(9);
  const FullCall call(recipe(), dims, 5);
  if (!call.inputs.log_decay.defined()) GTEST_SKIP() << "no gates";
  for (const std::int64_t t : {0, 5}) {
    call.inputs.log_decay.Set({0, t, 1}, -std::numeric_limits<double>::infinity());
  }
  const Tensor dy = AnswerGradient(dims, 31);
  Gradients got = Differentiate(layer_, call.inputs, {}, dy, {});
  Gradients expected = Differentiate(Layer(recipe(), kDefinition), call.inputs, {}, dy, {});
  got.initial = expected.initial = {};
  ExpectClose(got, expected, 3e-7);
}

// Over several chunks of full size: the derivative along a random direction.
TEST_P(LeastSquaresGradient, IsThatOfTheDefinitionAlongADirection) {
  if (recipe().function.features != FeatureMap::kNone) GTEST_SKIP() << "many dimensions";
  Dims dims = SomeDims(100);
  dims.key_dim = 21;
  dims.value_dim = 9;
  const FullCall call(recipe(), dims, 6);
  test::ExpectSlopeOfTheDefinition(layer_, call, AnswerGradient(dims, 32), 1e-7);
}

TEST_P(LeastSquaresGradient, OfFloatIsThatOfDouble) {
  // Gradients grow with the square of the condition: where the ridge fades within a few tokens
  // float has no digits of them.
  if (recipe().optimizer.ridge == 0 || recipe().weights.decay == Decay::kConstant) {
    GTEST_SKIP() << "too badly conditioned for float";
  }
  Dims dims = SomeDims(100);
  dims.key_dim = 21;
  const Call wide(recipe(), dims, DType::kFloat64, 7, true);
  const Call narrow(recipe(), dims, DType::kFloat32, 7, true);
  for (const InputField& field : InputFields()) {
    const TensorView& view = narrow.inputs.*field.view;
    if (!view.defined()) continue;
    for (std::int64_t i = 0; i < view.shape().elements(); ++i) {
      if (field.name == "log_decay") view.as<float>()[i] *= 0.01F;
    }
    CopyInto(view, wide.inputs.*field.view);
  }
  const Tensor dy = AnswerGradient(dims, 33);
  Gradients expected = Differentiate(layer_, wide.inputs, {}, dy, {});
  Gradients got = Differentiate(layer_, narrow.inputs, {}, Tensor::Copy(dy, DType::kFloat32), {});
  got.initial = expected.initial = {};
  ExpectClose(got, expected, 3e-4);
}

// Before a memory is determined x is as large as 1 / ridge, and what multiplies it in dk, the rest
// v . dy - k . z, as small as the ridge. Taken as a difference it makes two hundred roundings of
// error (measured), as it is found here a dozen.
TEST(LeastSquaresKeyGradient, OfFloatHoldsBeforeTheMemoryIsDetermined) {
  constexpr std::int64_t kDim = 48;
  constexpr double kRoundings = 64;
  const Layer layer(ParseRecipe("rls{ridge: 0.001}"));
  ASSERT_EQ(layer.plan().engine, "least_squares");
  Dims dims = SomeDims(kDim);
  dims.key_dim = kDim;
  const Call wide(layer.recipe(), dims, DType::kFloat64, 7, false);
  const Call narrow(layer.recipe(), dims, DType::kFloat32, 7, false);
  for (const InputField& field : InputFields()) {
    const TensorView& view = narrow.inputs.*field.view;
    if (!view.defined()) continue;
    for (std::int64_t i = 0; i < view.shape().elements(); ++i) {
      if (field.name == "k") view.as<float>()[i] /= std::sqrt(static_cast<float>(kDim));
    }
    CopyInto(view, wide.inputs.*field.view);
  }
  const Tensor dy = AnswerGradient(dims, 33);
  const Gradients expected = Differentiate(layer, wide.inputs, {}, dy, {});
  const Gradients got =
      Differentiate(layer, narrow.inputs, {}, Tensor::Copy(dy, DType::kFloat32), {});
  const TensorView& dk = expected.inputs.k;
  const double greatest = test::LargestDifference(dk, Tensor(dk.dtype(), dk.shape()));
  const double allowed = kRoundings * std::numeric_limits<float>::epsilon() * greatest;
  EXPECT_LT(test::LargestDifference(got.inputs.k, dk), allowed);
}

TEST_P(LeastSquaresGradient, HasTheSameBitsForAnyNumberOfThreads) {
  Dims dims = SomeDims(60);
  dims.batch = 2;
  dims.key_dim = 21;
  const Call call(recipe(), dims, DType::kFloat32, 8, true);
  const Tensor dy = AnswerGradient(dims, 34);
  const auto three = MakeExecutor(3);
  const Gradients one = Differentiate(layer_, call.inputs, {}, dy, {},
                                      {.executor = &SequentialExecutor(), .scratch = {}});
  std::vector<std::byte> scratch(layer_.BackwardScratchBytes(dims, 3));
  const Gradients many =
      Differentiate(layer_, call.inputs, {}, dy, {}, {.executor = three.get(), .scratch = scratch});
  test::ExpectWithin(one, many, 0);
}

// Directions are a memory's own, and queries may be of more heads than memories.
TEST(LeastSquaresGradientOfDrawnFeatures, OfSeveralQueriesAMemory) {
  for (const char* map : {"favor", "rfa", "dijiang"}) {
    const Recipe recipe =
        ParseRecipe("rls{ridge: 0.5, feature_dim: 6, features: " + std::string(map) + "}");
    Dims dims = test::TwoMemories(5, 3, 2);
    dims.query_heads = 4;
    const Call call(recipe, dims, DType::kFloat64, 1);
    ASSERT_FALSE(call.inputs.features_w.defined());
    const Tensor dy = Normal(DType::kFloat64, OutputShape(dims), 2);
    Gradients got = Differentiate(Layer(recipe), call.inputs, {}, dy, {});
    Gradients expected = Differentiate(Layer(recipe, kDefinition), call.inputs, {}, dy, {});
    got.initial = expected.initial = State();  // of a symmetric A a difference sees one half
    ExpectClose(got, expected, 1e-6);
  }
}

TEST_P(LeastSquaresGradient, WithoutTokensIsThatOfTheState) {
  if (!recipe().reading.causal) GTEST_SKIP() << "no state";
  const Call call(recipe(), SomeDims(0), DType::kFloat64, 9, true);
  const State initial = PastOf(layer_, call);
  const State dstate = RandomGradient(initial, 20);
  Gradients got = Differentiate(layer_, call.inputs, initial, AnswerGradient(call.dims, 1), dstate);
  Gradients expected;
  for (const State::Entry& entry : dstate.entries()) {
    expected.initial.Set(entry.name, Tensor::Copy(entry.view));
  }
  Symmetrise(expected);
  ClearAboveDiagonal(expected.initial.Get("state.r"));
  // Those of a triangle are sums' on the way.
  const double rounding = expected.initial.Get("state.r").defined() ? 1e-13 : 0;
  for (const State::Entry& entry : expected.initial.entries()) {
    const TensorView& found = got.initial.Get(entry.name);
    EXPECT_LE(test::LargestDifference(found, entry.view), rounding) << entry.name;
  }
}

}  // namespace
}  // namespace ttr
