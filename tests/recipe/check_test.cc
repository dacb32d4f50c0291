// CheckInputs, CheckRanges and CheckState over good and bad calls.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "src/recipe/validate.h"
#include "tests/recipe/make_inputs.h"
#include "tests/recipe/message.h"
#include "tests/support/random_recipe.h"
#include "ttr/state.h"
#include "ttr/zoo.h"

namespace ttr {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::string Failure(const Recipe& recipe, const Inputs& inputs, Needs needs = Needs::kBoth) {
  return Message([&] { CheckInputs("op", recipe, inputs, needs); });
}

// A [B, T, H, D] tensor for each of q, k, v and gates as needed; the test changes one of them.
struct Delta {
  Recipe recipe = ParseRecipe("gated_deltanet");
  OwnedInputs owned;
  Inputs& in = owned.inputs;

  Delta() {
    owned.Add(&Inputs::q, DType::kFloat32, {2, 64, 4, 128});
    owned.Add(&Inputs::k, DType::kFloat32, {2, 64, 4, 128});
    owned.Add(&Inputs::v, DType::kFloat32, {2, 64, 4, 32});
    owned.Add(&Inputs::log_decay, DType::kFloat32, {2, 64, 4});
    owned.Add(&Inputs::step, DType::kFloat32, {2, 64, 4});
  }
  std::string Failure(Needs needs = Needs::kBoth) { return ttr::Failure(recipe, in, needs); }
};

TEST(CheckInputs, TakesEveryLayerOfTheZooAndTellsItsSizes) {
  for (const ZooEntry& entry : Zoo()) {
    const Recipe recipe = ParseRecipe(entry.recipe);
    const OwnedInputs made = MakeInputs(recipe);
    const Dims dims = CheckInputs("op", recipe, made.inputs);
    const bool vector =
        recipe.function.kind == FunctionClass::kConstant && !made.inputs.q.defined();
    EXPECT_EQ(dims.batch, 2) << entry.name;
    EXPECT_EQ(dims.tokens, 12) << entry.name;
    EXPECT_EQ(dims.heads, 2) << entry.name;
    EXPECT_EQ(dims.query_heads, vector ? 2 : 4) << entry.name;
    EXPECT_EQ(dims.key_heads, vector || entry.name == "hgrn2" ? 2 : 1) << entry.name;
    EXPECT_EQ(dims.value_heads, 2) << entry.name;
    EXPECT_EQ(dims.key_dim, 4) << entry.name;
    EXPECT_EQ(dims.value_dim, 4) << entry.name;
    EXPECT_EQ(dims.output_heads(), vector ? 2 : 4) << entry.name;
    EXPECT_EQ(dims.hidden, recipe.function.depth > 1 ? 4 * recipe.function.expansion : 0)
        << entry.name;
  }
}

// What a recipe requires must be there, what it does not take must not, and no axis of any input
// may change alone: for any recipe.
TEST(CheckInputs, NamesTheInputThatIsWrong) {
  RandomRecipes random(8);
  for (int i = 0; i < 400; ++i) {
    Recipe recipe = NearestValid(random.Next());
    recipe.optimizer.steps = std::min<std::int64_t>(recipe.optimizer.steps, 3);
    recipe.optimizer.mini_batch = std::min<std::int64_t>(recipe.optimizer.mini_batch, 16);
    for (const std::size_t alternative : {0, 1}) {
      OwnedInputs made = MakeInputs(recipe, alternative);
      ASSERT_EQ(Failure(recipe, made.inputs), "") << ToString(recipe);
      for (const InputField& field : InputFields()) {
        const TensorView good = made.inputs.*field.view;
        TensorView& view = made.inputs.*field.view;
        const std::string begin = "[op] " + std::string(field.name) + " must be ";
        if (!good.defined()) {
          if (field.name == "cu_seqlens") continue;
          made.Add(field.view, DType::kFloat32, {2});
          EXPECT_EQ(Failure(recipe, made.inputs).substr(0, begin.size()), begin);
          view = TensorView();
          continue;
        }
        made.Add(field.view, DType::kFloat32, {1, 1});
        if (good.rank() != 2) {
          EXPECT_EQ(Failure(recipe, made.inputs).substr(0, begin.size()), begin);
        }
        made.Add(field.view, DType::kInt64, good.shape());
        EXPECT_EQ(Failure(recipe, made.inputs),
                  begin + "float32, float64, bfloat16 or float16 but is int64");
        view = good;
      }
    }
  }
}

TEST(CheckInputs, SaysWhatIsRequiredAndWhatIsGiven) {
  const auto after = [](const auto& change) {
    Delta d;
    change(d.owned);
    return d.Failure();
  };
  const auto with = [&](TensorView Inputs::* view, const Shape& shape) {
    return after([&](OwnedInputs& owned) { owned.Add(view, DType::kFloat32, shape); });
  };
  EXPECT_EQ(Delta().Failure(), "");
  EXPECT_EQ(with(&Inputs::k, {2, 64, 4, 64}),
            "[op] k must be [B,T,Hk,Dk] = [2,64,4,128] but is [2,64,4,64]");
  EXPECT_EQ(with(&Inputs::k, {2, 64, 128}),
            "[op] k must be [B,T,Hk,Dk] = [2,64,Hk,128] but is [2,64,128]");
  EXPECT_EQ(with(&Inputs::v, {2, 63, 4, 32}),
            "[op] v must be [B,T,Hv,Dv] = [2,64,4,32] but is [2,63,4,32]");
  EXPECT_EQ(with(&Inputs::v, {2, 64, 4, 0}),
            "[op] v must be [B,T,Hv,Dv] = [2,64,4,Dv] but is [2,64,4,0]");
  EXPECT_EQ(with(&Inputs::step, {2, 64, 2}),
            "[op] step must be [B,T,H] = [2,64,4] but is [2,64,2]");
  // What other inputs say is known, too: of queries, and of the number of memories.
  EXPECT_EQ(with(&Inputs::q, {64, 4, 128}),
            "[op] q must be [B,T,Hq,Dk] = [2,64,Hq,128] but is [64,4,128]");
  EXPECT_EQ(with(&Inputs::log_decay, {2, 4, 64}),
            "[op] log_decay must be [B,T,H] = [2,64,4] but is [2,4,64]");
  Delta alone;
  alone.recipe = ParseRecipe("weighted_rls");
  alone.in.step = {};
  alone.owned.Add(&Inputs::log_decay, DType::kFloat32, {2, 4, 64});
  EXPECT_EQ(alone.Failure(), "[op] log_decay must be [B,T,H] = [2,64,4] but is [2,4,64]");
  EXPECT_EQ(with(&Inputs::bonus, {4, 128}),
            "[op] bonus must be absent, for decay(scalar) | linear | sgd does not take it but is "
            "[4,128]");
  EXPECT_EQ(after([](OwnedInputs& owned) { owned.inputs.step = {}; }),
            "[op] step must be [B,T,H] but is absent");
  EXPECT_EQ(after([](OwnedInputs& owned) { owned.inputs.q = {}; }),
            "[op] q must be [B,T,Hq,Dk] but is absent");
  EXPECT_EQ(after([](OwnedInputs& owned) { owned.Add(&Inputs::q, DType::kInt8, {2, 64, 4, 128}); }),
            "[op] q must be float32, float64, bfloat16 or float16 but is int8");
}

TEST(CheckInputs, HeadsDivide) {
  const Recipe recipe = ParseRecipe("deltanet");
  const auto check = [&](std::int64_t hq, std::int64_t hk, std::int64_t hv, std::int64_t h) {
    OwnedInputs made;
    made.Add(&Inputs::q, DType::kFloat32, {1, 3, hq, 2});
    made.Add(&Inputs::k, DType::kFloat32, {1, 3, hk, 2});
    made.Add(&Inputs::v, DType::kFloat32, {1, 3, hv, 2});
    made.Add(&Inputs::step, DType::kFloat32, {1, 3, h});
    return Failure(recipe, made.inputs);
  };
  EXPECT_EQ(check(8, 2, 4, 4), "");
  EXPECT_EQ(check(1, 4, 1, 4), "");
  EXPECT_EQ(check(4, 3, 4, 4), "[op] k heads must be a divisor of H = 4 but is 3");
  EXPECT_EQ(check(4, 4, 8, 4), "[op] v heads must be a divisor of H = 4 but is 8");
  EXPECT_EQ(check(6, 4, 4, 4), "[op] q heads must be a divisor or a multiple of H = 4 but is 6");
}

TEST(CheckInputs, HeadsWithoutGatesAreTheLargerOfKeysAndValues) {
  OwnedInputs made;
  made.Add(&Inputs::q, DType::kFloat32, {1, 3, 4, 2});
  made.Add(&Inputs::k, DType::kFloat32, {1, 3, 1, 2});
  made.Add(&Inputs::v, DType::kFloat32, {1, 3, 2, 2});
  EXPECT_EQ(CheckInputs("op", ParseRecipe("nlms"), made.inputs).heads, 2);
  made.Add(&Inputs::ridge, DType::kFloat32, {4});
  EXPECT_EQ(CheckInputs("op", ParseRecipe("rls"), made.inputs).heads, 4);
}

TEST(CheckInputs, SeveralPairsAToken) {
  const Recipe recipe = ParseRecipe("delta_product{steps: 3, decay: none}");
  OwnedInputs made;
  made.Add(&Inputs::q, DType::kFloat32, {1, 4, 1, 2});
  made.Add(&Inputs::k, DType::kFloat32, {1, 12, 1, 2});
  made.Add(&Inputs::v, DType::kFloat32, {1, 12, 1, 2});
  made.Add(&Inputs::step, DType::kFloat32, {1, 12, 1});
  EXPECT_EQ(CheckInputs("op", recipe, made.inputs).tokens, 4);
  made.inputs.q = {};
  EXPECT_EQ(CheckInputs("op", recipe, made.inputs, Needs::kWrite).tokens, 4);
  made.Add(&Inputs::k, DType::kFloat32, {1, 10, 1, 2});
  EXPECT_EQ(Failure(recipe, made.inputs, Needs::kWrite),
            "[op] k must be [B,T n,Hk,Dk] = [1,12,1,2] but is [1,10,1,2]");
}

TEST(CheckInputs, StridesAreFreeButForTheLastAxis) {
  Delta d;
  Tensor wide(DType::kFloat32, {2, 64, 4, 256});
  d.in.q = wide.view().Slice(3, 64, 128);
  EXPECT_EQ(d.Failure(), "");
  const std::int64_t broadcast[] = {0, 0, 128, 1};
  d.in.q = TensorView(wide.data(), DType::kFloat32, {2, 64, 4, 128}, broadcast);
  EXPECT_EQ(d.Failure(), "");
  const std::int64_t transposed[] = {64 * 4 * 128, 4 * 128, 1, 4};
  d.in.q = TensorView(wide.data(), DType::kFloat32, {2, 64, 4, 128}, transposed);
  EXPECT_EQ(d.Failure(), "[op] q must be contiguous in its last axis but is of stride 4");
}

TEST(CheckInputs, NoTokensAndNoBatchAreOrdinary) {
  OwnedInputs made;
  made.Add(&Inputs::q, DType::kFloat32, {0, 0, 1, 2});
  made.Add(&Inputs::k, DType::kFloat32, {0, 0, 1, 2});
  made.Add(&Inputs::v, DType::kFloat32, {0, 0, 1, 2});
  const Dims dims = CheckInputs("op", ParseRecipe("nlms"), made.inputs);
  EXPECT_EQ(dims.tokens, 0);
  EXPECT_EQ(dims.batch, 0);
}

TEST(CheckInputs, PackedSequences) {
  const Recipe recipe = ParseRecipe("nlms");
  OwnedInputs made;
  made.Add(&Inputs::q, DType::kFloat32, {1, 5, 1, 2});
  made.Add(&Inputs::k, DType::kFloat32, {1, 5, 1, 2});
  made.Add(&Inputs::v, DType::kFloat32, {1, 5, 1, 2});
  const auto with = [&](std::vector<std::int64_t> bounds) {
    made.inputs.cu_seqlens =
        TensorView::Of(bounds.data(), {static_cast<std::int64_t>(bounds.size())});
    return Failure(recipe, made.inputs);
  };
  EXPECT_EQ(with({0, 2, 2, 5}), "");
  const std::string begin = "[op] cu_seqlens must be from 0 to T = 5 without falling but is ";
  EXPECT_EQ(with({0, 3, 2, 5}), begin + "2 at 2");
  EXPECT_EQ(with({1, 5}), begin + "1 at 0");
  EXPECT_EQ(with({0, 4}), begin + "4 at 1");
  EXPECT_EQ(with({0, 6, 5}), begin + "5 at 2");
  EXPECT_EQ(with({5}), "[op] cu_seqlens must be [N+1] with N >= 1 but is [1]");
  made.Add(&Inputs::cu_seqlens, DType::kFloat32, {2});
  EXPECT_EQ(Failure(recipe, made.inputs), "[op] cu_seqlens must be int64 but is float32");

  std::vector<std::int64_t> bounds = {0, 2, 5};
  made.inputs.cu_seqlens = TensorView::Of(bounds.data(), {3});
  const Dims dims = CheckInputs("op", recipe, made.inputs);
  EXPECT_EQ(dims.sequences, 2);
  EXPECT_EQ(dims.states(), 2);
  made.Add(&Inputs::q, DType::kFloat32, {2, 5, 1, 2});
  made.Add(&Inputs::k, DType::kFloat32, {2, 5, 1, 2});
  made.Add(&Inputs::v, DType::kFloat32, {2, 5, 1, 2});
  EXPECT_EQ(Failure(recipe, made.inputs), "[op] B must be 1 beside cu_seqlens but is 2");
}

TEST(CheckInputs, ResidualNetworksMapKeysToValuesOfTheirLength) {
  const Recipe recipe = ParseRecipe("ttt_linear");
  OwnedInputs made = MakeInputs(recipe);
  made.inputs.ln_weight = made.inputs.ln_bias = {};
  made.Add(&Inputs::v, DType::kFloat32, {2, 12, 2, 3});
  EXPECT_EQ(Failure(recipe, made.inputs),
            "[op] v must be as long as k under residual: true, Dv = Dk = 4 but is Dv = 3");
}

TEST(CheckInputs, WritingNeedsNoQueryAndReadingNothingElse) {
  Delta d;
  d.in.q = {};
  EXPECT_EQ(d.Failure(Needs::kWrite), "");
  EXPECT_EQ(CheckInputs("op", d.recipe, d.in, Needs::kWrite).query_heads, 4);
  EXPECT_EQ(d.Failure(), "[op] q must be [B,T,Hq,Dk] but is absent");
}

TEST(CheckInputs, ReadingTakesItsSizesFromTheState) {
  const Recipe recipe = ParseRecipe("gated_deltanet");
  OwnedInputs made;
  made.Add(&Inputs::q, DType::kFloat32, {2, 3, 6, 5});
  State state;
  state.Set("state", Tensor(DType::kFloat32, {2, 3, 5, 7}));
  const Dims dims = CheckInputs("op", recipe, made.inputs, Needs::kRead, &state);
  EXPECT_EQ(dims.heads, 3);
  EXPECT_EQ(dims.value_dim, 7);
  EXPECT_EQ(dims.tokens, 3);
  CheckState("op", recipe, dims, state);
  made.Add(&Inputs::k, DType::kFloat32, {2, 3, 6, 5});
  EXPECT_EQ(Failure(recipe, made.inputs, Needs::kRead),
            "[op] k must be absent where nothing is written but is [2,3,6,5]");
  made.inputs = {};
  EXPECT_EQ(Failure(recipe, made.inputs, Needs::kRead), "[op] q must be [B,T,Hq,Dk] but is absent");
}

TEST(CheckInputs, HoldsShiftsToTheDirectionsThatAreDrawn) {
  const Recipe recipe = ParseRecipe("linear_attention{features: dijiang, feature_dim: 16}");
  OwnedInputs made;
  made.Add(&Inputs::q, DType::kFloat32, {1, 3, 2, 5});
  made.Add(&Inputs::k, DType::kFloat32, {1, 3, 2, 5});
  made.Add(&Inputs::v, DType::kFloat32, {1, 3, 2, 4});
  made.Add(&Inputs::features_b, DType::kFloat32, {2, 7});
  EXPECT_EQ(
      Failure(recipe, made.inputs),
      "[op] features.b must be [H,F] with F = feature_dim = 16 where features.w is absent but "
      "is [2,7]");
  OwnedInputs whole = made;
  whole.Add(&Inputs::features_b, DType::kFloat32, {2, 16});
  EXPECT_EQ(Failure(recipe, whole.inputs), "");
  made.Add(&Inputs::features_w, DType::kFloat32, {2, 7, 5});
  EXPECT_EQ(Failure(recipe, made.inputs), "");
}

TEST(CheckInputs, ReadingNeedsTheConstantsOfTheFeatureMap) {
  const Recipe recipe = ParseRecipe("deltanet{features: t2r}");
  OwnedInputs made;
  made.Add(&Inputs::q, DType::kFloat32, {1, 1, 1, 5});
  EXPECT_EQ(Failure(recipe, made.inputs, Needs::kRead),
            "[op] features.w must be [H,F,Dk] but is absent");
  made.Add(&Inputs::features_w, DType::kFloat32, {1, 9, 5});
  EXPECT_EQ(CheckInputs("op", recipe, made.inputs, Needs::kRead).features, 9);
}

TEST(CheckRanges, NamesTheValueAndItsPlace) {
  Delta d;
  EXPECT_EQ(Message([&] { CheckRanges("op", d.recipe, d.in); }), "");
  d.in.log_decay.Set({1, 5, 2}, -kInfinity);
  d.in.log_decay.Set({1, 5, 3}, std::nan(""));
  d.in.step.Set({0, 0, 0}, kInfinity);
  EXPECT_EQ(Message([&] { CheckRanges("op", d.recipe, d.in); }), "");  // NaN and infinity are data
  d.in.step.Set({1, 63, 3}, -0.5);
  EXPECT_EQ(Message([&] { CheckRanges("op", d.recipe, d.in); }),
            "[op] step must be >= 0 but is -0.5 at [1,63,3]");
  d.in.log_decay.Set({1, 63, 0}, 0.25);
  EXPECT_EQ(Message([&] { CheckRanges("op", d.recipe, d.in); }),
            "[op] log_decay must be <= 0 but is 0.25 at [1,63,0]");
}

TEST(CheckRanges, EveryTypeAndStride) {
  const Recipe recipe = ParseRecipe("mamba2");
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kBFloat16}) {
    OwnedInputs made = MakeInputs(recipe);
    const Tensor wide(dtype, {2, 12, 5});
    wide.view().Set({0, 1, 4}, 1);  // outside of the view
    made.inputs.log_decay = wide.view().Slice(2, 1, 2);
    EXPECT_EQ(Message([&] { CheckRanges("op", recipe, made.inputs); }), "");
    wide.view().Set({1, 2, 2}, 2);
    EXPECT_EQ(Message([&] { CheckRanges("op", recipe, made.inputs); }),
              "[op] log_decay must be <= 0 but is 2 at [1,2,1]");
  }
}

TEST(CheckRanges, EveryPlace) {
  const Recipe recipe = ParseRecipe("mamba2");
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kBFloat16}) {
    OwnedInputs made = MakeInputs(recipe);
    const Tensor longer(dtype, {2, 80, 3});
    const TensorView view = longer.view().Slice(1, 7, 60);  // a run of 180 numbers a batch
    made.inputs.log_decay = view;
    for (std::int64_t b = 0; b < 2; ++b) {
      for (std::int64_t t = 0; t < 60; ++t) {
        for (std::int64_t h = 0; h < 3; ++h) {
          view.Set({b, t, h}, 0.5);
          const std::string place =
              std::to_string(b) + "," + std::to_string(t) + "," + std::to_string(h);
          EXPECT_EQ(Message([&] { CheckRanges("op", recipe, made.inputs); }),
                    "[op] log_decay must be <= 0 but is 0.5 at [" + place + "]");
          view.Set({b, t, h}, std::nan(""));  // passes, and hides none of those that follow
        }
      }
    }
  }
}

class CheckStateTest : public testing::Test {
 protected:
  std::string Failure(std::string_view recipe) {
    return Message([&] { CheckState("op", ParseRecipe(recipe), dims_, state_); });
  }
  void Set(std::string_view name, const Shape& shape, DType dtype = DType::kFloat32) {
    state_.Set(name, Tensor(dtype, shape));
  }

  Dims dims_{.batch = 2, .tokens = 1, .heads = 3, .key_dim = 4, .value_dim = 5};
  State state_;
};

TEST_F(CheckStateTest, ShapesAndTypes) {
  EXPECT_EQ(Failure("deltanet"), "");
  Set("state", {2, 3, 4, 5}, DType::kFloat64);
  EXPECT_EQ(Failure("deltanet"), "");
  EXPECT_EQ(Failure("affine_rls"), "[op] state must be [N,H,Dphi,Dv] = [2,3,5,5] but is [2,3,4,5]");
  EXPECT_EQ(Failure("softmax"),
            "[op] state must be one of state.k, state.v, state.length but is 'state'");
  EXPECT_EQ(Failure("intention"), "[op] state must be empty (nothing is carried) but is 'state'");
  Set("state", {2, 3, 4, 5}, DType::kBFloat16);
  EXPECT_EQ(Failure("deltanet"), "");
  EXPECT_EQ(Failure("gla"), "");
  EXPECT_EQ(Failure("rls"), "[op] state must be float32 or float64 but is bfloat16");
  Set("state", {2, 3, 4, 5}, DType::kInt8);
  EXPECT_EQ(Failure("deltanet"),
            "[op] state must be float32, float64, bfloat16 or float16 but is int8");
  Set("state", {3, 4, 5});
  EXPECT_EQ(Failure("deltanet"), "[op] state must be [N,H,Dphi,Dv] = [2,3,4,5] but is [3,4,5]");
  const std::int64_t strides[] = {60, 20, 1, 4};
  const Tensor memory(DType::kFloat32, {2, 3, 4, 5});
  state_.Bind("state", TensorView(memory.data(), DType::kFloat32, {2, 3, 4, 5}, strides));
  EXPECT_EQ(Failure("deltanet"),
            "[op] state must be contiguous in its last axis but is of stride 4");
  dims_.sequences = 7;
  Set("state", {7, 3, 4, 5});
  EXPECT_EQ(Failure("deltanet"), "");
}

TEST_F(CheckStateTest, PairsAreKeptWhole) {
  Set("state.k", {2, 6, 3, 4});
  EXPECT_EQ(Failure("softmax"), "[op] state.v must be given with state.k but is absent");
  Set("state.v", {2, 7, 3, 5});
  EXPECT_EQ(Failure("softmax"), "[op] state.v must be [N,S,H,Dv] = [2,6,3,5] but is [2,7,3,5]");
  Set("state.v", {2, 6, 3, 5});
  EXPECT_EQ(Failure("softmax"), "");
  Set("state.length", {2, 3}, DType::kInt64);
  state_.Get("state.length").Set({1, 2}, 6);
  EXPECT_EQ(Failure("softmax"), "");
  for (const std::int64_t bad : {7, -1}) {
    state_.Get("state.length").Set({1, 2}, static_cast<double>(bad));
    EXPECT_EQ(Failure("softmax"), "[op] state.length must be a whole number from 0 to 6 but is " +
                                      std::to_string(bad) + " at [1,2]");
  }
  // As earlier versions wrote them: those that count become whole numbers, others are refused.
  const Requirements requirements(ParseRecipe("softmax"));
  for (const double number : {6., 2.5, -1., std::nan("")}) {
    Set("state.length", {2, 3});
    state_.Get("state.length").Set({1, 2}, number);
    UpgradeCounts(requirements, state_);
    EXPECT_EQ(Failure("softmax"),
              number == 6 ? "" : "[op] state.length must be int64 but is float32");
  }
  state_.clear();
  Set("state.length", {2, 3}, DType::kInt64);
  EXPECT_EQ(Failure("softmax"), "[op] state.k must be given with state.length but is absent");
}

TEST_F(CheckStateTest, WeightsOfNetworksMayBeShared) {
  dims_.hidden = 16;
  dims_.value_dim = 4;
  Set("state.w1", {3, 4, 16});
  Set("state.b1", {3, 16});
  Set("state.w2", {2, 3, 16, 4});
  EXPECT_EQ(Failure("ttt_mlp"), "");
  Set("state.g_w1", {3, 4, 16});
  EXPECT_EQ(Failure("ttt_mlp"),
            "[op] state.g_w1 must be [N,H,Dk,hidden] = [2,3,4,16] but is [3,4,16]");
  Set("state.g_w1", {2, 3, 4, 16});
  Set("state.position", {2, 3}, DType::kInt64);
  state_.Get("state.position").Set({0, 1}, 16);
  EXPECT_EQ(Failure("ttt_mlp"),
            "[op] state.position must be a whole number from 0 to 15 but is 16 at [0,1]");
  Set("state.w1", {4, 16});
  EXPECT_EQ(Failure("ttt_mlp"), "[op] state.w1 must be [N,H,Dk,hidden] = [2,3,4,16] but is [4,16]");
}

}  // namespace
}  // namespace ttr
