// Steps of several tokens, and their way back: a decoder that has taken a draft back answers, bit
// for bit, as one that never saw it.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "tests/layer/decoder_calls.h"
#include "tests/support/calls.h"
#include "tests/support/recipes.h"
#include "tests/support/targets.h"
#include "ttr/decoder.h"
#include "ttr/error.h"
#include "ttr/util/random.h"

namespace ttr {
namespace {

using test::Call;
using test::ErrorOf;
using test::LargestDifference;
using test::Step;

constexpr std::int64_t kDraft = 5;

bool IsCausal(const std::string& text) { return ParseRecipe(text).reading.causal; }

std::vector<std::string> Recipes() {
  std::vector<std::string> recipes = test::LayerRecipes();
  std::erase_if(recipes, [](const std::string& text) { return !IsCausal(text); });
  return recipes;
}

class Drafts : public ::testing::TestWithParam<std::string> {
 protected:
  Drafts() : layer(ParseRecipe(GetParam())) {}

  Dims SmallDims(std::int64_t tokens) const {
    Dims dims = test::SmallDims(layer.recipe());
    dims.batch = 2;
    dims.tokens = tokens;
    return dims;
  }
  // Do writes wait beside the state?
  bool PairsWait() const { return Decoder::KeepsDrafts(layer); }

  Layer layer;
};

INSTANTIATE_TEST_SUITE_P(Recipes, Drafts, ::testing::ValuesIn(Recipes()), test::CaseName);

// However tokens are grouped, and however long their writes wait.
TEST_P(Drafts, AreTheTokens) {
  if (!PairsWait()) GTEST_SKIP() << "steps of several tokens are calls of the layer";
  const Call call(layer.recipe(), SmallDims(40), DType::kFloat64, 3);
  const test::Result plain = RunInPieces(layer, call, 1);
  for (const std::string& target : test::Targets()) {
    const test::OnTarget on(target);
    for (const std::int64_t window : {1, 2, 3, 7, 16, 64}) {
      Decoder decoder(layer, InferDims("Decoder", layer.requirements(), call.inputs),
                      {.state = DType::kFloat64, .draft = kDraft, .window = window});
      CounterRandom random(static_cast<std::uint64_t>(window), 0);
      for (std::int64_t t = 0, count; t < call.dims.tokens; t += count) {
        count = std::min<std::int64_t>(1 + static_cast<std::int64_t>(random.Below(9)),
                                       call.dims.tokens - t);
        const Tensor y = Step(call, t, count, decoder);
        ASSERT_LE(LargestDifference(y, plain.y.view().Slice(1, t, count)), 1e-9)
            << target << ", window " << window << ", token " << t;
      }
      for (const State::Entry& entry : plain.state.entries()) {
        EXPECT_LE(LargestDifference(entry.view, decoder.state().Get(entry.name)), 1e-9)
            << target << ", window " << window << ", " << entry.name;
      }
    }
  }
}

TEST_P(Drafts, LeaveNoTraceWhenTakenBack) {
  constexpr std::int64_t kTokens = 60;
  for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
    const Call call(layer.recipe(), SmallDims(kTokens), dtype, 4);
    const Call wrong(layer.recipe(), SmallDims(kTokens), dtype, 5);
    Call mixed(layer.recipe(), SmallDims(kTokens), dtype, 6);
    const DecoderOptions options{.state = dtype, .draft = kDraft};
    const Dims dims = InferDims("Decoder", layer.requirements(), call.inputs);
    Decoder plain(layer, dims, options), drafts(layer, dims, options);
    CounterRandom random(7, 0);
    // The first weight of mLSTM forgets that there was nothing.
    Step(call, 0, 1, plain);
    Step(call, 0, 1, drafts);
    for (std::int64_t t = 1; t + 2 * kDraft < kTokens;) {
      // Some that are wrong altogether.
      const auto all = static_cast<std::int64_t>(random.Below(kDraft + 1));
      if (all > 0) {
        Step(wrong, t, all, drafts);
        ASSERT_GE(drafts.pending(), all);
        drafts.RollBack(all);
      }
      // Some of which the first are right.
      const auto right = static_cast<std::int64_t>(1 + random.Below(kDraft));
      for (const InputSpec& spec : layer.requirements().inputs) {
        const TensorView& to = mixed.inputs.*spec.view;
        if (!to.defined()) continue;
        CopyInto(wrong.inputs.*spec.view, to);
        if (spec.shapes.front().size() < 2) {
          CopyInto(call.inputs.*spec.view, to);
          continue;
        }
        const Axis axis = spec.shapes.front()[1];
        const std::int64_t rows =
            axis == Axis::kRows ? to.size(1) / kTokens : std::int64_t{axis == Axis::kTokens};
        if (rows == 0) {
          CopyInto(call.inputs.*spec.view, to);
        } else {
          CopyInto((call.inputs.*spec.view).Slice(1, t * rows, right * rows),
                   to.Slice(1, t * rows, right * rows));
        }
      }
      const Tensor answers = Step(mixed, t, kDraft, drafts);
      drafts.RollBack(kDraft - right);
      const Tensor expected = Step(call, t, right, plain);
      ASSERT_EQ(LargestDifference(answers.view().Slice(1, 0, right), expected), 0) << t;
      t += right;
      ASSERT_EQ(LargestDifference(Step(call, t, 1, drafts), Step(call, t, 1, plain)), 0) << t;
      ++t;
    }
    for (const State::Entry& entry : plain.state().entries()) {
      if (entry.name == "state.k" || entry.name == "state.v")
        continue;  // and the room behind pairs
      EXPECT_EQ(LargestDifference(entry.view, drafts.state().Get(entry.name)), 0) << entry.name;
    }
  }
}

// More tokens than there is room for, and as many back as are pending: what is beside the memory is
// as it was, too.
TEST_P(Drafts, GoBackFromLongSteps) {
  constexpr std::int64_t kTokens = 40, kStep = 11;
  const Call call(layer.recipe(), SmallDims(kTokens), DType::kFloat64, 8);
  const Dims dims = InferDims("Decoder", layer.requirements(), call.inputs);
  const test::Result plain = RunInPieces(layer, call, 1);
  Decoder decoder(layer, dims, {.state = DType::kFloat64, .draft = 3});
  for (std::int64_t t = 0; t + kStep < kTokens;) {
    Step(call, t, kStep, decoder);
    const std::int64_t back = std::min(decoder.pending(), kStep - 1);
    ASSERT_GE(back, 3);
    decoder.RollBack(back);
    t += kStep - back;
    const Tensor y = Step(call, t, 1, decoder);
    ASSERT_LE(LargestDifference(y, plain.y.view().Slice(1, t, 1)), 1e-8) << t;
    ++t;
  }
}

// Without a draft, too, single tokens and several follow one another.
TEST_P(Drafts, OfNoneStepAsTokensDo) {
  constexpr std::int64_t kTokens = 24;
  const Call call(layer.recipe(), SmallDims(kTokens), DType::kFloat64, 9);
  const Dims dims = InferDims("Decoder", layer.requirements(), call.inputs);
  const test::Result plain = RunInPieces(layer, call, 1);
  Decoder decoder(layer, dims, {.state = DType::kFloat64});
  const std::int64_t counts[] = {1, 1, 4, 1, 2, 7};
  for (std::int64_t t = 0, i = 0; t < kTokens; ++i) {
    const std::int64_t count = std::min(counts[i % 6], kTokens - t);
    const Tensor y = Step(call, t, count, decoder);
    ASSERT_LE(LargestDifference(y, plain.y.view().Slice(1, t, count)), 1e-8) << t;
    EXPECT_EQ(decoder.pending(), 0);
    t += count;
  }
}

// Decays small and large, and all of them 0: what cannot wait is written, and says so.
TEST(DraftsOfAllGates, AreTheTokens) {
  const double gates[] = {0, -1e-3, -0.7, -7, -70, -std::numeric_limits<double>::infinity()};
  for (const char* const text : {"gated_deltanet", "kda", "rwkv7", "mamba2", "mlstm", "hgrn2"}) {
    const Layer layer(ParseRecipe(text));
    Dims dims = test::SmallDims(layer.recipe());
    dims.tokens = 60;
    for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
      const Call call(layer.recipe(), dims, dtype, 11);
      CounterRandom random(5, 0);
      const TensorView& decays = call.inputs.log_decay;
      Tensor drawn(decays.dtype(), decays.shape());
      for (std::int64_t i = 0; i < drawn.elements(); ++i) {
        StoreElement(drawn.data(), drawn.dtype(), i, gates[random.Below(std::size(gates))]);
      }
      CopyInto(drawn.view(), decays);
      const test::Result plain = RunInPieces(layer, call, 1);
      Decoder decoder(layer, dims, {.state = dtype, .draft = 4});
      for (std::int64_t t = 0; t < dims.tokens; t += 4) {
        const Tensor y = Step(call, t, 4, decoder);
        EXPECT_LE(LargestDifference(y, plain.y.view().Slice(1, t, 4)),
                  dtype == DType::kFloat32 ? 1e-4 : 1e-11)
            << text << ", token " << t;
        EXPECT_LE(decoder.pending(), 2 + 2 * 4);
      }
    }
  }
}

TEST(DraftsOfManyThreads, HaveTheBitsOfOne) {
  for (const char* const text : {"gated_deltanet", "kda", "rwkv7", "retnet"}) {
    const Layer layer(ParseRecipe(text));
    Dims dims = test::SomeDims();
    dims.tokens = 30;
    dims.key_dim = dims.value_dim = 416;
    dims.heads = dims.key_heads = dims.value_heads = dims.query_heads = 1;
    const Call call(layer.recipe(), dims, DType::kFloat32, 12);
    const auto three = MakeExecutor(3);
    Decoder one(layer, dims, {.draft = 3}), several(layer, dims, {.draft = 3});
    for (std::int64_t t = 0; t < dims.tokens; t += 3) {
      const Tensor y = Step(call, t, 3, one, {.executor = &SequentialExecutor()});
      EXPECT_EQ(LargestDifference(y, Step(call, t, 3, several, {.executor = three.get()})), 0)
          << text << ", token " << t;
      one.RollBack(1);
      several.RollBack(1);
    }
  }
}

TEST(DraftErrors, NameWhatIsWrong) {
  const Layer layer(ParseRecipe("gated_deltanet"));
  Dims dims = test::SomeDims();
  const Call call(layer.recipe(), dims, DType::kFloat32, 1);
  Decoder decoder(layer, dims, {.draft = 4});
  EXPECT_EQ(decoder.pending(), 0);
  Step(call, 0, 3, decoder);
  EXPECT_EQ(decoder.pending(), 3);
  EXPECT_NE(ErrorOf([&] { decoder.RollBack(4); }).find("[RollBack] tokens must be from 0 to 3"),
            std::string::npos);
  Decoder copy = decoder;  // which goes on by itself
  decoder.state();
  EXPECT_EQ(decoder.pending(), 0);
  copy.RollBack(3);
  EXPECT_EQ(copy.pending(), 0);
  EXPECT_NE(ErrorOf([&] { Decoder(layer, dims, {.draft = 65}); }).find("draft must be from 0"),
            std::string::npos);
  EXPECT_NE(ErrorOf([&] { Decoder(layer, dims, {.window = -1}); }).find("window must be"),
            std::string::npos);
  const Layer solves(ParseRecipe("rls"));
  std::vector<std::byte> memory(Decoder::Bytes(solves, dims) + 64);
  EXPECT_NE(ErrorOf([&] {
              Decoder(solves, dims, {.memory = memory, .draft = 1});
            }).find("this layer needs copies"),
            std::string::npos);
}

}  // namespace
}  // namespace ttr
