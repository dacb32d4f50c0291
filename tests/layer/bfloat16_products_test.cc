// Products with the memory in bfloat16 (CallOptions::bfloat16_products): where there are any,
// answers are those of float32 but for the rounding of factors; elsewhere they are the same bits.
// By pairs and by tiles, which are emulated where the processor has none.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "tests/support/calls.h"
#include "tests/support/engines.h"
#include "tests/support/gradients.h"
#include "tests/support/matrix_tiles.h"
#include "tests/support/recipes.h"
#include "tests/support/spread.h"
#include "tests/support/targets.h"
#include "ttr/executor.h"
#include "ttr/layer.h"
#include "ttr/util/random.h"

namespace ttr {
namespace {

using simd::Bf16Products;
using test::Call;
using test::LargestDifference;

const ttr::CallOptions kNarrow{.bfloat16_products = true};

struct Answers {
  Tensor y;
  State state;
};

Answers Answer(const Layer& layer, const Inputs& inputs, const Dims& dims, const State& initial,
               const ttr::CallOptions& run) {
  Answers found{
      Tensor(DType::kFloat32, {dims.batch, dims.tokens, dims.output_heads(), dims.value_dim}),
      initial};
  layer.Forward(inputs, found.state, {.y = found.y, .status = {}}, run);
  return found;
}

void ExpectSame(const Answers& a, const Answers& b) {
  EXPECT_EQ(LargestDifference(a.y, b.y), 0);
  for (const State::Entry& entry : a.state.entries()) {
    EXPECT_EQ(LargestDifference(entry.view, b.state.Get(entry.name)), 0) << entry.name;
  }
}

// The median, or the root mean square, of the numbers' sizes.
double SizeOf(const TensorView& x, bool median) {
  const Tensor wide = Tensor::Copy(x, DType::kFloat64);
  std::vector<double> sizes;
  double squares = 0;
  for (const double number : wide.as<double>()) {
    sizes.push_back(std::abs(number));
    squares += number * number;
  }
  const auto middle = sizes.begin() + std::ssize(sizes) / 2;
  std::nth_element(sizes.begin(), middle, sizes.end());
  return median ? *middle : std::sqrt(squares / static_cast<double>(sizes.size()));
}

// The size of the difference as a share of that of b.
double Distance(const TensorView& a, const TensorView& b, bool median) {
  Tensor difference = Tensor::Copy(a, DType::kFloat64);
  const Tensor of = Tensor::Copy(b, DType::kFloat64);
  for (std::size_t i = 0; i < difference.as<double>().size(); ++i) {
    difference.as<double>()[i] -= of.as<double>()[i];
  }
  return SizeOf(difference, median) / SizeOf(b, median);
}

bool Has(Bf16Products products) {
  if (products == Bf16Products::kTiles) return test::HasMatrixTiles();
  return products == Bf16Products::kFloat32 || simd::TheBf16Processor().has_pairs;
}

// Has the chosen target those that are asked for?
bool TargetHasProducts() { return Layer(ParseRecipe("deltanet")).HasBFloat16Products(); }

using Case = std::tuple<std::string, Bf16Products>;

class BFloat16Products : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (!Has(std::get<1>(GetParam()))) GTEST_SKIP() << "none";
  }

  Dims SomeDims() const {
    Dims dims = test::SmallDims(layer_.recipe());
    dims.tokens = 101;
    dims.key_dim = dims.value_dim = 48;
    return dims;
  }

  // Has this recipe any?
  bool HasProducts() const { return layer_.HasBFloat16Products(); }

  test::WithBf16Products with_{std::get<1>(GetParam())};
  Layer layer_{ParseRecipe(std::get<0>(GetParam()))};
};

INSTANTIATE_TEST_SUITE_P(All, BFloat16Products,
                         testing::Combine(testing::ValuesIn(test::EngineRecipes()),
                                          testing::Values(Bf16Products::kFloat32,
                                                          Bf16Products::kPairs,
                                                          Bf16Products::kTiles)),
                         [](const testing::TestParamInfo<Case>& at) {
                           return test::CaseName({std::get<0>(at.param), at.index}) + "_" +
                                  std::string(simd::NameOf(std::get<1>(at.param)));
                         });

TEST_P(BFloat16Products, AgreeWithTheDefinition) {
  if (!HasProducts()) GTEST_SKIP() << "none";
  Dims dims = SomeDims();
  for (const std::int64_t dim : {48, 20, 7}) {
    SCOPED_TRACE(dim);
    dims.key_dim = dims.value_dim = dim;
    const Call call(layer_.recipe(), dims, DType::kBFloat16, 3, true);
    const State initial = test::RandomState(layer_, call.inputs, 10);
    const Layer definition(layer_.recipe(), kDefinition);
    const Answers defined = Answer(definition, call.inputs, dims, initial, {});
    const Answers narrow = Answer(layer_, call.inputs, dims, initial, kNarrow);
    const Answers wide = Answer(layer_, call.inputs, dims, initial, {});
    // A factor is rounded by 2^-9 at the most, by half of that usually. Errors of what is written
    // are erased, or add up as the values do, by chance.
    // Sums of weights that happen to be small divide errors, too: then the median counts.
    const bool divides = layer_.recipe().reading.normalise_sum != NormaliseSum::kNone;
    EXPECT_LT(Distance(narrow.y, defined.y, divides), 0x1p-7);
    for (const State::Entry& entry : defined.state.entries()) {
      EXPECT_LT(Distance(narrow.state.Get(entry.name), entry.view, false), 0x1p-7) << entry.name;
    }
    EXPECT_GT(LargestDifference(narrow.y, wide.y), 0);
  }
}

TEST_P(BFloat16Products, AreForCallsThatAskForThem) {
  Dims dims = SomeDims();
  const auto same = [&](const Call& call, const ttr::CallOptions& asks,
                        const ttr::CallOptions& otherwise) {
    const State initial = test::RandomState(layer_, call.inputs, 10);
    ExpectSame(Answer(layer_, call.inputs, call.dims, initial, asks),
               Answer(layer_, call.inputs, call.dims, initial, otherwise));
  };
  same(Call(layer_.recipe(), dims, DType::kFloat32, 3, true), kNarrow, {});
  const Call narrow(layer_.recipe(), dims, DType::kBFloat16, 3, true);
  if (!layer_.HasBFloat16Products()) same(narrow, kNarrow, {});
  Call mixed(layer_.recipe(), dims, DType::kBFloat16, 3, true);
  Tensor q;
  if (mixed.inputs.q.defined()) {
    mixed.inputs.q = q = Tensor::Copy(mixed.inputs.q, DType::kFloat32);
    same(mixed, kNarrow, {});
  }
  test::AlignedBytes saved(layer_.SavedBytes(dims));
  if (!saved.empty()) same(narrow, {.saved = saved, .bfloat16_products = true}, {});
  for (const std::string& target : test::Targets()) {
    const test::OnTarget on(target);
    if (!layer_.HasBFloat16Products()) same(narrow, kNarrow, {});
  }
  if (layer_.recipe().optimizer.steps > 3 || !layer_.recipe().reading.causal) return;
  dims.tokens = 1;
  same(Call(layer_.recipe(), dims, DType::kBFloat16, 3, true), kNarrow, {});
}

TEST_P(BFloat16Products, HaveTheSameBitsOnAnyThreadsAndInAnyScratch) {
  if (!HasProducts()) GTEST_SKIP() << "none";
  for (const std::int64_t heads : {1, 5}) {
    Dims dims = SomeDims();
    dims.heads = dims.key_heads = dims.value_heads = dims.query_heads = heads;
    dims.tokens = 401;
    if (std::get<1>(GetParam()) == Bf16Products::kTiles) dims.key_dim = 20;  // an emulation is slow
    const Call call(layer_.recipe(), dims, DType::kBFloat16, 3, true);
    const State initial = test::RandomState(layer_, call.inputs, 10);
    const Answers expected = Answer(layer_, call.inputs, dims, initial,
                                    {.executor = &SequentialExecutor(), .bfloat16_products = true});
    for (const int threads : {1, 2, 3}) {
      const auto executor = MakeExecutor(threads);
      // Numbers that are none, of any width.
      std::vector<std::byte> scratch(layer_.ScratchBytes(dims, threads), std::byte{0xff});
      const ttr::CallOptions run{
          .executor = executor.get(), .scratch = scratch, .bfloat16_products = true};
      ExpectSame(Answer(layer_, call.inputs, dims, initial, run), expected);
    }
  }
}

TEST_P(BFloat16Products, TakeRowsThatLieAnywhere) {
  if (!HasProducts()) GTEST_SKIP() << "none";
  const Dims dims = SomeDims();
  const Call call(layer_.recipe(), dims, DType::kBFloat16, 3, true);
  const State initial = test::RandomState(layer_, call.inputs, 10);
  const Answers expected = Answer(layer_, call.inputs, dims, initial, kNarrow);
  // One number behind a line, and rows of tokens an odd number of them apart.
  const std::int64_t bytes = dims.output_heads() * dims.value_dim * 4 + 78;
  const test::SpreadInputs apart(call.inputs, bytes, 1);
  const Tensor zeros(expected.y.dtype(), expected.y.shape());
  const test::Spread y(zeros, bytes, 1);
  State state = initial;
  layer_.Forward(apart.inputs, state, {.y = y.view, .status = {}}, kNarrow);
  EXPECT_EQ(LargestDifference(y.view, expected.y), 0);
  for (const State::Entry& entry : state.entries()) {
    EXPECT_EQ(LargestDifference(entry.view, expected.state.Get(entry.name)), 0) << entry.name;
  }
}

TEST_P(BFloat16Products, ForgetWhatIsNotFinite) {
  if (!HasProducts()) GTEST_SKIP() << "none";
  const Dims dims = SomeDims();
  const Call call(layer_.recipe(), dims, DType::kBFloat16, 5, true);
  const TensorView& gates = call.inputs.log_decay;
  // RWKV-7 erases by the memory before its decay, and so does not forget what is no number.
  const bool erases_first = layer_.recipe().optimizer.erase == Erase::kUndecayed;
  if (!gates.defined() || erases_first) GTEST_SKIP() << "no gates";
  const std::int64_t width = gates.shape().elements() / (dims.batch * dims.tokens);
  for (const std::int64_t t : {3, 70}) {
    for (std::int64_t d = 0; d < width; ++d) {
      StoreElement(gates.data(), gates.dtype(), t * width + d,
                   -std::numeric_limits<double>::infinity());
    }
  }
  const std::int64_t values = call.inputs.v.shape().elements() / (dims.batch * dims.tokens);
  StoreElement(call.inputs.v.data(), DType::kBFloat16, 69 * values,
               std::numeric_limits<double>::quiet_NaN());
  const Answers narrow = Answer(layer_, call.inputs, dims, {}, kNarrow);
  const Answers wide = Answer(layer_, call.inputs, dims, {}, {});
  const std::int64_t answers = dims.output_heads() * dims.value_dim;
  for (std::int64_t i = 0; i < narrow.y.elements(); ++i) {
    const float number = narrow.y.as<float>()[static_cast<std::size_t>(i)];
    const float other = wide.y.as<float>()[static_cast<std::size_t>(i)];
    ASSERT_EQ(std::isnan(number), std::isnan(other)) << i / answers << ", " << i % answers;
  }
}

// Small whole numbers are not rounded, and so every product shows whether it is the right one.
// Keys are units, or a memory that erases would hold larger numbers with every token.
class ExactFactors : public testing::TestWithParam<Bf16Products> {
 protected:
  void SetUp() override {
    if (!Has(GetParam()) || !TargetHasProducts()) GTEST_SKIP() << "none";
  }

  void ExpectExactProducts(const std::string& recipe, const Dims& dims) {
    SCOPED_TRACE(testing::Message() << recipe << " " << dims.key_dim << " " << dims.value_dim << " "
                                    << dims.tokens << " " << dims.query_heads);
    const Layer layer(ParseRecipe(recipe));
    ASSERT_TRUE(layer.HasBFloat16Products());
    const auto numbers = [&](std::int64_t heads, std::int64_t dim) {
      Tensor x(DType::kBFloat16, {1, dims.tokens, heads, dim});
      for (std::int64_t i = 0; i < x.elements(); ++i) {
        StoreElement(x.data(), x.dtype(), i, static_cast<double>(random_.Bits() % 5) - 2);
      }
      return x;
    };
    const Tensor q = numbers(dims.query_heads, dims.key_dim), v = numbers(2, dims.value_dim);
    const Tensor k(DType::kBFloat16, {1, dims.tokens, 2, dims.key_dim});
    const Tensor steps(DType::kFloat32, {1, dims.tokens, 2});
    for (std::int64_t i = 0; i < steps.elements(); ++i) {
      const auto channel = static_cast<std::int64_t>(random_.Bits() % dims.key_dim);
      StoreElement(k.data(), k.dtype(), i * dims.key_dim + channel, random_.Bits() % 2 ? 1 : -1);
      StoreElement(steps.data(), steps.dtype(), i, 1);
    }
    Inputs inputs{.q = q, .k = k, .v = v};
    if (layer.recipe().optimizer.solver == Solver::kSgd) inputs.step = steps;
    ExpectSame(Answer(layer, inputs, dims, {}, kNarrow), Answer(layer, inputs, dims, {}, {}));
  }

  test::WithBf16Products with_{GetParam()};
  CounterRandom random_{3};
};

TEST_P(ExactFactors, HaveExactProducts) {
  for (const char* recipe : {"linear_attention", "deltanet"}) {
    for (const std::int64_t key_dim : {1, 16, 33, 64, 100, 256}) {
      for (const std::int64_t value_dim : {1, 16, 40, 256}) {
        for (const std::int64_t tokens : {4, 8, 15, 31}) {
          ExpectExactProducts(recipe, test::TwoMemories(tokens, key_dim, value_dim));
        }
      }
    }
    for (const std::int64_t query_heads : {4, 6, 10}) {
      Dims dims = test::TwoMemories(19, 33, 40);
      dims.query_heads = query_heads;
      ExpectExactProducts(recipe, dims);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, ExactFactors,
                         testing::Values(Bf16Products::kPairs, Bf16Products::kTiles),
                         [](const testing::TestParamInfo<Bf16Products>& at) {
                           return std::string(simd::NameOf(at.param));
                         });

// Layers by tiles are layers by those instructions.
TEST(MatrixTiles, AreThoseThatWereAskedFor) {
  if (!test::HasMatrixTiles()) GTEST_SKIP() << "no AVX512-BF16";
  if (simd::TheBf16Processor().may_use_tiles) GTEST_SKIP() << "the processor's own are not counted";
  const Call call(ParseRecipe("deltanet"), test::TwoMemories(8, 64, 32), DType::kBFloat16, 3, true);
  const Layer layer(call.recipe);
  const auto count = [&](Bf16Products products) -> long {
    const test::WithBf16Products with(products);
    if (!TargetHasProducts()) return -1;
    const long before = test::EmulatedTileInstructions();
    Answer(layer, call.inputs, call.dims, {}, kNarrow);
    return test::EmulatedTileInstructions() - before;
  };
  const long none = count(Bf16Products::kPairs);
  if (none < 0) GTEST_SKIP() << "another target";
  EXPECT_EQ(none, 0);
  // Either memory takes: shapes, two registers zeroed, twice 32 rows (three registers loaded, two
  // products), two registers stored, and no shapes again.
  EXPECT_EQ(count(Bf16Products::kTiles), 2 * (1 + 2 + 2 * (3 + 2) + 2 + 1));
}

}  // namespace
}  // namespace ttr
