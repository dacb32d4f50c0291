// Gradients from what a forward pass saved: CallOptions::saved, Layer::SavedBytes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "tests/support/calls.h"
#include "tests/support/engines.h"
#include "tests/support/gradients.h"
#include "tests/support/recipes.h"
#include "tests/support/targets.h"
#include "ttr/error.h"
#include "ttr/executor.h"
#include "ttr/layer.h"
#include "ttr/target.h"
#include "ttr/util/random.h"

namespace ttr {
namespace {

using test::Call;
using test::Differentiate;
using test::ExpectClose;
using test::Gradients;
using test::Normal;
using test::RandomState;

// Memory for what a call saves, full of what it must not depend on.
test::AlignedBytes Memory(const Layer& layer, const Dims& dims, DType dtype) {
  return test::AlignedBytes(layer.SavedBytes(dims, dtype), std::byte{0xff});
}

// Runs the layer forwards from `initial`, which stays as it is.
Tensor Answers(const Layer& layer, const Inputs& inputs, const State& initial, const Dims& dims,
               DType dtype, const CallOptions& options) {
  State state = initial;
  Tensor y(dtype, {dims.batch, dims.tokens, dims.output_heads(), dims.value_dim});
  layer.Forward(inputs, state, {.y = y.view(), .status = {}}, options);
  return y;
}

// Makes every number positive: a sum of weights of both signs that comes near 0 has slopes that no
// difference quotient follows.
void MakePositive(const TensorView& view) {
  if (!view.defined()) return;
  for (std::int64_t i = 0; i < view.shape().elements(); ++i) {
    const double x = LoadElement(view.data(), view.dtype(), i);
    StoreElement(view.data(), view.dtype(), i, std::abs(x) + 0.1);
  }
}

Dims SomeDims(const Recipe& recipe, std::int64_t tokens, std::int64_t heads) {
  Dims dims = test::SmallDims(recipe);
  dims.batch = 1;
  dims.tokens = tokens;
  dims.heads = dims.key_heads = dims.value_heads = dims.query_heads = heads;
  return dims;
}

Tensor OutputGradient(const Dims& dims, DType dtype) {
  return Normal(dtype, {dims.batch, dims.tokens, dims.output_heads(), dims.value_dim}, 30);
}

class SavedGradient : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const std::string_view engine = layer_.plan().engine;
    if (engine != "fast_weights" && engine != "scan") GTEST_SKIP() << "another engine";
  }

  Layer layer_{ParseRecipe(GetParam())};
};

INSTANTIATE_TEST_SUITE_P(All, SavedGradient, testing::ValuesIn(test::EngineRecipes()),
                         test::CaseName);
INSTANTIATE_TEST_SUITE_P(Scans, SavedGradient,
                         testing::Values("mamba{read: before, output_norm: rms}",
                                         "lru{read: before, output_norm: l2}",
                                         "decay(scalar) x importance(input) | constant | gradient",
                                         "decay(matrix) x importance(input) | linear | gradient"),
                         [](const auto& one) { return "case" + std::to_string(one.index); });

// Answers are kept of every row that is read, the last of a token or its first.
INSTANTIATE_TEST_SUITE_P(Steps, SavedGradient,
                         testing::Values("delta_product{output_norm: rms}",
                                         "delta_product{steps: 3, output_norm: rms, read: before}"),
                         [](const auto& one) { return "case" + std::to_string(one.index); });

// Vectors have no heads of queries or values.
bool IsVector(const Recipe& recipe) { return recipe.function.kind == FunctionClass::kConstant; }

// sqrt(1 - g^2) is too steep near g = 1 for differences.
void Steepen(const Layer& layer, const TensorView& log_decay) {
  if (layer.plan().engine != "scan" || !log_decay.defined()) return;
  double* const numbers = log_decay.as<double>();
  for (std::int64_t i = 0; i < log_decay.shape().elements(); ++i) numbers[i] -= 0.3;
}

// One block and a little more, some of it forgotten in the middle of a chunk.
TEST_P(SavedGradient, IsThatOfTheDefinition) {
  constexpr double kForget = -std::numeric_limits<double>::infinity();
  const Recipe& recipe = layer_.recipe();
  for (const bool forgets : {false, true}) {
    const Dims dims = SomeDims(recipe, recipe.optimizer.steps > 1 ? 33 : 66, 1);
    const Call call(recipe, dims, DType::kFloat64, 3, true);
    const TensorView& gates = call.inputs.log_decay;
    Steepen(layer_, gates);
    if (forgets && !gates.defined()) continue;
    if (forgets) {
      const std::int64_t width = gates.shape().elements() / dims.tokens;
      for (const std::int64_t t : {3, 20}) {
        for (std::int64_t d = 0; d < width; ++d) gates.as<double>()[t * width + d] = kForget;
      }
      if (width > 1) gates.as<double>()[30 * width] = kForget;  // one channel of a token
    }
    const State initial = RandomState(layer_, call.inputs, 10);
    if (recipe.reading.normalise_sum == NormaliseSum::kSum) {
      MakePositive(call.inputs.q);
      MakePositive(call.inputs.k);
      MakePositive(initial.Get("state.n"));
    }
    const State dstate = RandomState(layer_, call.inputs, 20);
    const Tensor dy = OutputGradient(dims, DType::kFloat64);
    test::AlignedBytes saved = Memory(layer_, dims, DType::kFloat64);
    const CallOptions run{.saved = saved};
    Answers(layer_, call.inputs, initial, dims, DType::kFloat64, run);
    const Gradients got = Differentiate(layer_, call.inputs, initial, dy, dstate, run);
    const Layer defined(recipe, kDefinition);
    ExpectClose(got, Differentiate(defined, call.inputs, initial, dy, dstate), 1e-7);
  }
}

// Several blocks, packed sequences of all lengths (none, a few, whole blocks), shared heads; rows
// of whole cache lines, which are taken where they lie.
TEST_P(SavedGradient, IsThatOfWhatIsComputedAnew) {
  struct Case {
    bool packed, lines;
  };
  for (const auto& [packed, lines] : {Case{false, false}, Case{true, false}, Case{false, true}}) {
    Dims dims = SomeDims(layer_.recipe(), 215, 4);
    if (!packed) dims.batch = 2;
    if (lines) {
      dims.key_dim = dims.value_dim = 16;
    } else if (!IsVector(layer_.recipe())) {
      dims.query_heads = 8;
      dims.value_heads = 2;
    }
    const std::vector<std::int64_t> bounds = {0, 2, 2, 66, 85, 213, 215};
    if (packed) dims.sequences = static_cast<std::int64_t>(bounds.size()) - 1;
    const Call call(layer_.recipe(), dims, DType::kFloat64, 4, true);
    Inputs inputs = call.inputs;
    if (packed) {
      inputs.cu_seqlens = TensorView::Of(bounds.data(), {static_cast<std::int64_t>(bounds.size())});
    }
    const State initial = RandomState(layer_, inputs, 10);
    const State dstate = RandomState(layer_, inputs, 20);
    const Tensor dy = OutputGradient(dims, DType::kFloat64);
    test::AlignedBytes saved = Memory(layer_, dims, DType::kFloat64);
    const CallOptions run{.saved = saved};
    const Tensor y = Answers(layer_, inputs, initial, dims, DType::kFloat64, run);
    const Tensor plain = Answers(layer_, inputs, initial, dims, DType::kFloat64, {});
    EXPECT_EQ(test::LargestDifference(y, plain), 0);
    const Gradients expected = Differentiate(layer_, inputs, initial, dy, dstate);
    ExpectClose(Differentiate(layer_, inputs, initial, dy, dstate, run), expected, 1e-9);
    // What was kept is still there; in scratch of the caller's.
    std::vector<std::byte> scratch(layer_.BackwardScratchBytes(dims, 3), std::byte{0xff});
    const auto three = MakeExecutor(3);
    ttr::CallOptions given{.executor = three.get(), .scratch = scratch, .saved = saved};
    ExpectClose(Differentiate(layer_, inputs, initial, dy, dstate, given), expected, 1e-9);
    given.saved = {};
    ExpectClose(Differentiate(layer_, inputs, initial, dy, dstate, given), expected, 1e-9);
  }
}

// Where nothing is given, the forward kernel saves the same for one memory at a time; in both
// types, of a few tokens too, where Forward saves nothing.
TEST_P(SavedGradient, HasTheBitsOfWhatIsComputedAnew) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
    for (const std::int64_t tokens : {2, 64, 150}) {
      Dims dims = SomeDims(layer_.recipe(), tokens, 4);
      dims.batch = 2;
      if (!IsVector(layer_.recipe())) {
        dims.query_heads = 8;
        dims.value_heads = 2;
      }
      const Call call(layer_.recipe(), dims, dtype, 6, true);
      const State initial = RandomState(layer_, call.inputs, 10);
      const State dstate = RandomState(layer_, call.inputs, 20);
      const Tensor dy = OutputGradient(dims, dtype);
      test::AlignedBytes saved = Memory(layer_, dims, dtype);
      const CallOptions run{.saved = saved};
      Answers(layer_, call.inputs, initial, dims, dtype, run);
      const Gradients given = Differentiate(layer_, call.inputs, initial, dy, dstate, run, dtype);
      ExpectClose(given, Differentiate(layer_, call.inputs, initial, dy, dstate, {}, dtype), 0);
    }
  }
}

// It holds no address: a copy of it elsewhere serves as well.
TEST_P(SavedGradient, MayBeMoved) {
  const Dims dims = SomeDims(layer_.recipe(), 140, 2);
  const Call call(layer_.recipe(), dims, DType::kFloat32, 5, true);
  const Tensor dy = OutputGradient(dims, DType::kFloat32);
  test::AlignedBytes saved = Memory(layer_, dims, DType::kFloat32);
  Answers(layer_, call.inputs, {}, dims, DType::kFloat32, {.saved = saved});
  const Gradients expected = Differentiate(layer_, call.inputs, {}, dy, {}, {.saved = saved});
  test::AlignedBytes moved = saved;
  std::ranges::fill(saved, std::byte{0xff});
  ExpectClose(Differentiate(layer_, call.inputs, {}, dy, {}, {.saved = moved}), expected, 0);
}

TEST_P(SavedGradient, IsTheSameInFloat32OnEveryTarget) {
  const Dims dims = SomeDims(layer_.recipe(), 140, 2);
  const Call narrow(layer_.recipe(), dims, DType::kFloat32, 5, true);
  const Tensor dy = OutputGradient(dims, DType::kFloat32);
  // The inputs in double precision.
  Inputs wide = narrow.inputs;
  std::vector<Tensor> copies;
  for (const InputField& field : InputFields()) {
    const TensorView& input = narrow.inputs.*field.view;
    if (!input.defined() || !IsFloating(input.dtype())) continue;
    copies.push_back(Tensor::Copy(input, DType::kFloat64));
    wide.*field.view = copies.back().view();
  }
  const Tensor wide_dy = Tensor::Copy(dy, DType::kFloat64);
  const Gradients expected = Differentiate(layer_, wide, {}, wide_dy, {});
  for (const std::string& target : test::Targets()) {
    const test::OnTarget on(target);
    test::AlignedBytes saved = Memory(layer_, dims, DType::kFloat32);
    const CallOptions run{.saved = saved};
    Answers(layer_, narrow.inputs, {}, dims, DType::kFloat32, run);
    ExpectClose(Differentiate(layer_, narrow.inputs, {}, dy, {}, run), expected, 2e-3);
  }
}

// Shapes as they come: strips, chunks and blocks that are not full, on every target.
TEST_P(SavedGradient, IsThatOfWhatIsComputedAnewForAnyShape) {
  // A sequence of shapes for every recipe.
  const std::string name = GetParam();
  CounterRandom random(std::accumulate(name.begin(), name.end(), std::uint64_t{0}));
  auto draw = [&](std::int64_t most) { return 1 + random.Below(most); };
  const bool plain = layer_.recipe().function.features == FeatureMap::kNone;
  for (const std::string& target : test::Targets()) {
    const test::OnTarget on(target);
    Dims dims = SomeDims(layer_.recipe(), draw(200), draw(3));
    dims.value_dim = draw(50);
    const std::int64_t keys = draw(50);
    if (plain && !IsVector(layer_.recipe())) dims.key_dim = keys;
    SCOPED_TRACE(target + ": " + std::to_string(dims.tokens) + " tokens, " +
                 std::to_string(dims.key_dim) + " x " + std::to_string(dims.value_dim));
    const Call call(layer_.recipe(), dims, DType::kFloat64, 8, true);
    const State initial = RandomState(layer_, call.inputs, 10);
    const State dstate = RandomState(layer_, call.inputs, 20);
    const Tensor dy = OutputGradient(dims, DType::kFloat64);
    test::AlignedBytes saved = Memory(layer_, dims, DType::kFloat64);
    const CallOptions run{.saved = saved};
    Answers(layer_, call.inputs, initial, dims, DType::kFloat64, run);
    ExpectClose(Differentiate(layer_, call.inputs, initial, dy, dstate, run),
                Differentiate(layer_, call.inputs, initial, dy, dstate), 1e-8);
  }
}

// Fewer memories than threads are cut by columns.
TEST_P(SavedGradient, HasTheSameBitsForAnyNumberOfThreads) {
  Dims dims = SomeDims(layer_.recipe(), 130, 1);
  dims.key_dim = dims.value_dim = 72;
  const Call call(layer_.recipe(), dims, DType::kFloat32, 4, true);
  const Tensor dy = OutputGradient(dims, DType::kFloat32);
  const auto three = MakeExecutor(3);
  test::AlignedBytes one = Memory(layer_, dims, DType::kFloat32), many = one;
  const ttr::CallOptions sequential{.executor = &SequentialExecutor(), .saved = one};
  const ttr::CallOptions parallel{.executor = three.get(), .saved = many};
  Answers(layer_, call.inputs, {}, dims, DType::kFloat32, sequential);
  Answers(layer_, call.inputs, {}, dims, DType::kFloat32, parallel);
  ExpectClose(Differentiate(layer_, call.inputs, {}, dy, {}, sequential),
              Differentiate(layer_, call.inputs, {}, dy, {}, parallel), 0);
  const ttr::CallOptions mixed{.executor = three.get(), .saved = one};
  ExpectClose(Differentiate(layer_, call.inputs, {}, dy, {}, mixed),
              Differentiate(layer_, call.inputs, {}, dy, {}, parallel), 0);
}

template <class Function>
std::string MessageOf(const Function& function) {
  try {
    function();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

class Saved : public testing::Test {
 protected:
  Tensor Forward(const ttr::CallOptions& run) const {
    return Answers(layer_, call_.inputs, {}, dims_, DType::kFloat32, run);
  }
  Gradients Backward(const ttr::CallOptions& run) const {
    return Differentiate(layer_, call_.inputs, {}, dy_, {}, run);
  }

  Layer layer_{ParseRecipe("gated_deltanet")};
  Dims dims_ = SomeDims(layer_.recipe(), 70, 2);
  Call call_{layer_.recipe(), dims_, DType::kFloat32, 4, true};
  Tensor dy_ = OutputGradient(dims_, DType::kFloat32);
  test::AlignedBytes saved_ = Memory(layer_, dims_, DType::kFloat32);
};

TEST_F(Saved, MustHoldItsBytes) {
  const std::size_t bytes = saved_.size();
  ASSERT_GT(bytes, 0u);
  Forward({.saved = saved_});
  const ttr::CallOptions small{.saved = std::span(saved_).first(bytes - 1)};
  const std::string numbers =
      "at least " + std::to_string(bytes) + " bytes but is " + std::to_string(bytes - 1);
  EXPECT_EQ(MessageOf([&] { Forward(small); }), "[Forward] saved must be " + numbers);
  EXPECT_EQ(MessageOf([&] { Backward(small); }), "[Backward] saved must be " + numbers);
}

TEST_F(Saved, MustBeWhatForwardLeft) {
  const std::string expected =
      "[Backward] saved must be what Forward left there for the same inputs but is something else";
  EXPECT_EQ(MessageOf([&] { Backward({.saved = saved_}); }), expected);
  // What another call saved, and what lies at another place of this one's.
  const Call shorter(layer_.recipe(), SomeDims(layer_.recipe(), 69, 2), DType::kFloat32, 4, true);
  Answers(layer_, shorter.inputs, {}, shorter.dims, DType::kFloat32, {.saved = saved_});
  EXPECT_EQ(MessageOf([&] { Backward({.saved = saved_}); }), expected);
  Forward({.saved = saved_});
  EXPECT_EQ(MessageOf([&] { Backward({.saved = saved_}); }), "");
}

// Calls of the same sizes, which save as many bytes.
TEST_F(Saved, IsOfItsRecipeItsPackingItsDtypesAndItsTarget) {
  const std::string expected =
      "[Backward] saved must be what Forward left there for the same inputs but is something else";
  const Layer softmax(ParseRecipe("softmax")), gaussian(ParseRecipe("nadaraya_watson")),
      other(ParseRecipe("softmax{scale: 2}"));
  const Dims dims = SomeDims(softmax.recipe(), 9, 2);
  const Call call(softmax.recipe(), dims, DType::kFloat32, 6);
  const Tensor dy = OutputGradient(dims, DType::kFloat32);
  test::AlignedBytes saved = Memory(softmax, dims, DType::kFloat32);
  const CallOptions run{.saved = saved};
  const auto forward = [&](const Layer& layer, const Inputs& inputs) {
    Answers(layer, inputs, {}, dims, DType::kFloat32, run);
  };
  const auto backward = [&](const Layer& layer, const Inputs& inputs) {
    return MessageOf([&] { Differentiate(layer, inputs, {}, dy, {}, run); });
  };
  forward(softmax, call.inputs);
  EXPECT_EQ(backward(softmax, call.inputs), "");
  EXPECT_EQ(backward(gaussian, call.inputs), expected);
  EXPECT_EQ(backward(other, call.inputs), expected);
  const std::vector<std::int64_t> one{0, 4, 9}, two{0, 5, 9};
  Inputs packed = call.inputs, differently = call.inputs;
  packed.cu_seqlens = TensorView::Of(one.data(), {3});
  differently.cu_seqlens = TensorView::Of(two.data(), {3});
  for (const Inputs& inputs : {packed, differently}) {
    EXPECT_EQ(backward(softmax, inputs), expected);
  }
  forward(softmax, packed);
  EXPECT_EQ(backward(softmax, packed), "");
  EXPECT_EQ(backward(softmax, differently), expected);
  Inputs narrow = packed;
  const Tensor q = Tensor::Copy(packed.q, DType::kBFloat16);
  narrow.q = q;
  EXPECT_EQ(backward(softmax, narrow), expected);
  for (const std::string& target : SupportedTargets()) {
    if (target == ChosenTarget()) continue;
    const test::OnTarget on(target);
    EXPECT_EQ(backward(softmax, packed), expected) << target;
  }
}

TEST_F(Saved, IsOfCallsThatWriteAndRead) {
  State state;
  const CallOptions run{.saved = saved_};
  const std::string rest = "saved must be empty but is " + std::to_string(saved_.size()) + " bytes";
  EXPECT_EQ(MessageOf([&] { layer_.Memorize(call_.inputs, state, run); }), "[Memorize] " + rest);
  layer_.Memorize(call_.inputs, state);
  Tensor y(DType::kFloat32, dy_.shape());
  const Inputs queries{.q = call_.inputs.q};
  EXPECT_EQ(MessageOf([&] { layer_.Retrieve(queries, state, {.y = y.view()}, run); }),
            "[Retrieve] " + rest);
}

TEST_F(Saved, IsNothingOfOtherEngines) {
  for (const char* recipe : {"rls", "local_linear", "softmax{output_norm: l2}"}) {
    EXPECT_EQ(Layer(ParseRecipe(recipe)).SavedBytes(dims_), 0u) << recipe;
  }
  EXPECT_GE(layer_.SavedBytes(dims_, DType::kFloat64), 2 * saved_.size() - 256);
}

}  // namespace
}  // namespace ttr
