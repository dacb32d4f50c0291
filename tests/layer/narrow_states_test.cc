// Decoders and slots whose matrix lies in bfloat16 or float16.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "src/recipe/family.h"
#include "tests/layer/decoder_calls.h"
#include "tests/support/calls.h"
#include "tests/support/recipes.h"
#include "tests/support/targets.h"
#include "ttr/decoder.h"
#include "ttr/error.h"
#include "ttr/state_pool.h"
#include "ttr/util/random.h"

namespace ttr {
namespace {

using test::Call;
using test::ErrorOf;
using test::LargestDifference;
using test::Step;

constexpr DType kNarrow[] = {DType::kBFloat16, DType::kFloat16};

// Half of the distance between a number and the next, over the number.
double RoundingOf(DType dtype) { return dtype == DType::kBFloat16 ? 0x1p-8 : 0x1p-11; }

std::vector<std::string> Recipes() {
  std::vector<std::string> recipes = test::LayerRecipes();
  std::erase_if(recipes, [](const std::string& text) {
    const Layer layer(ParseRecipe(text));
    return !layer.recipe().reading.causal || !Decoder::KeepsDrafts(layer);
  });
  return recipes;
}

void ExpectSameState(const State& a, const State& b) {
  ASSERT_EQ(a.entries().size(), b.entries().size());
  for (const State::Entry& entry : a.entries()) {
    EXPECT_EQ(entry.view.dtype(), b.Get(entry.name).dtype()) << entry.name;
    EXPECT_EQ(LargestDifference(entry.view, b.Get(entry.name)), 0) << entry.name;
  }
}

class NarrowStates : public ::testing::TestWithParam<std::string> {
 protected:
  NarrowStates() : layer(ParseRecipe(GetParam())) {}

  Dims SmallDims(std::int64_t tokens) const {
    Dims dims = test::SmallDims(layer.recipe());
    dims.batch = 2;
    dims.tokens = tokens;
    return dims;
  }

  Layer layer;
};

INSTANTIATE_TEST_SUITE_P(Recipes, NarrowStates, ::testing::ValuesIn(Recipes()), test::CaseName);

// A memory that nothing has been added to is zeros, which every type holds.
TEST_P(NarrowStates, AreNotRoundedWhileWritesWait) {
  constexpr std::int64_t kWindow = 20;
  if (layer.recipe().weights.importance == Importance::kLog) {
    GTEST_SKIP() << "the first weight forgets that there was nothing, and is written at once";
  }
  const Dims small = SmallDims(kWindow / RowsPerToken(layer.recipe()));
  const Call call(layer.recipe(), small, DType::kFloat32, 3);
  const Dims dims = InferDims("Decoder", layer.requirements(), call.inputs);
  for (const std::string& target : test::Targets()) {
    const test::OnTarget on(target);
    for (const DType dtype : kNarrow) {
      Decoder wide(layer, dims, {.window = kWindow});
      Decoder narrow(layer, dims, {.state = dtype, .window = kWindow});
      // float16 is brought back where decays multiply to less than 2^-6.
      const std::int64_t tokens = dtype == DType::kFloat16 ? small.tokens / 4 : small.tokens;
      for (std::int64_t t = 0; t < tokens; ++t) {
        ASSERT_EQ(LargestDifference(Step(call, t, 1, narrow), Step(call, t, 1, wide)), 0)
            << target << ", token " << t;
      }
      ExpectSameState(narrow.state(), wide.state());
    }
  }
}

// From a state that the type holds, until the first pairs are added to it; asking for the state, a
// copy and a query round nothing.
TEST_P(NarrowStates, AreReadWithoutBeingWritten) {
  constexpr std::int64_t kPrompt = 12, kTokens = 7;
  const Call call(layer.recipe(), SmallDims(kPrompt + kTokens), DType::kFloat32, 4);
  const Dims dims = InferDims("Decoder", layer.requirements(), call.inputs);
  for (const DType dtype : kNarrow) {
    State state;
    Tensor y(DType::kFloat32, {2, kPrompt, call.dims.output_heads(), call.dims.value_dim});
    layer.Forward(test::TokensOf(call, 0, kPrompt), state, {.y = y});
    const Tensor rounded = Tensor::Copy(state.Get("state"), dtype);
    state.Set("state", Tensor::Copy(rounded.view(), DType::kFloat32));
    Decoder wide(layer, dims, {.window = 16}), narrow(layer, dims, {.state = dtype});
    wide.Start(state);
    narrow.Start(state);
    ExpectSameState(narrow.state(), state);
    for (std::int64_t t = kPrompt; t < kPrompt + kTokens; ++t) {
      Decoder copy = narrow;
      const Tensor expected = Step(call, t, 1, wide);
      ASSERT_EQ(LargestDifference(Step(call, t, 1, narrow), expected), 0) << t;
      ASSERT_EQ(LargestDifference(Step(call, t, 1, copy), expected), 0) << t;
      narrow.state();
    }
    ExpectSameState(narrow.state(), wide.state());
  }
}

// Steps of any length follow one another: what is pending may be more than a window.
TEST_P(NarrowStates, LeaveNoTraceOfDrafts) {
  constexpr std::int64_t kTokens = 60, kDraft = 5;
  const Call call(layer.recipe(), SmallDims(kTokens), DType::kFloat32, 6);
  const Call wrong(layer.recipe(), SmallDims(kTokens), DType::kFloat32, 7);
  const Dims dims = InferDims("Decoder", layer.requirements(), call.inputs);
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    const DecoderOptions options{.state = dtype, .draft = kDraft, .window = 3};
    Decoder plain(layer, dims, options), drafts(layer, dims, options);
    CounterRandom random(7, 0);
    Step(call, 0, 1, plain);
    Step(call, 0, 1, drafts);
    for (std::int64_t t = 1; t + kDraft < kTokens;) {
      const auto guessed = static_cast<std::int64_t>(1 + random.Below(kDraft));
      Step(wrong, t, guessed, drafts);
      drafts.RollBack(guessed);
      const auto right = static_cast<std::int64_t>(1 + random.Below(kDraft));
      ASSERT_EQ(LargestDifference(Step(call, t, right, drafts), Step(call, t, right, plain)), 0)
          << t;
      t += right;
    }
    ExpectSameState(drafts.state(), plain.state());
  }
}

// A pool's slots hold the same bytes; prompts are rounded when they have been read.
TEST_P(NarrowStates, AreSlots) {
  constexpr std::int64_t kTokens = 40;
  const Call call(layer.recipe(), SmallDims(kTokens), DType::kFloat32, 8);
  Dims dims = InferDims("Decoder", layer.requirements(), call.inputs);
  dims.batch = 1;
  for (const DType dtype : kNarrow) {
    const DecoderOptions options{.state = dtype, .window = 4};
    StatePool pool(layer, dims, 5, options);
    const std::vector<std::int64_t> slots = {3, 1};
    std::vector<Decoder> alone(2, Decoder(layer, dims, options));
    for (std::int64_t t = 0; t < kTokens; ++t) {
      const Inputs token = test::TokensOf(call, t, 1);
      const Shape all = OutputShape(call.dims);
      Tensor y(DType::kFloat32, {2, 1, all[2], all[3]}), expected(DType::kFloat32, y.shape());
      pool.Step(slots, token, {.y = y});
      for (std::int64_t row = 0; row < 2; ++row) {
        Inputs one = token;
        for (const InputSpec& spec : layer.requirements().inputs) {
          TensorView& view = one.*spec.view;
          if (view.defined() && spec.shapes.front().front() == Axis::kBatch) {
            view = view.Slice(0, row, 1);
          }
        }
        alone[static_cast<std::size_t>(row)].Step(one, {.y = expected.view().Slice(0, row, 1)});
      }
      ASSERT_EQ(LargestDifference(y, expected), 0) << t;
    }
    for (std::size_t row = 0; row < 2; ++row) {
      ExpectSameState(pool.At(slots[row]).state(), alone[row].state());
    }
    pool.Copy(3, 4);
    ExpectSameState(pool.At(4).state(), alone[0].state());
  }
}

// A call of a layer works on a copy in float32, and rounds it at its end.
TEST_P(NarrowStates, AreWidenedForCalls) {
  const Call call(layer.recipe(), SmallDims(9), DType::kFloat32, 9);
  const State wide = test::RunWhole(layer, call).state;
  for (const DType dtype : kNarrow) {
    State narrow = wide, expected = wide;
    narrow.Set("state", Tensor::Copy(wide.Get("state"), dtype));
    expected.Set("state", Tensor::Copy(narrow.Get("state"), DType::kFloat32));
    Tensor y(DType::kFloat32, OutputShape(call.dims)), y_wide(DType::kFloat32, y.shape());
    layer.Forward(call.inputs, expected, {.y = y_wide});
    layer.Forward(call.inputs, narrow, {.y = y});
    EXPECT_EQ(LargestDifference(y, y_wide), 0);
    EXPECT_EQ(narrow.Get("state").dtype(), dtype);
    const Tensor rounded = Tensor::Copy(expected.Get("state"), dtype);
    EXPECT_EQ(LargestDifference(narrow.Get("state"), rounded), 0);
  }
}

double Norm(const TensorView& view) {
  double sum = 0;
  const Tensor copy = Tensor::Copy(view, DType::kFloat64);
  for (const double x : copy.as<double>()) sum += x * x;
  return std::sqrt(sum);
}

// A write rounds every element by its share at most, and what comes later shrinks an error: keys
// have length 1, steps and decays are at most 1. So a memory is off by the number of writes times
// that of its greatest norm.
TEST(NarrowStatesOfContractions, AreOffByTheirRoundings) {
  for (const char* const text : {"gated_deltanet", "deltanet", "kda", "retnet", "gla"}) {
    const Layer layer(ParseRecipe(text));
    Dims dims;
    dims.tokens = 400;
    dims.key_dim = 21;
    dims.value_dim = 37;
    dims.heads = dims.key_heads = dims.value_heads = dims.query_heads = 1;
    const Call call(layer.recipe(), dims, DType::kFloat32, 10);
    for (const DType dtype : kNarrow) {
      for (const std::int64_t window : {1, 4, 16, 64}) {
        const double unit = RoundingOf(dtype);
        Decoder wide(layer, dims, {.window = window});
        Decoder narrow(layer, dims, {.state = dtype, .window = window});
        double norm = 0, writes = 0, worst = 0;
        for (std::int64_t t = 0; t < dims.tokens; ++t) {
          const Tensor y = Step(call, t, 1, wide), mine = Step(call, t, 1, narrow);
          const Tensor query = Tensor::Copy(call.inputs.q.Slice(1, t, 1), DType::kFloat64);
          const double reach = std::max(1.0, Norm(query));
          const double error = LargestDifference(mine, y);
          ASSERT_LE(error, 1.1 * unit * writes * norm * reach + 1e-4) << text << ", token " << t;
          worst = std::max(worst, error);
          Decoder copy = wide;
          norm = std::max(norm, Norm(copy.state().Get("state")));
          if (t % window == 0) writes += 1;
        }
        EXPECT_GT(worst, 0) << text << ": nothing was rounded";
      }
    }
  }
}

// Each memory of 10^6 tokens forgets its roundings as it forgets its pairs.
TEST(NarrowStatesOfManyTokens, StayWithinTheirErrors) {
  constexpr std::int64_t kTokens = 1 << 20, kPart = 1 << 12;
  const Layer layer(ParseRecipe("gated_deltanet"));
  Dims dims;
  dims.tokens = kPart;
  dims.key_dim = dims.value_dim = 16;
  dims.heads = dims.key_heads = dims.value_heads = dims.query_heads = 1;
  const Call call(layer.recipe(), dims, DType::kFloat32, 11);
  test::Fill(call.inputs.log_decay, std::log(.99));
  Decoder wide(layer, dims), narrow(layer, dims, {.state = DType::kBFloat16});
  double sum = 0, squares = 0;
  for (std::int64_t t = 0; t < kTokens; ++t) {
    const std::int64_t at = t % kPart;
    const Tensor y = Step(call, at, wide), mine = Step(call, at, narrow);
    for (std::int64_t i = 0; i < 16; ++i) {
      const double x = y.as<float>()[static_cast<std::size_t>(i)];
      const double error = mine.as<float>()[static_cast<std::size_t>(i)] - x;
      sum += error * error;
      squares += x * x;
    }
  }
  EXPECT_LE(std::sqrt(sum / squares), 0x1p-8);  // a bfloat16 input is off by as much
}

// Decays small and large, and all of them 0: what cannot wait is written in place.
TEST(NarrowStatesOfAllGates, AreTheTokens) {
  const double gates[] = {0, -1e-3, -0.7, -7, -70, -std::numeric_limits<double>::infinity()};
  for (const char* const text : {"gated_deltanet", "kda", "rwkv7", "mamba2", "mlstm", "hgrn2"}) {
    const Layer layer(ParseRecipe(text));
    Dims dims = test::SmallDims(layer.recipe());
    dims.tokens = 60;
    const Call call(layer.recipe(), dims, DType::kFloat32, 11);
    CounterRandom random(5, 0);
    Tensor drawn(call.inputs.log_decay.dtype(), call.inputs.log_decay.shape());
    for (std::int64_t i = 0; i < drawn.elements(); ++i) {
      StoreElement(drawn.data(), drawn.dtype(), i, gates[random.Below(std::size(gates))]);
    }
    CopyInto(drawn.view(), call.inputs.log_decay);
    const test::Result plain = RunInPieces(layer, call, 1);
    double largest = 0;
    for (const float y : plain.y.as<float>()) largest = std::max<double>(largest, std::abs(y));
    for (const DType dtype : kNarrow) {
      Decoder decoder(layer, dims, {.state = dtype, .draft = 4});
      for (std::int64_t t = 0; t < dims.tokens; t += 4) {
        const Tensor y = Step(call, t, 4, decoder);
        EXPECT_LE(LargestDifference(y, plain.y.view().Slice(1, t, 4)),
                  static_cast<double>(1 + t) * RoundingOf(dtype) * largest)
            << text << ", token " << t;
      }
    }
  }
}

TEST(NarrowStatesOfManyThreads, HaveTheBitsOfOne) {
  const Layer layer(ParseRecipe("kda"));
  Dims dims = test::SomeDims();
  dims.tokens = 30;
  dims.key_dim = dims.value_dim = 416;
  dims.heads = dims.key_heads = dims.value_heads = dims.query_heads = 1;
  const Call call(layer.recipe(), dims, DType::kFloat32, 12);
  const auto three = MakeExecutor(3);
  const DecoderOptions options{.state = DType::kBFloat16, .window = 4};
  Decoder one(layer, dims, options), several(layer, dims, options);
  for (std::int64_t t = 0; t < dims.tokens; ++t) {
    const Tensor y = Step(call, t, 1, one, {.executor = &SequentialExecutor()});
    EXPECT_EQ(LargestDifference(y, Step(call, t, 1, several, {.executor = three.get()})), 0) << t;
  }
}

TEST(NarrowStateErrors, NameWhatIsWrong) {
  const Dims dims = test::SomeDims();
  for (const char* const text : {"rls", "mamba", "softmax", "titans"}) {
    const Layer layer(ParseRecipe(text));
    EXPECT_NE(ErrorOf([&] {
                Decoder(layer, dims, DType::kBFloat16);
              }).find("[Decoder] state must be float32 or float64 for this layer"),
              std::string::npos)
        << text;
  }
  const Layer layer(ParseRecipe("gated_deltanet"));
  EXPECT_NE(ErrorOf([&] {
              Decoder(layer, dims, DType::kInt8);
            }).find("float32, float64, bfloat16 or float16"),
            std::string::npos);
  const Call call(layer.recipe(), dims, DType::kFloat32, 1);
  State state = test::RunWhole(layer, call).state;
  state.Set("state", Tensor::Copy(state.Get("state"), DType::kFloat16));
  Tensor y(DType::kFloat32, OutputShape(call.dims));
  State none;
  const std::string error = ErrorOf([&] { layer.Backward(call.inputs, state, y, {}, {}, none); });
  EXPECT_NE(error.find("[Backward] state must be float32 or float64"), std::string::npos) << error;
}

}  // namespace
}  // namespace ttr
