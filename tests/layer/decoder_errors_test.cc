// Errors of decoders: they name what is wrong, and change nothing.
#include <gtest/gtest.h>

#include <cstddef>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "tests/layer/decoder_calls.h"
#include "tests/support/calls.h"
#include "ttr/decoder.h"
#include "ttr/error.h"

namespace ttr {
namespace {

using test::Call;
using test::ErrorOf;
using test::LargestDifference;
using test::SomeDims;
using test::Step;
using test::Token;

// The header before the state and the numbers behind it are the decoder's alone.
TEST(DecoderErrors, NameWhatOverlapsItsMemory) {
  for (const char* const text : {"gated_deltanet", "rls{ridge: 0.1}", "retnet"}) {
    SCOPED_TRACE(text);
    const Layer layer(ParseRecipe(text));
    const Dims dims = SomeDims();
    const Call call(layer.recipe(), dims, DType::kFloat32, 1);
    Tensor memory(DType::kInt8, {static_cast<std::int64_t>(Decoder::Bytes(layer, dims))});
    const std::span all(static_cast<std::byte*>(memory.data()),
                        static_cast<std::size_t>(memory.bytes()));
    Decoder decoder(layer, dims, DType::kFloat32, all);
    Step(call, 0, decoder);
    const Tensor before = Tensor::Copy(memory);
    const Tensor y = Token(call);
    const Inputs inputs = test::TokensOf(call, 1, 1);
    const auto refused = [&](const Inputs& given, const Outputs& outputs,
                             const CallOptions& options) {
      const std::string text_of = ErrorOf([&] { decoder.Step(given, outputs, options); });
      EXPECT_NE(text_of.find("memory of its own"), std::string::npos) << text_of;
      EXPECT_EQ(LargestDifference(memory, before), 0);
    };
    for (const std::size_t at : {std::size_t{0}, std::size_t{64}, all.size() - 64}) {
      SCOPED_TRACE(at);
      std::byte* const place = all.data() + at;
      refused(inputs, {.y = TensorView(place, DType::kFloat32, y.shape())}, {});
      refused(inputs, {.y = y, .status = TensorView(place, DType::kInt8, {1, 1, 4})}, {});
      refused(inputs, {.y = y}, {.scratch = {place, 64}});
      Inputs into = inputs;
      into.q = TensorView(place, DType::kFloat32, inputs.q.shape());
      refused(into, {.y = y}, {});
    }
  }
}

TEST(DecoderErrors, NameWhatIsWrong) {
  const Layer layer(ParseRecipe("gated_deltanet"));
  const Dims dims = SomeDims();
  const std::size_t bytes = Decoder::Bytes(layer, dims);
  Tensor memory(DType::kInt8, {static_cast<std::int64_t>(bytes) + 64});
  const std::span all(static_cast<std::byte*>(memory.data()), bytes + 64);
  const auto make = [&](const Layer& of, const Dims& at, std::span<std::byte> in) {
    return ErrorOf([&] { Decoder(of, at, DType::kFloat32, in); });
  };
  EXPECT_NE(make(layer, dims, all.first(bytes - 1)).find("[Decoder] memory must be at least"),
            std::string::npos);
  EXPECT_NE(make(layer, dims, all.subspan(1)).find("at a multiple of 64"), std::string::npos);
  EXPECT_EQ(make(layer, dims, all), "no error");
  EXPECT_NE(make(Layer(ParseRecipe("deltanet")), dims, all).find("something else"),
            std::string::npos);
  Dims other = dims;
  other.heads = 0;
  EXPECT_NE(make(layer, other, {}).find("[Decoder] H must be from 1"), std::string::npos);
  other = dims;
  other.key_dim = other.value_dim = std::int64_t{1} << 31;
  other.batch = 4;  // 2^64 numbers
  EXPECT_NE(make(layer, other, {}).find("[Decoder] sizes must be"), std::string::npos);
  EXPECT_NE(ErrorOf([&] {
              Decoder::Bytes(layer, dims, DType::kInt64);
            }).find("[Decoder] state must be float32, float64, bfloat16 or float16 but is int64"),
            std::string::npos);
  EXPECT_NE(make(Layer(ParseRecipe("linear_attention{causal: false}")), dims, {}).find("causal"),
            std::string::npos);
  EXPECT_NE(make(Layer(ParseRecipe("softmax")), dims, all).find("grows"), std::string::npos);

  // A header that says more than this layer keeps.
  for (const std::size_t word : {1U, 2U, 3U, 4U}) {
    std::memset(memory.data(), 0, bytes);
    Decoder(layer, dims, DType::kFloat32, all);
    const std::int64_t number = 1'000'000;
    std::memcpy(all.data() + 8 * word, &number, sizeof(number));
    EXPECT_NE(make(layer, dims, all).find("something else"), std::string::npos) << word;
  }

  const Call call(layer.recipe(), dims, DType::kFloat32, 1);
  Decoder decoder(layer, dims);
  Inputs two = test::TokensOf(call, 0, 2);
  two.q = {};
  EXPECT_NE(ErrorOf([&] { decoder.Memorize(two); }).find("[Memorize] v must be one token"),
            std::string::npos);
  Tensor wrong(DType::kFloat32, {1, 1, 4, 36});
  EXPECT_NE(
      ErrorOf([&] { decoder.Step(test::TokensOf(call, 0, 1), {.y = wrong}); }).find("[Step] y"),
      std::string::npos);

  Inputs lacking = test::TokensOf(call, 0, 1);
  lacking.k = {};
  EXPECT_NE(ErrorOf([&] { decoder.Step(lacking, {.y = wrong}); }).find("[Step] k"),
            std::string::npos);
  EXPECT_TRUE(decoder.state().empty());  // no error has begun it
  Tensor right(DType::kFloat32, {1, 1, 4, 37});
  decoder.Step(test::TokensOf(call, 0, 1), {.y = right});
  const Tensor before = Tensor::Copy(decoder.state().Get("state"));
  State other_shape;
  other_shape.Set("state", Tensor(DType::kFloat32, {1, 2, 20, 37}));
  EXPECT_THROW(decoder.Start(other_shape), Error);
  decoder.Start(decoder.state());
  EXPECT_EQ(LargestDifference(before, decoder.state().Get("state")), 0);
}

}  // namespace
}  // namespace ttr
