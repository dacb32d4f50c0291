// Decoders: what they answer, what they tell of their state, and the memory that they take.
#include "ttr/decoder.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "src/adapters/registry.h"
#include "src/simd/caches.h"
#include "tests/layer/decoder_calls.h"
#include "tests/support/calls.h"
#include "tests/support/engines.h"
#include "tests/support/targets.h"
#include "ttr/error.h"
#include "ttr/util/random.h"

namespace ttr {
namespace {

using test::Call;
using test::LargestDifference;
using test::Result;
using test::SomeDims;
using test::Step;
using test::Token;

// Does this layer defer at these sizes?
bool Defers(const Layer& layer, const Dims& dims, DType dtype) {
  return FindEngine(layer.plan().engine)->Defers(layer.recipe(), dims, dtype);
}

// Every number of a token's rows.
void FillToken(const TensorView& view, std::int64_t token, double number) {
  const Tensor row(view.dtype(), view.Slice(1, token, 1).shape());
  for (std::int64_t i = 0; i < row.elements(); ++i) {
    StoreElement(const_cast<void*>(row.data()), row.dtype(), i, number);
  }
  CopyInto(row.view(), view.Slice(1, token, 1));
}

Tensor Step(const Layer& layer, const Call& call, std::int64_t token, State& state) {
  Tensor y = Token(call);
  layer.Step(test::TokensOf(call, token, 1), state, {.y = y});
  return y;
}

class Decoding : public ::testing::TestWithParam<std::string> {
 protected:
  Decoding() : call(ParseRecipe(GetParam()), SomeDims(), DType::kFloat64, 3) {}

  Decoder Fresh() const { return Decoder(layer, call.dims, DType::kFloat64); }
  Decoder After(std::int64_t tokens) const {
    Decoder decoder = Fresh();
    for (std::int64_t t = 0; t < tokens; ++t) Step(call, t, decoder);
    return decoder;
  }
  // The state after so many tokens, its tensors written after every one.
  State Plain(std::int64_t tokens) const {
    State state;
    for (std::int64_t t = 0; t < tokens; ++t) Step(layer, call, t, state);
    return state;
  }
  void ExpectSame(const State& state, const State& expected, const char* what) const {
    ASSERT_EQ(state.entries().size(), expected.entries().size());
    for (const State::Entry& entry : expected.entries()) {
      EXPECT_LT(LargestDifference(entry.view, state.Get(entry.name)), 1e-10)
          << entry.name << ", " << what;
    }
  }

  Call call;
  Layer layer{ParseRecipe(GetParam())};
};

INSTANTIATE_TEST_SUITE_P(Recipes, Decoding,
                         ::testing::Values("rls{ridge: 0.1}", "weighted_rls{ridge: 0.1}",
                                           "affine_rls{ridge: 0.1}",
                                           "rls{ridge: 0.1, decay: 0.9, read: before}",
                                           "rls{ridge: 0.1, decay: scalar, output_norm: l2}",
                                           "gated_deltanet", "kda", "rwkv7", "comba",
                                           "delta_product", "preconditioned_deltanet",
                                           "gated_deltanet{read: before, output_norm: rms}"),
                         [](const auto& recipe) { return std::to_string(recipe.index); });

TEST_P(Decoding, AnswersAsStepsDo) {
  EXPECT_TRUE(Defers(layer, call.dims, DType::kFloat64));
  for (const std::string& target : test::Targets()) {
    const test::OnTarget on(target);
    Decoder decoder = Fresh();
    State plain;
    for (std::int64_t t = 0; t < 60; ++t) {
      EXPECT_LT(LargestDifference(Step(call, t, decoder), Step(layer, call, t, plain)), 1e-10)
          << target << ", token " << t;
    }
    ExpectSame(decoder.state(), plain, target.c_str());
  }
}

// Asking for the state in between changes nothing but rounding.
TEST_P(Decoding, TellsTheStateAtAnyTime) {
  Decoder decoder = Fresh();
  EXPECT_TRUE(decoder.state().empty());
  State plain;
  for (std::int64_t t = 0; t < 50; ++t) {
    Step(call, t, decoder);
    Step(layer, call, t, plain);
    if (t % 7 == 3) ExpectSame(decoder.state(), plain, "in between");
  }
  ExpectSame(decoder.state(), plain, "at the end");
  const void* const data = decoder.state().Get("state").data();
  Step(call, 50, decoder);
  EXPECT_EQ(decoder.state().Get("state").data(), data);
}

TEST_P(Decoding, MemorizesAndRetrievesBehindSteps) {
  Decoder decoder = After(40);
  State plain = Plain(40);
  const Inputs reads{.q = test::TokensOf(call, 41, 1).q};
  Tensor y = Token(call), expected = Token(call);
  if (layer.recipe().reading.correction == 0) {
    decoder.Retrieve(reads, {.y = y});
    layer.Retrieve(reads, plain, {.y = expected});
    EXPECT_LT(LargestDifference(y, expected), 1e-10);
  }
  Inputs written = test::TokensOf(call, 40, 1);
  written.q = {};
  decoder.Memorize(written);
  layer.Memorize(written, plain);
  ExpectSame(decoder.state(), plain, "Memorize");
  for (std::int64_t t = 41; t < 50; ++t) {
    EXPECT_LT(LargestDifference(Step(call, t, decoder), Step(layer, call, t, plain)), 1e-10);
  }
}

TEST_P(Decoding, GoesOnFromAPrompt) {
  State prompt;
  Tensor y(DType::kFloat64, {1, 40, 4, 37});
  layer.Forward(test::TokensOf(call, 0, 40), prompt, {.y = y});
  Decoder decoder = After(3);
  decoder.Start(prompt);
  const Tensor kept = Tensor::Copy(prompt.Get("state"));
  for (std::int64_t t = 40; t < 50; ++t) Step(call, t, decoder);
  EXPECT_EQ(LargestDifference(kept, prompt.Get("state")), 0);  // a copy went on
  ExpectSame(decoder.state(), Plain(50), "from the prompt");
  decoder.Start({});
  for (std::int64_t t = 0; t < 5; ++t) Step(call, t, decoder);
  ExpectSame(decoder.state(), Plain(5), "from the start");
}

// The caller's memory, which is moved between any two tokens.
TEST_P(Decoding, KeepsAllInTheCallersMemory) {
  const std::size_t bytes = Decoder::Bytes(layer, call.dims, DType::kFloat64);
  const auto size = static_cast<std::int64_t>(bytes);
  Tensor memory(DType::kInt8, {size});
  const auto span = [&] { return std::span(static_cast<std::byte*>(memory.data()), bytes); };
  Decoder own = Fresh();
  for (std::int64_t t = 0; t < 50; ++t) {
    Tensor moved = Tensor::Copy(memory);
    std::memset(memory.data(), 0x5a, bytes);
    memory = std::move(moved);
    Decoder decoder(layer, call.dims, DType::kFloat64, span());
    EXPECT_EQ(LargestDifference(Step(call, t, decoder), Step(call, t, own)), 0) << t;
  }
  Decoder decoder(layer, call.dims, DType::kFloat64, span());
  for (const State::Entry& entry : decoder.state().entries()) {
    EXPECT_EQ(LargestDifference(entry.view, own.state().Get(entry.name)), 0) << entry.name;
    const auto* const at = entry.view.as<std::byte>();
    EXPECT_TRUE(at >= span().data() && at < span().data() + bytes) << entry.name;
  }
}

TEST_P(Decoding, IsCopiedAndMovedWithWhatIsDeferred) {
  const Decoder decoder = After(40);
  Decoder copy = decoder, moved = Decoder(decoder);
  for (std::int64_t t = 40; t < 50; ++t) Step(call, t, copy);
  Decoder last = std::move(moved);
  ExpectSame(copy.state(), Plain(50), "the copy");
  ExpectSame(last.state(), Plain(40), "the original");
  last = copy;
  ExpectSame(last.state(), Plain(50), "assigned");
}

// What is no number is no number in the same places, and gone when it is forgotten.
TEST_P(Decoding, ConfinesWhatIsNoNumber) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const TensorView Inputs::* input : {&Inputs::k, &Inputs::v}) {
    for (const double number : {std::numeric_limits<double>::quiet_NaN(), kInfinity}) {
      SCOPED_TRACE((input == &Inputs::k ? "key " : "value ") + std::to_string(number));
      const Call other(layer.recipe(), SomeDims(), DType::kFloat64, 4);
      (other.inputs.*input).Set({0, 30, 1, 2}, number);
      if (other.inputs.log_decay.defined()) FillToken(other.inputs.log_decay, 35, -kInfinity);
      const Result plain = RunInPieces(layer, other, 1);
      const Result deferred = RunDecoder(layer, other);
      EXPECT_LT(LargestDifference(plain.y, deferred.y), 1e-9);
      EXPECT_EQ(LargestDifference(plain.status, deferred.status), 0);
      ExpectSame(deferred.state, plain.state, "after all");
    }
  }
}

// A gate that leaves less than the least number, and a key that adds nothing.
TEST(DecodingLeastSquares, BearsGatesThatLeaveNothing) {
  const Layer layer(ParseRecipe("rls{ridge: 0.1, decay: scalar}"));
  for (const double log_decay : {-40., -70., -86., -90., -100.}) {
    const Call call(layer.recipe(), SomeDims(), DType::kFloat32, 9);
    for (std::int64_t h = 0; h < 2; ++h) {
      call.inputs.log_decay.Set({0, 40, h}, log_decay);
      for (std::int64_t i = 0; i < 21; ++i) call.inputs.k.Set({0, 40, h, i}, 0);
    }
    const Result plain = RunInPieces(layer, call, 1);
    const Result deferred = RunDecoder(layer, call);
    for (const State::Entry& entry : plain.state.entries()) {
      EXPECT_LT(LargestDifference(entry.view, deferred.state.Get(entry.name)), 1e-4)
          << entry.name << ", " << log_decay;
    }
  }
}

TEST(DecodingLeastSquares, BearsKeysOfOtherScales) {
  for (const char* const text : {"rls{ridge: 0.1}", "rls{ridge: 0.1, decay: 0.9}"}) {
    const Layer layer(ParseRecipe(text));
    for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
      for (const double scale : {1e-9, 1e-4, 1e4, 1e9, 1e15}) {
        const Call call(layer.recipe(), SomeDims(), dtype, 5);
        for (std::int64_t t = 30; t < 60; ++t) {
          for (std::int64_t h = 0; h < 2; ++h) {
            for (std::int64_t i = 0; i < 21; ++i) {
              call.inputs.k.Set({0, t, h, i}, scale * call.inputs.k.At({0, t, h, i}));
            }
          }
        }
        const Result plain = RunInPieces(layer, call, 1);
        const Result deferred = RunDecoder(layer, call);
        double size = 0;
        for (const State::Entry& entry : plain.state.entries()) {
          const Tensor zero(entry.view.dtype(), entry.view.shape());
          size = LargestDifference(entry.view, zero);
          ASSERT_TRUE(std::isfinite(size)) << text << scale;
          EXPECT_LT(LargestDifference(entry.view, deferred.state.Get(entry.name)),
                    (dtype == DType::kFloat32 ? 1e-4 : 1e-12) * size)
              << text << ", scale " << scale << ", " << entry.name;
        }
      }
    }
  }
}

TEST(DecodingLeastSquares, HasTheStatusOfWhatIsNotDetermined) {
  for (const char* const text :
       {"rls{ridge: 0}", "rls{ridge: 0, decay: 0.5}", "rls{ridge: 0, read: before}"}) {
    const Layer layer(ParseRecipe(text));
    const Call call(layer.recipe(), SomeDims(), DType::kFloat64, 6);
    const Result plain = RunInPieces(layer, call, 1);
    const Result deferred = RunDecoder(layer, call);
    EXPECT_EQ(LargestDifference(plain.status, deferred.status), 0) << text;
    EXPECT_LT(LargestDifference(plain.y, deferred.y), 1e-6) << text;
  }
}

// The write of one token is deferred to the next one, beside all that has decayed meanwhile.
class DeferredWrites : public ::testing::TestWithParam<std::string> {
 protected:
  Layer layer{ParseRecipe(GetParam())};

  void ExpectSame(const Call& call, double tolerance) const {
    const Result plain = RunInPieces(layer, call, 1);
    const Result deferred = RunDecoder(layer, call);
    EXPECT_LE(LargestDifference(plain.y, deferred.y), tolerance);
    for (const State::Entry& entry : plain.state.entries()) {
      EXPECT_LE(LargestDifference(entry.view, deferred.state.Get(entry.name)), tolerance)
          << entry.name;
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Recipes, DeferredWrites,
                         ::testing::Values("gated_deltanet", "kda", "rwkv7", "comba",
                                           "gated_deltanet{read: before}"),
                         [](const auto& recipe) { return std::to_string(recipe.index); });

// Numbers are kept over what has decayed: gates small and large, 0 and mixed, must neither lose nor
// overflow any.
TEST_P(DeferredWrites, BearGatesOfAllSizes) {
  const double gates[] = {0, -1e-3, -0.7, -7, -70, -1000, -std::numeric_limits<double>::infinity()};
  for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
    const double tolerance = dtype == DType::kFloat32 ? 1e-4 : 1e-12;
    for (const double gate : gates) {
      SCOPED_TRACE(gate);
      const Call call(layer.recipe(), SomeDims(), dtype, 10);
      for (std::int64_t t = 0; t < 60; ++t) FillToken(call.inputs.log_decay, t, gate);
      ExpectSame(call, tolerance);
    }
    const Call mixed(layer.recipe(), SomeDims(), dtype, 11);
    const Tensor gate(mixed.inputs.log_decay.dtype(), mixed.inputs.log_decay.shape());
    CounterRandom random(5, 0);
    for (std::int64_t i = 0; i < gate.elements(); ++i) {
      const double number = gates[random.Below(std::size(gates))];
      StoreElement(const_cast<void*>(gate.data()), gate.dtype(), i, number);
    }
    CopyInto(gate.view(), mixed.inputs.log_decay);
    ExpectSame(mixed, tolerance);
  }
}

// Columns of a memory that are cut among threads share keys and decays, which one of them leaves.
TEST_P(DeferredWrites, HaveTheBitsOfOneThread) {
  Dims dims = SomeDims();
  dims.tokens = 8;
  dims.key_dim = dims.value_dim = 416;
  dims.heads = dims.key_heads = dims.value_heads = dims.query_heads = 1;
  const Call call(layer.recipe(), dims, DType::kFloat32, 12);
  const auto three = MakeExecutor(3);
  Decoder one(layer, dims), several(layer, dims);
  for (std::int64_t t = 0; t < dims.tokens; ++t) {
    const Tensor y = Step(call, t, one, {.executor = &SequentialExecutor()});
    EXPECT_EQ(LargestDifference(y, Step(call, t, several, {.executor = three.get()})), 0) << t;
  }
  EXPECT_EQ(LargestDifference(one.state().Get("state"), several.state().Get("state")), 0);
}

// Rows of whole lines are taken, and outputs of several queries left, in place.
TEST(SingleTokens, TakeWholeLinesInPlace) {
  Dims dims = SomeDims();
  dims.key_dim = 32;
  dims.value_dim = 48;
  for (const char* const text : {"gated_deltanet", "gated_deltanet{scale: 0.5}", "kda", "retnet"}) {
    SCOPED_TRACE(text);
    const Layer layer(ParseRecipe(text)), definition(ParseRecipe(text), kDefinition);
    const Call call(layer.recipe(), dims, DType::kFloat32, 14);
    const Result expected = RunWhole(definition, call);
    EXPECT_LT(LargestDifference(expected.y, RunInPieces(layer, call, 1).y), 1e-5);
    EXPECT_LT(LargestDifference(expected.y, RunDecoder(layer, call).y), 1e-5);
  }
}

// Where nothing is deferred a step is a step, bit for bit.
TEST(DecodingElsewhere, ChangesNothing) {
  for (const char* const text :
       {"retnet", "rls{ridge_kind: relative}", "lru", "nadaraya_watson", "ttt_linear", "softmax"}) {
    SCOPED_TRACE(text);
    const Layer layer(ParseRecipe(text));
    const Call call(layer.recipe(), test::SmallDims(layer.recipe()), DType::kFloat32, 7);
    EXPECT_FALSE(Defers(layer, call.dims, DType::kFloat32));
    const Result plain = RunInPieces(layer, call, 1), decoded = RunDecoder(layer, call);
    EXPECT_EQ(LargestDifference(plain.y, decoded.y), 0);
    for (const State::Entry& entry : plain.state.entries()) {
      EXPECT_EQ(LargestDifference(entry.view, decoded.state.Get(entry.name)), 0) << entry.name;
    }
  }
}

// Large states of few channels are streamed at best, and written at once: beyond 16 MB, whatever
// caches this machine has.
TEST(DecodingElsewhere, DefersWhereThatIsFaster) {
  const simd::Caches caches;
  simd::ForceCaches(&caches);
  const Layer layer(ParseRecipe("gated_deltanet"));
  Dims dims = SomeDims();
  dims.key_dim = dims.value_dim = 64;
  EXPECT_TRUE(Defers(layer, dims, DType::kFloat32));
  dims.batch = 1024;
  EXPECT_FALSE(Defers(layer, dims, DType::kFloat32));
  dims.key_dim = dims.value_dim = 128;
  EXPECT_TRUE(Defers(layer, dims, DType::kFloat32));
  simd::ForceCaches(nullptr);
}

TEST(DecodingLeastSquares, TakesAnyThreadsAndBFloat16) {
  const Layer layer(ParseRecipe("weighted_rls{ridge: 0.1}"));
  Dims dims = SomeDims();
  dims.key_dim = dims.value_dim = 64;
  dims.heads = dims.key_heads = dims.value_heads = dims.query_heads = 40;
  dims.tokens = 5;
  const Call call(layer.recipe(), dims, DType::kBFloat16, 8);
  const auto several = MakeExecutor(3);
  Decoder one(layer, dims), other(layer, dims);
  for (std::int64_t t = 0; t < dims.tokens; ++t) {
    const Tensor y = Step(call, t, one);
    EXPECT_EQ(LargestDifference(y, Step(call, t, other, {.executor = several.get()})), 0) << t;
  }
  for (const State::Entry& entry : one.state().entries()) {
    EXPECT_EQ(LargestDifference(entry.view, other.state().Get(entry.name)), 0) << entry.name;
  }
}

// Views of a decoder's own state are as good a start as any other.
TEST(DecodingAnywhere, GoesOnFromItsOwnState) {
  for (const char* const text :
       {"softmax", "kernel_ridge{ridge: 0.1}", "rls{ridge: 0.1}", "gated_deltanet", "retnet"}) {
    SCOPED_TRACE(text);
    const Layer layer(ParseRecipe(text));
    const Call call(layer.recipe(), SomeDims(), DType::kFloat64, 15);
    Decoder decoder(layer, call.dims, DType::kFloat64), other(layer, call.dims, DType::kFloat64);
    for (std::int64_t t = 0; t < 20; ++t) {
      Step(call, t, decoder);
      Step(call, t, other);
    }
    decoder.Start(decoder.state().Shared());
    const State views = decoder.state().Shared();
    for (std::int64_t t = 20; t < 30; ++t) {
      EXPECT_LE(LargestDifference(Step(call, t, decoder), Step(call, t, other)), 1e-10) << t;
    }
    if (views.Get("state.k").defined()) continue;  // pairs have grown elsewhere
    decoder.Start(views);                          // with what later steps have written there
    for (std::int64_t t = 30; t < 40; ++t) {
      EXPECT_LE(LargestDifference(Step(call, t, decoder), Step(call, t, other)), 1e-10) << t;
    }
  }
}

}  // namespace
}  // namespace ttr
