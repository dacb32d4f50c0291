// Heads whose rows lie side by side, far from those of the next token, take time slices. Whoever
// calls sees nothing of it.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "tests/support/calls.h"
#include "tests/support/engines.h"
#include "tests/support/gradients.h"
#include "tests/support/recipes.h"
#include "tests/support/spread.h"
#include "tests/support/targets.h"
#include "ttr/executor.h"
#include "ttr/layer.h"

namespace ttr {
namespace {

using test::Call;
using test::LargestDifference;
using test::Spread;
using test::SpreadInputs;

struct Answers {
  Tensor y;
  State state;
};

Answers Answer(const Layer& layer, const Inputs& inputs, const State& initial, const Dims& dims,
               DType dtype, bool spread, const ttr::CallOptions& run = {}) {
  Answers found{Tensor(dtype, {dims.batch, dims.tokens, dims.output_heads(), dims.value_dim}),
                initial};
  const Spread far(found.y);
  layer.Forward(inputs, found.state, {.y = spread ? far.view : found.y.view(), .status = {}}, run);
  if (spread) CopyInto(far.view, found.y);
  return found;
}

void ExpectSame(const Answers& a, const Answers& b, double distance) {
  EXPECT_LE(LargestDifference(a.y, b.y), distance);
  for (const State::Entry& entry : a.state.entries()) {
    EXPECT_LE(LargestDifference(entry.view, b.state.Get(entry.name)), distance) << entry.name;
  }
}

class TimeSlices : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const std::string_view engine = layer_.plan().engine;
    if (engine != "fast_weights" && engine != "scan") GTEST_SKIP() << "another engine";
  }

  // Five memories, two batch rows, a hundred tokens: slices of 16 rows and a rest.
  Dims SomeDims() const {
    Dims dims = test::SmallDims(layer_.recipe());
    dims.tokens = 101;
    dims.heads = dims.key_heads = dims.value_heads = dims.query_heads = 5;
    return dims;
  }

  Layer layer_{ParseRecipe(GetParam())};
};

INSTANTIATE_TEST_SUITE_P(All, TimeSlices, testing::ValuesIn(test::EngineRecipes()), test::CaseName);

TEST_P(TimeSlices, HaveTheBitsOfOneHeadAfterTheOther) {
  const Dims dims = SomeDims();
  const Call call(layer_.recipe(), dims, DType::kFloat32, 3, true);
  const State initial = test::RandomState(layer_, call.inputs, 10);
  const SpreadInputs far(call.inputs);
  const Answers expected = Answer(layer_, call.inputs, initial, dims, DType::kFloat32, false);
  for (const int threads : {1, 2, 3}) {
    const auto executor = MakeExecutor(threads);
    const ttr::CallOptions run{.executor = executor.get()};
    ExpectSame(Answer(layer_, far.inputs, initial, dims, DType::kFloat32, true, run), expected, 0);
  }
}

// Answers that no cache holds are written past the caches where they fill lines, which they do
// where all begins with one. The rows of few tokens that lie far apart count as such.
TEST_P(TimeSlices, AnswersPastTheCachesHaveTheSameBits) {
  Dims dims = SomeDims();
  dims.batch = 1;
  const test::WithCaches with({.uncached_outputs = 1 << 18});
  const std::int64_t far = (1 << 18) / dims.tokens / 64 * 64 + 64;
  struct Place {
    std::int64_t value_dim, further, first;
    DType dtype = DType::kFloat32;
  };
  for (const auto& [value_dim, further, first, dtype] :
       {Place{32, 0, 0}, Place{48, 0, 0}, Place{24, 0, 0}, Place{32, 4, 0}, Place{32, 0, 1},
        Place{64, 0, 0, DType::kBFloat16}, Place{48, 0, 0, DType::kBFloat16},
        Place{32, 4, 0, DType::kBFloat16}, Place{32, 0, 1, DType::kBFloat16}}) {
    dims.value_dim = value_dim;
    if (layer_.recipe().function.kind != FunctionClass::kConstant) dims.key_dim = value_dim;
    const Call call(layer_.recipe(), dims, dtype, 3, true);
    const State initial = test::RandomState(layer_, call.inputs, 10);
    const Shape shape{dims.batch, dims.tokens, dims.output_heads(), dims.value_dim};
    Tensor y(dtype, shape);
    const Spread past(y, far + further, first);
    for (const std::string& target : test::Targets()) {
      SCOPED_TRACE(target + " " + std::string(Name(dtype)) + " " + std::to_string(value_dim) + " " +
                   std::to_string(further) + " " + std::to_string(first));
      const test::OnTarget on(target);
      const Answers expected = Answer(layer_, call.inputs, initial, dims, dtype, false);
      State state = initial;
      layer_.Forward(call.inputs, state, {.y = past.view, .status = {}});
      CopyInto(past.view, y);
      EXPECT_EQ(LargestDifference(y, expected.y), 0);
    }
  }
}

// Values and answers of bfloat16 are floats of which the last bits are 0, or are rounded.
TEST_P(TimeSlices, BFloat16RowsAreRoundedOnes) {
  Dims dims = SomeDims();
  for (const std::int64_t value_dim : {32, 48, 24, 7}) {
    dims.value_dim = value_dim;
    if (layer_.recipe().function.kind != FunctionClass::kConstant) dims.key_dim = value_dim;
    const Call call(layer_.recipe(), dims, DType::kBFloat16, 3, true);
    const State initial = test::RandomState(layer_, call.inputs, 10);
    Inputs wide = call.inputs;
    Tensor v;
    if (wide.v.defined()) wide.v = v = Tensor::Copy(wide.v, DType::kFloat32);
    for (const std::string& target : test::Targets()) {
      SCOPED_TRACE(target + " " + std::to_string(value_dim));
      const test::OnTarget on(target);
      const Answers narrow = Answer(layer_, call.inputs, initial, dims, DType::kBFloat16, false);
      Answers rounded = Answer(layer_, wide, initial, dims, DType::kFloat32, false);
      rounded.y = Tensor::Copy(rounded.y, DType::kBFloat16);
      ExpectSame(narrow, rounded, 0);
    }
  }
}

// Fewer memories than threads are cut by value columns, what they keep beside these included.
TEST_P(TimeSlices, HaveTheBitsOfOneThreadWhereColumnsAreCut) {
  Dims dims = SomeDims();
  dims.batch = dims.heads = dims.key_heads = dims.value_heads = 1;
  const bool vector = layer_.recipe().function.kind == FunctionClass::kConstant;
  dims.query_heads = vector ? 1 : 2;
  struct Length {
    std::int64_t tokens, value_dim;
    DType dtype;
  };
  // Enough to be worth threads: chunk by chunk, and where the state lies.
  for (const auto& [tokens, value_dim, dtype] :
       {Length{1100, 100, DType::kFloat32}, Length{1100, 100, DType::kFloat64},
        Length{2, 12000, DType::kFloat32}}) {
    dims.tokens = tokens;
    dims.value_dim = value_dim;
    const Call call(layer_.recipe(), dims, dtype, 3, true);
    const State initial = test::RandomState(layer_, call.inputs, 10);
    for (const std::string& target : test::Targets()) {
      SCOPED_TRACE(target);
      const test::OnTarget on(target);
      const Answers expected = Answer(layer_, call.inputs, initial, dims, dtype, false,
                                      {.executor = &SequentialExecutor()});
      for (const int threads : {2, 3, 16}) {
        const auto executor = MakeExecutor(threads);
        std::vector<std::byte> scratch(layer_.ScratchBytes(dims, threads));
        const ttr::CallOptions run{.executor = executor.get(), .scratch = scratch};
        ExpectSame(Answer(layer_, call.inputs, initial, dims, dtype, false, run), expected, 0);
      }
    }
  }
}

TEST_P(TimeSlices, TakePackedSequences) {
  Dims dims = SomeDims();
  dims.batch = 1;
  dims.tokens = 233;
  const std::vector<std::int64_t> bounds = {0, 2, 2, 66, 85, 213, 233};
  dims.sequences = static_cast<std::int64_t>(bounds.size()) - 1;
  const Call call(layer_.recipe(), dims, DType::kFloat64, 4, true);
  Inputs inputs = call.inputs;
  inputs.cu_seqlens = TensorView::Of(bounds.data(), {static_cast<std::int64_t>(bounds.size())});
  const State initial = test::RandomState(layer_, inputs, 10);
  const SpreadInputs far(inputs);
  ExpectSame(Answer(layer_, far.inputs, initial, dims, DType::kFloat64, true),
             Answer(layer_, inputs, initial, dims, DType::kFloat64, false), 0);
}

TEST_P(TimeSlices, ForgetWhatIsNotFinite) {
  const Dims dims = SomeDims();
  const Call call(layer_.recipe(), dims, DType::kFloat64, 5, true);
  const TensorView& gates = call.inputs.log_decay;
  if (!gates.defined()) GTEST_SKIP() << "no gates";
  const std::int64_t width = gates.shape().elements() / (dims.batch * dims.tokens);
  for (const std::int64_t t : {3, 31, 32, 70}) {
    for (std::int64_t d = 0; d < width; ++d) {
      gates.as<double>()[t * width + d] = -std::numeric_limits<double>::infinity();
    }
  }
  const SpreadInputs far(call.inputs);
  ExpectSame(Answer(layer_, far.inputs, {}, dims, DType::kFloat64, true),
             Answer(layer_, call.inputs, {}, dims, DType::kFloat64, false), 0);
}

// How many memories take turns, and what is written past the caches, follows from the caches.
TEST_P(TimeSlices, HaveTheSameBitsWithAnyCaches) {
  Dims dims = SomeDims();
  dims.value_dim = 32;  // fills lines
  if (layer_.recipe().function.kind != FunctionClass::kConstant) dims.key_dim = 32;
  const Call call(layer_.recipe(), dims, DType::kFloat32, 7, true);
  const State initial = test::RandomState(layer_, call.inputs, 10);
  const State dstate = test::RandomState(layer_, call.inputs, 20);
  const Tensor dy = test::Normal(
      DType::kFloat32, {dims.batch, dims.tokens, dims.output_heads(), dims.value_dim}, 30);
  const SpreadInputs far(call.inputs);
  const auto differentiate = [&] {
    test::AlignedBytes saved(layer_.SavedBytes(dims, DType::kFloat32), std::byte{0xff});
    const ttr::CallOptions run{.saved = saved};
    Answer(layer_, far.inputs, initial, dims, DType::kFloat32, true, run);
    return test::Differentiate(layer_, far.inputs, initial, dy, dstate, run);
  };
  const Answers expected = Answer(layer_, far.inputs, initial, dims, DType::kFloat32, true);
  const auto expected_gradients = differentiate();
  std::size_t fewest_bytes = 0;
  for (const simd::Caches& caches : {test::kNoCaches, test::kEndlessCaches}) {
    SCOPED_TRACE(caches.in_turn);
    const test::WithCaches with(caches);
    // More memories in turn need more scratch.
    const std::size_t bytes = layer_.ScratchBytes(dims, 1);
    if (layer_.plan().engine == "fast_weights") {
      EXPECT_GT(bytes, fewest_bytes);
    }
    fewest_bytes = bytes;
    ExpectSame(Answer(layer_, far.inputs, initial, dims, DType::kFloat32, true), expected, 0);
    test::ExpectClose(differentiate(), expected_gradients, 0);
  }
}

TEST_P(TimeSlices, SaveWhatGradientsNeed) {
  const Dims dims = SomeDims();
  const Call call(layer_.recipe(), dims, DType::kFloat64, 6, true);
  const State initial = test::RandomState(layer_, call.inputs, 10);
  const State dstate = test::RandomState(layer_, call.inputs, 20);
  const Tensor dy = test::Normal(
      DType::kFloat64, {dims.batch, dims.tokens, dims.output_heads(), dims.value_dim}, 30);
  const SpreadInputs far(call.inputs);
  test::AlignedBytes saved(layer_.SavedBytes(dims, DType::kFloat64), std::byte{0xff});
  const ttr::CallOptions run{.saved = saved};
  Answer(layer_, far.inputs, initial, dims, DType::kFloat64, true, run);
  test::ExpectClose(test::Differentiate(layer_, far.inputs, initial, dy, dstate, run),
                    test::Differentiate(layer_, call.inputs, initial, dy, dstate), 1e-9);
}

}  // namespace
}  // namespace ttr
