// Decays that are huge: what was before is gone as if by -inf, NaN with it, and what comes after
// has all its digits.
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>

#include "tests/support/calls.h"
#include "tests/support/gradients.h"
#include "ttr/layer.h"

namespace ttr {
namespace {

using test::Call;
using test::Fill;
using test::LargestDifference;
using test::Result;

constexpr std::int64_t kTokens = 100, kReset = 80;
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kHuge[] = {-1e3, -1e4, -1e6, -1e9, -1e20, -std::numeric_limits<float>::max()};

class Forgetting : public testing::TestWithParam<const char*> {
 protected:
  // With one decay of both memories set.
  static void Reset(const Call& call, double log_decay) {
    for (std::int64_t h = 0; h < 2; ++h) call.inputs.log_decay.Set({0, kReset, h}, log_decay);
  }

  const Recipe recipe = ParseRecipe(GetParam());
  const Layer layer{recipe}, definition{recipe, kDefinition};
  const Dims dims = test::TwoMemories(kTokens, 5, 3);
};

INSTANTIATE_TEST_SUITE_P(
    All, Forgetting,
    testing::Values("decayed_softmax", "decayed_softmax{importance: input, read: before}",
                    "decay(scalar) | kernel(exponential) | gradient", "decayed_softmax{window: 30}",
                    "nadaraya_watson{decay: scalar}",
                    "nadaraya_watson{kernel: epanechnikov, bandwidth: 2, decay: scalar}",
                    "softmax{kernel: inverse_distance, decay: scalar}",
                    "local_linear{decay: scalar}",
                    "local_linear{decay: scalar, read: before, importance: log}"),
    [](const auto& one) { return "case" + std::to_string(one.index); });

TEST_P(Forgetting, ByAHugeDecayIsThatByInfinity) {
  for (const DType dtype : {DType::kFloat64, DType::kFloat32}) {
    const Call plain(recipe, dims, dtype, 1), reset(recipe, dims, dtype, 1);
    Reset(reset, -kInfinity);
    const Result before = RunWhole(layer, plain), whole = RunWhole(layer, reset);
    const Result pieces = RunInPieces(layer, reset, 33), single = RunInPieces(layer, reset, 1);
    EXPECT_EQ(
        LargestDifference(before.y.view().Slice(1, 0, kReset), whole.y.view().Slice(1, 0, kReset)),
        0);
    for (const double decay : kHuge) {
      const Call huge(recipe, dims, dtype, 1);
      Reset(huge, decay);
      EXPECT_EQ(LargestDifference(RunWhole(layer, huge).y, whole.y), 0) << decay;
      EXPECT_EQ(LargestDifference(RunInPieces(layer, huge, 33).y, pieces.y), 0) << decay;
      EXPECT_EQ(LargestDifference(RunInPieces(layer, huge, 1).y, single.y), 0) << decay;
      EXPECT_EQ(LargestDifference(RunWhole(definition, huge).y, RunWhole(definition, reset).y), 0)
          << decay;
    }
  }
}

TEST_P(Forgetting, ByAHugeDecayHasTheGradientsOfInfinity) {
  const Tensor dy = test::Normal(DType::kFloat64, OutputShape(dims), 3);
  const Call reset(recipe, dims, DType::kFloat64, 1);
  Reset(reset, -kInfinity);
  const test::Gradients expected = test::Differentiate(layer, reset.inputs, {}, dy, {});
  for (const double decay : kHuge) {
    const Call huge(recipe, dims, DType::kFloat64, 1);
    Reset(huge, decay);
    test::ExpectWithin(test::Differentiate(layer, huge.inputs, {}, dy, {}), expected, 0);
  }
}

// Decays that leave next to nothing, but do not forget: no digit is lost behind them.
TEST_P(Forgetting, AllButAllKeepsTheDigitsOfWhatFollows) {
  for (const DType dtype : {DType::kFloat64, DType::kFloat32}) {
    const Call call(recipe, dims, dtype, 1);
    for (const std::int64_t t : {10, 11, 40, 41, 42, 43, 44, 45, 46, 79, 80}) {
      for (std::int64_t h = 0; h < 2; ++h) call.inputs.log_decay.Set({0, t, h}, -700);
    }
    const Result defined = RunWhole(definition, call);
    const double rounding = dtype == DType::kFloat64 ? 1e-11 : 2e-5;
    EXPECT_LE(LargestDifference(RunWhole(layer, call).y, defined.y), rounding);
    EXPECT_LE(LargestDifference(RunInPieces(layer, call, 33).y, defined.y), rounding);
    EXPECT_LE(LargestDifference(RunInPieces(layer, call, 1).y, defined.y), rounding);
  }
}

// Memories that are multiplied by their decay.
class ForgettingNan : public testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(
    All, ForgettingNan,
    testing::Values("mamba2", "mlstm", "gla", "gateloop", "hgrn2", "rwkv6", "hgrn", "rg_lru", "lru",
                    "mamba", "gated_deltanet", "kda", "comba", "gated_deltanet2",
                    "momentum_deltanet{decay: scalar}", "weighted_rls{decay: scalar}", "mesa",
                    "linear_attention{decay: scalar, features: elu1, normalise_sum: sum}"),
    [](const auto& one) { return "case" + std::to_string(one.index); });

TEST_P(ForgettingNan, LeavesNothing) {
  const Recipe recipe = ParseRecipe(GetParam());
  const Layer layer(recipe);
  Dims dims = test::TwoMemories(40, 5, 5);
  constexpr std::int64_t kSpoilt = 9, kForgets = 21;
  for (const DType dtype : {DType::kFloat64, DType::kFloat32}) {
    for (const double decay : {-1e3, -1e9, -kInfinity}) {
      const auto forget = [&](const Call& call) {
        if (call.inputs.log_decay.defined()) {
          Fill(call.inputs.log_decay.Slice(1, kForgets, 1), decay);
        } else if (call.inputs.dt.defined()) {  // exp(dt a)
          Fill(call.inputs.a, -1);
          Fill(call.inputs.dt.Slice(1, kForgets, 1), -decay);
        }
        if (call.inputs.momentum.defined()) {
          Fill(call.inputs.momentum.Slice(1, kForgets, 1), 0);
        }
      };
      const Call plain(recipe, dims, dtype, 1), spoilt(recipe, dims, dtype, 1);
      if (!plain.inputs.log_decay.defined() && !plain.inputs.dt.defined()) return;
      forget(plain);
      forget(spoilt);
      Fill(spoilt.inputs.v.Slice(1, kSpoilt, 1).Slice(3, 1, 1),
           std::numeric_limits<double>::quiet_NaN());
      const auto expect = [&](const Result& clean, const Result& got, const char* how) {
        const auto behind = [&](const Result& result) {
          const std::int64_t first = kForgets + (recipe.reading.read == Read::kBefore ? 1 : 0);
          return result.y.view().Slice(1, first, dims.tokens - first);
        };
        EXPECT_LE(LargestDifference(behind(clean), behind(got)),
                  dtype == DType::kFloat64 ? 1e-10 : 1e-3)
            << how << ", " << decay;
      };
      expect(RunWhole(layer, plain), RunWhole(layer, spoilt), "whole");
      expect(RunInPieces(layer, plain, 7), RunInPieces(layer, spoilt, 7), "in pieces");
      expect(RunDecoder(layer, plain), RunDecoder(layer, spoilt), "by a decoder");
    }
  }
}

}  // namespace
}  // namespace ttr
