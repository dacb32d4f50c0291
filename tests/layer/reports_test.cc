// What a regression knows beside y: slopes, leverage, effective pairs.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>

#include "tests/recipe/message.h"
#include "tests/support/calls.h"
#include "tests/support/engines.h"
#include "ttr/decoder.h"
#include "ttr/layer.h"
#include "ttr/plan.h"

namespace ttr {
namespace {

using test::AlignedBytes;
using test::Call;
using test::LargestDifference;

// Every report that a recipe has, of a whole call.
struct Reported {
  Tensor y, status, slope, leverage, effective_pairs;
  State state;

  Outputs views(const Recipe& recipe) const {
    Outputs outputs{.y = y, .status = status};
    for (const ReportField& report : kReports) {
      if (!HasReport(recipe, report)) continue;
      if (report.view == &Outputs::slope) outputs.slope = slope;
      if (report.view == &Outputs::leverage) outputs.leverage = leverage;
      if (report.view == &Outputs::effective_pairs) outputs.effective_pairs = effective_pairs;
    }
    return outputs;
  }
};

Reported Empty(const Dims& dims) {
  const Shape heads = StatusShape(dims);
  return {.y = Tensor(DType::kFloat64, OutputShape(dims)),
          .status = Tensor(DType::kInt8, heads),
          .slope = Tensor(DType::kFloat64, ReportShape(kReports[3], dims)),
          .leverage = Tensor(DType::kFloat64, heads),
          .effective_pairs = Tensor(DType::kFloat64, heads),
          .state = {}};
}

Reported Report(const Layer& layer, const Call& call) {
  Reported got = Empty(call.dims);
  layer.Forward(call.inputs, got.state, got.views(layer.recipe()));
  return got;
}

Call CallOf(const char* recipe, std::int64_t tokens, std::uint64_t seed) {
  return Call(ParseRecipe(recipe), test::TwoMemories(tokens, 3, 2), DType::kFloat64, seed);
}

// v = c + S k without noise: the slope is S, wherever it is asked.
TEST(Reports, SlopeOfAPlaneIsThePlanes) {
  const Call call = CallOf("local_linear{ridge: 0}", 40, 1);
  const double plane[3][2] = {{1, -2}, {0.5, 3}, {-1, 0.25}};
  for (std::int64_t t = 0; t < 40; ++t) {
    for (std::int64_t h = 0; h < 2; ++h) {
      for (std::int64_t j = 0; j < 2; ++j) {
        double v = 0.7;
        for (std::int64_t i = 0; i < 3; ++i) v += plane[i][j] * call.inputs.k.At({0, t, h, i});
        call.inputs.v.Set({0, t, h, j}, v);
      }
    }
  }
  const Reported got = Report(Layer(call.recipe), call);
  for (std::int64_t i = 0; i < 3; ++i) {
    for (std::int64_t j = 0; j < 2; ++j) {
      EXPECT_NEAR(got.slope.view().At({0, 39, 1, 2 * i + j}), plane[i][j], 1e-9);
    }
  }
}

// Moving a query by d moves a fit whose weights stay as they are by the slope along d.
TEST(Reports, SlopeIsThatOfTheFitAtItsQuery) {
  const Call call = CallOf("local_quadratic{kernel: gaussian, bandwidth: 1e6, ridge: 0}", 60, 2);
  const Layer layer(call.recipe);
  const Reported at = Report(layer, call);
  constexpr double kStep = 1e-4;
  const double q = call.inputs.q.At({0, 59, 0, 1});
  call.inputs.q.Set({0, 59, 0, 1}, q + kStep);
  const Reported after = Report(layer, call);
  call.inputs.q.Set({0, 59, 0, 1}, q - kStep);
  const Reported before = Report(layer, call);
  for (std::int64_t j = 0; j < 2; ++j) {
    const double slope =
        (after.y.view().At({0, 59, 0, j}) - before.y.view().At({0, 59, 0, j})) / (2 * kStep);
    EXPECT_NEAR(at.slope.view().At({0, 59, 0, 2 + j}), slope, 1e-3);
  }
}

// The leverage of a key in its own fit is the slope of its answer by its value, which noise in that
// value moves it by.
TEST(Reports, LeverageIsTheWeightOfAPairInItsOwnFit) {
  for (const char* recipe :
       {"rls{ridge: 0.3}", "rls{ridge: 0.3, factor: qr}", "affine_rls{ridge: 0.3}",
        "kernel_ridge{kernel: gaussian, bandwidth: 2, ridge: 0.3}", "rls{ridge: 0}"}) {
    const Call call = CallOf(recipe, 20, 3);
    for (std::int64_t h = 0; h < 2; ++h) {
      for (std::int64_t i = 0; i < 3; ++i) {
        call.inputs.q.Set({0, 19, h, i}, call.inputs.k.At({0, 19, h, i}));
      }
    }
    const Layer layer(call.recipe);
    const Reported at = Report(layer, call);
    call.inputs.v.Set({0, 19, 1, 0}, call.inputs.v.At({0, 19, 1, 0}) + 1);
    const Reported moved = Report(layer, call);
    const double weight = moved.y.view().At({0, 19, 1, 0}) - at.y.view().At({0, 19, 1, 0});
    // A regression in a kernel's space is the ridge's posterior: h / (1 + h) of its variance
    // before.
    const double leverage = at.leverage.view().At({0, 19, 1});
    EXPECT_NEAR(leverage, weight, 1e-9) << recipe;
  }
}

TEST(Reports, LeverageOfTheLinearKernelIsThatOfLeastSquares) {
  const Call call = CallOf("rls{ridge: 0.3}", 20, 4);
  const Reported rls = Report(Layer(call.recipe), call);
  for (const char* recipe : {"window_rls{window: 20, ridge: 0.3}", "rls{ridge: 0.3, factor: qr}"}) {
    const Reported other = Report(Layer(ParseRecipe(recipe)), call);
    EXPECT_LE(LargestDifference(rls.leverage, other.leverage), 1e-10) << recipe;
    EXPECT_LE(LargestDifference(rls.y, other.y), 1e-10) << recipe;
  }
}

TEST(Reports, EqualWeightsAreAsManyPairs) {
  const Call call = CallOf("softmax{scale: 0}", 7, 5);
  const Reported got = Report(Layer(call.recipe), call);
  for (std::int64_t t = 0; t < 7; ++t) {
    EXPECT_NEAR(got.effective_pairs.view().At({0, t, 1}), static_cast<double>(t + 1), 1e-12);
  }
}

TEST(Reports, EffectivePairsOfTheEngineAreTheDefinitions) {
  for (const char* recipe :
       {"softmax", "decayed_softmax{importance: input}", "softmax{kernel: inverse_distance}",
        "nadaraya_watson{kernel: epanechnikov, bandwidth: 2}", "softmax{pair_bias: input}",
        "local_linear{ridge: 0.1}"}) {
    const Call call(ParseRecipe(recipe), test::TwoMemories(300, 5, 3), DType::kFloat64, 6, true);
    const Reported got = Report(Layer(call.recipe), call);
    const Reported expected = Report(Layer(call.recipe, kDefinition), call);
    EXPECT_LE(LargestDifference(got.effective_pairs, expected.effective_pairs), 1e-9) << recipe;
    EXPECT_LE(LargestDifference(got.y, expected.y), 1e-9) << recipe;
  }
}

// The definition leaves the state that the engine goes on from.
TEST(Reports, LeaveTheStateAsItIs) {
  const Call call = CallOf("rls{ridge: 0.3}", 20, 7);
  const Layer layer(call.recipe);
  const Reported got = Report(layer, call);
  const test::Result plain = test::RunWhole(layer, call);
  for (const State::Entry& entry : plain.state.entries()) {
    EXPECT_LE(LargestDifference(entry.view, got.state.Get(entry.name)), 1e-12) << entry.name;
  }
}

TEST(Reports, ThatARecipeLacksAreRefused) {
  const Call call = CallOf("deltanet", 5, 8);
  const Layer layer(call.recipe);
  const Tensor y(DType::kFloat64, OutputShape(call.dims));
  const Tensor leverage(DType::kFloat64, StatusShape(call.dims));
  State state;
  EXPECT_EQ(
      Message([&] { layer.Forward(call.inputs, state, {.y = y, .leverage = leverage}); }),
      "[Forward] leverage must be absent, for uniform | linear | sgd has none but is a tensor");
  const Call rls = CallOf("rls", 5, 8);
  const Layer least(rls.recipe);
  EXPECT_THROW(least.Forward(rls.inputs, state, {.y = y, .slope = leverage}), Error);
  const Tensor wrong(DType::kFloat64, {1, 5, 2, 1});
  EXPECT_EQ(Message([&] { least.Forward(rls.inputs, state, {.y = y, .leverage = wrong}); }),
            "[Forward] leverage must be [1, 5, 2] but is float64 [1, 5, 2, 1]");
  AlignedBytes saved(least.SavedBytes(rls.dims));
  if (!saved.empty()) {
    EXPECT_THROW(least.Forward(rls.inputs, state, {.y = y, .leverage = leverage}, {.saved = saved}),
                 Error);
  }
}

// Token by token, and as a draft: what the definition says of the whole. Where the definition
// reports, the answers are, bit for bit, those of a decoder that is not asked.
TEST(Reports, OfADecoderAreThoseOfTheWhole) {
  for (const char* recipe :
       {"rls{ridge: 0.3}", "mesa{read: before, ridge: 0.3}", "affine_rls{ridge: 0.3, decay: 0.9}",
        "rls{ridge: 0.3, factor: qr}", "kernel_ridge{importance: input, ridge: 0.3}",
        "window_rls{window: 4, ridge: 0.3}", "local_linear{ridge: 0.1, window: 6}",
        "softmax{pair_bias: distance, extent: 3}"}) {
    const Call call(ParseRecipe(recipe), test::TwoMemories(12, 3, 2), DType::kFloat64, 9, true);
    const Layer layer(call.recipe);
    const Reported whole = Report(Layer(call.recipe, kDefinition), call);
    const Dims one = CheckInputs("decoder", layer.requirements(), test::TokensOf(call, 0, 1));
    for (const std::int64_t draft : {0, 3}) {
      const DecoderOptions options{.state = DType::kFloat64, .draft = draft};
      Decoder decoder(layer, one, options), silent(layer, one, options);
      const std::int64_t tokens = draft > 0 ? 3 : 1;
      for (std::int64_t t = 0; t < 12; t += tokens) {
        Dims dims = call.dims;
        dims.tokens = tokens;
        const Inputs inputs = test::TokensOf(call, t, tokens);
        const Reported got = Empty(dims);
        decoder.Step(inputs, got.views(layer.recipe()));
        const Tensor y(DType::kFloat64, OutputShape(dims));
        silent.Step(inputs, {.y = y});
        if (layer.plan().engine != "kernel_smoother") {  // which reports itself
          EXPECT_EQ(LargestDifference(got.y, y), 0) << recipe;
        }
        const auto expected = [&](const Tensor& report) {
          return report.view().Slice(1, t, tokens);
        };
        EXPECT_LE(LargestDifference(got.y, expected(whole.y)), 1e-9) << recipe;
        EXPECT_LE(LargestDifference(got.slope, expected(whole.slope)), 1e-9) << recipe;
        EXPECT_LE(LargestDifference(got.leverage, expected(whole.leverage)), 1e-9) << recipe;
        EXPECT_LE(LargestDifference(got.effective_pairs, expected(whole.effective_pairs)), 1e-9)
            << recipe;
      }
    }
  }
}

}  // namespace
}  // namespace ttr
