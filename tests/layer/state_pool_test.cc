// Slots of a pool: calls on any of them answer as the decoder of each stream would, bit for bit.
#include "ttr/state_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "src/recipe/family.h"
#include "tests/layer/decoder_calls.h"
#include "tests/support/calls.h"
#include "tests/support/recipes.h"
#include "ttr/error.h"
#include "ttr/util/random.h"

namespace ttr {
namespace {

using test::Call;
using test::ErrorOf;
using test::LargestDifference;

constexpr std::int64_t kSlots = 7, kStreams = 4, kTokens = 60;

// Tokens begin .. begin + count of a stream, a row of the call's batch; or (-1) of none.
struct Piece {
  std::int64_t stream, begin, count;
};

// Some tokens of some streams as one call: rows of a batch, or packed.
struct Together {
  Inputs inputs{};
  std::vector<Tensor> tensors{};

  Together(const Call& call, const std::vector<Piece>& pieces, bool packed) {
    std::int64_t total = 0;
    for (const Piece& piece : pieces) total += piece.count;
    for (const InputSpec& spec : InputSpecs(call.recipe)) {
      const TensorView& all = call.inputs.*spec.view;
      if (!all.defined()) continue;
      if (spec.shapes.front().front() != Axis::kBatch) {
        inputs.*spec.view = all;
        continue;
      }
      const std::int64_t rows = all.size(1) / call.dims.tokens;
      std::vector<std::int64_t> sizes;
      for (int axis = 0; axis < all.rank(); ++axis) sizes.push_back(all.size(axis));
      sizes[0] = packed ? 1 : static_cast<std::int64_t>(pieces.size());
      sizes[1] = rows * (packed ? total : pieces.front().count);
      Tensor tensor(all.dtype(), Shape(std::span<const std::int64_t>(sizes)));
      std::int64_t row = 0, token = 0;
      for (const Piece& piece : pieces) {
        const TensorView to = packed ? tensor.view().Slice(1, rows * token, rows * piece.count)
                                     : tensor.view().Slice(0, row, 1);
        if (piece.stream < 0) {
          test::Fill(to, std::numeric_limits<double>::quiet_NaN());
        } else {
          CopyInto(all.Slice(0, piece.stream, 1).Slice(1, rows * piece.begin, rows * piece.count),
                   to);
        }
        ++row;
        token += piece.count;
      }
      inputs.*spec.view = tensor;
      tensors.push_back(std::move(tensor));
    }
    if (!packed) return;
    Tensor bounds(DType::kInt64, {static_cast<std::int64_t>(pieces.size()) + 1});
    std::int64_t* at = bounds.as<std::int64_t>().data();
    for (const Piece& piece : pieces) at[1] = at[0] + piece.count, ++at;
    inputs.cu_seqlens = bounds;
    tensors.push_back(std::move(bounds));
  }
};

std::vector<std::string> Recipes() {
  std::vector<std::string> recipes = test::LayerRecipes();
  std::erase_if(recipes, [](const std::string& text) {
    const Recipe recipe = ParseRecipe(text);
    return !recipe.reading.causal || KeepsPairs(recipe);
  });
  return recipes;
}

class Pool : public ::testing::TestWithParam<std::string> {
 protected:
  Pool() : layer(ParseRecipe(GetParam())) {}

  Dims AllDims(std::int64_t tokens = kTokens) const {
    Dims dims = test::SmallDims(layer.recipe());
    dims.batch = kStreams;
    dims.tokens = tokens;
    return dims;
  }
  // Those of one stream.
  Dims OneOf(const Call& call) const {
    Dims dims = InferDims("Pool", layer.requirements(), call.inputs);
    dims.batch = 1;
    return dims;
  }
  bool PairsWait() const { return Decoder::KeepsDrafts(layer); }
  DecoderOptions Options(std::int64_t draft) const {
    return {.state = DType::kFloat32, .draft = PairsWait() ? draft : 0, .together = kSlots};
  }

  Layer layer;
};

INSTANTIATE_TEST_SUITE_P(Recipes, Pool, ::testing::ValuesIn(Recipes()), test::CaseName);

// A call on a pool; what it does not write is NaN.
Tensor StepOf(const Call& call, const Together& rows, const std::vector<std::int64_t>& slots,
              StatePool& pool) {
  const TensorView& v = rows.inputs.v;
  Tensor y(v.dtype(), {v.size(0), v.size(1) / RowsPerToken(call.recipe), call.dims.output_heads(),
                       call.dims.value_dim});
  test::Fill(y, std::numeric_limits<double>::quiet_NaN());
  pool.Step(slots, rows.inputs, {.y = y});
  return y;
}

// The answers of a decoder to a piece.
Tensor Answer(const Call& call, const Piece& piece, Decoder& decoder) {
  const Together one(call, {piece}, false);
  Tensor y(call.inputs.v.dtype(), {1, piece.count, call.dims.output_heads(), call.dims.value_dim});
  if (piece.count > 0) decoder.Step(one.inputs, {.y = y});
  return y;
}

// The streams of a call: their slots, how far they are, and the decoder of each that is alone.
struct Streams {
  Streams(const Layer& layer, const Dims& dims, const DecoderOptions& options)
      : alone(kStreams, Decoder(layer, dims, options)) {}

  // Those that take part in a call, in some order; others, and rows without a slot.
  void Draw(CounterRandom& random, const std::vector<std::int64_t>& counts) {
    pieces.clear();
    slots.clear();
    const auto first = static_cast<std::int64_t>(random.Below(kStreams));
    for (std::int64_t i = 0; i < kStreams; ++i) {
      const auto s = static_cast<std::size_t>((first + i) % kStreams);
      const std::uint64_t kind = random.Below(4);
      if (kind == 0 || position[s] + counts[s] > kTokens) continue;
      pieces.push_back({kind == 1 ? -1 : static_cast<std::int64_t>(s), position[s], counts[s]});
      slots.push_back(kind == 1 ? -1 : slot_of[s]);
    }
  }

  std::vector<std::int64_t> slot_of = {5, 0, 3, 2};
  std::vector<std::int64_t> position = std::vector<std::int64_t>(kStreams, 0);
  std::vector<Decoder> alone;
  std::vector<Piece> pieces{};
  std::vector<std::int64_t> slots{};
};

// Any streams in any order, tokens one by one or several; rows without a slot; tokens that are
// taken back; a stream that moves to another slot.
TEST_P(Pool, AnswersAsDecodersDo) {
  for (const std::int64_t draft : {0, 3}) {
    if (draft > 0 && !PairsWait()) continue;
    const Call call(layer.recipe(), AllDims(), DType::kFloat32, 8);
    StatePool pool(layer, OneOf(call), kSlots, Options(draft));
    Streams streams(layer, OneOf(call), Options(draft));
    CounterRandom random(static_cast<std::uint64_t>(draft), 0);
    for (int round = 0; round < 24; ++round) {
      const auto count = static_cast<std::int64_t>(random.Below(3) == 0 ? 1 + random.Below(5) : 1);
      streams.Draw(random, std::vector<std::int64_t>(kStreams, count));
      if (streams.pieces.empty()) continue;
      const Tensor y = StepOf(call, {call, streams.pieces, false}, streams.slots, pool);
      for (std::size_t row = 0; row < streams.pieces.size(); ++row) {
        const Piece& piece = streams.pieces[row];
        const TensorView mine = y.view().Slice(0, static_cast<std::int64_t>(row), 1);
        SCOPED_TRACE("round " + std::to_string(round) + ", stream " + std::to_string(piece.stream));
        if (piece.stream < 0) {
          ASSERT_EQ(LargestDifference(mine, Tensor(DType::kFloat32, mine.shape())), 0);
          continue;
        }
        const auto s = static_cast<std::size_t>(piece.stream);
        Decoder& alone = streams.alone[s];
        ASSERT_EQ(LargestDifference(mine, Answer(call, piece, alone)), 0);
        Decoder in_pool = pool.At(streams.slot_of[s]);
        ASSERT_EQ(in_pool.pending(), alone.pending());
        const bool guessed = draft > 0 && random.Below(2) == 0;
        const std::int64_t wrong = guessed ? std::min(piece.count, alone.pending()) : 0;
        in_pool.RollBack(wrong);
        alone.RollBack(wrong);
        streams.position[s] += piece.count - wrong;
      }
      if (round == 12) {
        pool.Copy(streams.slot_of[1], 6);
        pool.Free(streams.slot_of[1]);
        streams.slot_of[1] = 6;
      }
    }
    for (std::size_t s = 0; s < kStreams; ++s) {
      Decoder in_pool = pool.At(streams.slot_of[s]);
      ASSERT_EQ(in_pool.state().entries().size(), streams.alone[s].state().entries().size()) << s;
      for (const State::Entry& entry : streams.alone[s].state().entries()) {
        EXPECT_EQ(LargestDifference(entry.view, in_pool.state().Get(entry.name)), 0)
            << s << ", " << entry.name;
      }
    }
    EXPECT_TRUE(pool.At(0).state().empty());
  }
}

// Prompts of different lengths, some empty and some without a slot, in turn with single tokens.
TEST_P(Pool, TakesPackedSequences) {
  for (const std::int64_t draft : {0, 3}) {
    if (draft > 0 && !PairsWait()) continue;
    const Call call(layer.recipe(), AllDims(), DType::kFloat64, 9);
    DecoderOptions options = Options(draft);
    options.state = DType::kFloat64;
    StatePool pool(layer, OneOf(call), kSlots, options);
    Streams streams(layer, OneOf(call), options);
    CounterRandom random(static_cast<std::uint64_t>(draft), 3);
    for (int round = 0; round < 8; ++round) {
      const bool packed = round % 2 == 0;
      std::vector<std::int64_t> counts(kStreams, 1);
      for (std::int64_t& count : counts) {
        if (packed) count = static_cast<std::int64_t>(random.Below(17));
      }
      streams.Draw(random, counts);
      if (streams.pieces.empty()) continue;
      const Tensor y = StepOf(call, {call, streams.pieces, packed}, streams.slots, pool);
      std::int64_t row = 0, token = 0;
      for (const Piece& piece : streams.pieces) {
        SCOPED_TRACE("round " + std::to_string(round) + ", stream " + std::to_string(piece.stream));
        const TensorView mine =
            packed ? y.view().Slice(1, token, piece.count) : y.view().Slice(0, row, 1);
        ++row;
        token += piece.count;
        if (piece.stream < 0) {
          ASSERT_EQ(LargestDifference(mine, Tensor(DType::kFloat64, mine.shape())), 0);
          continue;
        }
        const auto s = static_cast<std::size_t>(piece.stream);
        ASSERT_LE(LargestDifference(mine, Answer(call, piece, streams.alone[s])), 1e-7);
        streams.position[s] += piece.count;
      }
    }
  }
}

// A server's threads, each with streams of its own.
TEST_P(Pool, TakesThreadsOnDisjointSlots) {
  const Call call(layer.recipe(), AllDims(), DType::kFloat32, 10);
  const auto options = Options(2);
  StatePool together(layer, OneOf(call), kSlots, options),
      apart(layer, OneOf(call), kSlots, options);
  const auto run = [&](StatePool& pool, std::int64_t stream, Tensor& y) {
    for (std::int64_t t = 0; t < 20; ++t) {
      const Tensor one = StepOf(call, {call, {{stream, t, 1}}, false}, {stream}, pool);
      CopyInto(one, y.view().Slice(1, t, 1));
    }
  };
  const Shape shape{1, 20, call.dims.output_heads(), call.dims.value_dim};
  std::vector<Tensor> in_turn, at_once;
  for (std::int64_t s = 0; s < kStreams; ++s) {
    in_turn.emplace_back(DType::kFloat32, shape);
    at_once.emplace_back(DType::kFloat32, shape);
    run(apart, s, in_turn.back());
  }
  std::vector<std::thread> threads;
  for (std::int64_t s = 0; s < kStreams; ++s) {
    threads.emplace_back([&, s] { run(together, s, at_once[static_cast<std::size_t>(s)]); });
  }
  for (std::thread& thread : threads) thread.join();
  for (std::size_t s = 0; s < kStreams; ++s) {
    EXPECT_EQ(LargestDifference(in_turn[s], at_once[s]), 0) << s;
  }
}

class PoolErrors : public ::testing::Test {
 protected:
  PoolErrors()
      : layer(ParseRecipe("gated_deltanet")), call(layer.recipe(), Sizes(), DType::kFloat32, 1) {}

  static Dims Sizes() {
    Dims dims = test::SomeDims();
    dims.batch = 2;
    dims.tokens = 3;
    return dims;
  }
  static Dims One() {
    Dims dims = Sizes();
    dims.batch = 1;
    return dims;
  }
  std::string StepError(std::vector<std::int64_t> slots, StatePool& pool) {
    Tensor y(DType::kFloat32, OutputShape(call.dims));
    return ErrorOf([&] { pool.Step(slots, call.inputs, {.y = y}); });
  }

  Layer layer;
  Call call;
};

TEST_F(PoolErrors, NameWhatIsWrong) {
  StatePool pool(layer, One(), 3);
  EXPECT_EQ(StepError({0, 3}, pool), "[Step] slots must be from -1 to 2 but is 3");
  EXPECT_EQ(StepError({-2, 1}, pool), "[Step] slots must be from -1 to 2 but is -2");
  EXPECT_EQ(StepError({1, 1}, pool), "[Step] slots must be different ones but is twice 1");
  EXPECT_EQ(StepError({1}, pool), "[Step] slots must be 2, one for each sequence but is 1");
  EXPECT_EQ(StepError({-1, -1}, pool), "no error");
  EXPECT_TRUE(pool.At(0).state().empty());
  EXPECT_EQ(ErrorOf([&] { pool.At(3); }), "[At] slot must be from 0 to 2 but is 3");
  EXPECT_EQ(ErrorOf([&] { pool.Copy(0, -1); }), "[Copy] slot must be from 0 to 2 but is -1");
  EXPECT_EQ(ErrorOf([&] { pool.Free(7); }), "[Free] slot must be from 0 to 2 but is 7");
  EXPECT_EQ(ErrorOf([&] { StatePool(layer, One(), 0); }),
            "[StatePool] slots must be 1 or more but is 0");
  EXPECT_EQ(
      ErrorOf([&] { StatePool(layer, Sizes(), 2); }),
      "[StatePool] dims must be those of one stream (B = 1, not packed) but is B = 2, 0 packed "
      "sequences");
  const Layer pairs(ParseRecipe("softmax"));
  EXPECT_EQ(
      ErrorOf([&] { StatePool(pairs, One(), 2); }),
      "[StatePool] recipe must be one whose memory has a size (one that keeps its pairs grows: "
      "a Decoder for each stream is its pool) but is " +
          ToString(pairs.recipe()));
}

// Whatever is wrong, and wherever: no slot is written.
TEST_F(PoolErrors, WriteNothing) {
  StatePool pool(layer, One(), 3);
  ASSERT_EQ(StepError({2, 0}, pool), "no error");
  const std::vector<std::byte> before(pool.memory().begin(), pool.memory().end());
  call.inputs.step.Set({1, 2, 0}, -1);
  EXPECT_EQ(StepError({2, 0}, pool), "[Step] step must be >= 0 but is -1 at [1,2,0]");
  EXPECT_EQ(StepError({2, 1}, pool), "[Step] step must be >= 0 but is -1 at [1,2,0]");
  call.inputs.step.Set({1, 2, 0}, .5);
  const TensorView inside(pool.memory().data() + 64, DType::kFloat32, OutputShape(call.dims));
  EXPECT_NE(
      ErrorOf([&] { pool.Step(std::vector<std::int64_t>{2, 0}, call.inputs, {.y = inside}); }),
      "no error");
  EXPECT_TRUE(std::equal(before.begin(), before.end(), pool.memory().begin()));
}

// The memory may be the caller's, be moved, and be that of another layer's pool.
TEST_F(PoolErrors, AreOfMemoryThatIsAnothers) {
  const std::size_t bytes = 3 * StatePool::SlotBytes(layer, One());
  Tensor there(DType::kInt8, {static_cast<std::int64_t>(bytes) + 64});
  const auto at = [&](Tensor& tensor) {
    return std::span(static_cast<std::byte*>(tensor.data()), bytes);
  };
  StatePool pool(layer, One(), 3, {.memory = at(there)});
  ASSERT_EQ(StepError({2, 0}, pool), "no error");
  Tensor moved(DType::kInt8, there.shape());
  std::memcpy(moved.data(), there.data(), bytes);
  StatePool again(layer, One(), 3, {.memory = at(moved)});
  ASSERT_EQ(StepError({2, 1}, pool), "no error");
  ASSERT_EQ(StepError({2, 1}, again), "no error");
  EXPECT_EQ(std::memcmp(moved.data(), there.data(), bytes), 0);

  const Layer other(ParseRecipe("gated_deltanet{scale: 0.5}"));
  constexpr const char* kRefusal =
      "[Decoder] memory must be zeros, or left by a decoder of the same layer and sizes but is "
      "something else";
  pool.Free(0);
  StatePool wrong(other, One(), 3, {.memory = at(there)});
  EXPECT_EQ(StepError({0, 2}, wrong), kRefusal);
  EXPECT_TRUE(wrong.At(0).state().empty());  // nor has the first begun
  EXPECT_EQ(ErrorOf([&] { wrong.At(1); }), kRefusal);
  EXPECT_EQ(ErrorOf([&] { StatePool(layer, One(), 2, {.memory = at(there).subspan(8)}); }),
            "[StatePool] memory must be at a multiple of 64 but is 8 beyond one");
  EXPECT_EQ(ErrorOf([&] { StatePool(layer, One(), 4, {.memory = at(there)}); }),
            "[StatePool] memory must be at least " + std::to_string(bytes / 3 * 4) +
                " bytes but is " + std::to_string(bytes));
}

}  // namespace
}  // namespace ttr
