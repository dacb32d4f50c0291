// What a layer says that it takes is enough: scratch, saved memory and that of decoders of exactly
// so many bytes, before a page that nobody may touch, whatever the dtypes of a state and however
// its sequences are packed, empty ones and none at all among them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/support/calls.h"
#include "tests/support/gradients.h"
#include "tests/support/guarded.h"
#include "tests/support/hostile.h"
#include "tests/support/recipes.h"
#include "ttr/decoder.h"
#include "ttr/error.h"
#include "ttr/executor.h"
#include "ttr/layer.h"

namespace ttr {
namespace {

using test::Call;
using test::Guarded;
using test::LargestDifference;
using test::Memory;

// Networks begin as they do: others are soon beyond all numbers.
State SomeState(const Layer& layer, const Inputs& inputs, std::uint64_t seed) {
  if (layer.plan().engine == "network") return layer.InitialState(inputs);
  return test::RandomState(layer, inputs, seed);
}

// The layer's own start, or a drawn state; each entry in a dtype of its own.
State DrawnState(const Layer& layer, const Inputs& inputs, Memory& draws) {
  State state;
  if (!layer.recipe().reading.causal || draws.OneIn(4)) return state;
  const State drawn = SomeState(layer, inputs, static_cast<std::uint64_t>(draws.Below(99)));
  for (const State::Entry& entry : drawn.entries()) {
    const StateSpec& spec =
        *std::ranges::find(layer.requirements().state, entry.name, &StateSpec::name);
    constexpr DType kAll[] = {DType::kFloat32, DType::kFloat64, DType::kBFloat16};
    const DType dtype =
        spec.counts() ? DType::kInt64 : kAll[draws.Below(spec.role == EntryRole::kPairs ? 3 : 2)];
    state.Set(entry.name, Tensor::Copy(entry.view, dtype));
  }
  return state;
}

std::string DTypesOf(const State& state) {
  std::string text;
  for (const State::Entry& entry : state.entries()) {
    text += " " + entry.name + " " + std::string(Name(entry.view.dtype()));
  }
  return text;
}

// A call of drawn sizes, packing and dtypes.
struct Drawn {
  Drawn(const Layer& layer, Memory& draws)
      : dims(DimsOf(layer.recipe(), draws)),
        dtype(kAll[draws.Below(3)]),
        call(layer.recipe(), dims, dtype, static_cast<std::uint64_t>(draws.Below(1000)),
             draws.OneIn(2)),
        inputs(call.inputs) {
    if (layer.recipe().reading.causal && dims.batch == 1 && draws.OneIn(2)) Pack(draws);
    dims = CheckInputs("drawn", layer.requirements(), inputs);
    state = DrawnState(layer, inputs, draws);
  }

  static Dims DimsOf(const Recipe& recipe, Memory& draws) {
    Dims dims = test::SmallDims(recipe);
    constexpr std::int64_t kTokens[] = {0, 1, 2, 3, 5, 8, 31, 64, 70, 138};
    const bool cubic = recipe.function.kind == FunctionClass::kPolynomial;
    dims.tokens = kTokens[draws.Below(cubic ? 7 : 10)];
    dims.batch = draws.OneIn(6) ? 0 : 1 + draws.Below(2);
    if (draws.OneIn(2)) dims.query_heads = dims.key_heads = dims.heads;
    return dims;
  }

  // Sequences of drawn lengths, the empty ones too.
  void Pack(Memory& draws) {
    bounds = {0, dims.tokens};
    for (std::int64_t i = draws.Below(4); i > 0; --i)
      bounds.push_back(draws.Below(dims.tokens + 1));
    if (draws.OneIn(2)) bounds.push_back(dims.tokens);
    std::ranges::sort(bounds);
    inputs.cu_seqlens = TensorView::Of(bounds.data(), {static_cast<std::int64_t>(bounds.size())});
  }

  std::string Text() const {
    std::string text = std::string(Name(dtype)) + ", B = " + std::to_string(dims.batch) +
                       ", T = " + std::to_string(dims.tokens) + DTypesOf(state) + ", packed";
    for (const std::int64_t bound : bounds) text += " " + std::to_string(bound);
    return text;
  }

  static constexpr DType kAll[] = {DType::kFloat32, DType::kFloat64, DType::kBFloat16};
  Dims dims;
  DType dtype;
  Call call;
  Inputs inputs;
  std::vector<std::int64_t> bounds;
  State state;
};

class StatedSizes : public testing::TestWithParam<std::string> {
 protected:
  Layer layer{ParseRecipe(GetParam())};
};
INSTANTIATE_TEST_SUITE_P(Recipes, StatedSizes, testing::ValuesIn(test::LayerRecipes()),
                         test::CaseName);

TEST_P(StatedSizes, AreEnoughForwardsAndBackwards) {
  const auto two = MakeExecutor(2);
  for (int draw = 0; draw < test::Draws(24); ++draw) {
    Memory draws(static_cast<std::uint64_t>(draw) + 1);
    Drawn drawn(layer, draws);
    SCOPED_TRACE("draw " + std::to_string(draw) + ": " + drawn.Text());
    Executor& executor = draws.OneIn(2) ? *two : SequentialExecutor();
    const Guarded scratch(layer.ScratchBytes(drawn.dims, executor.threads()));
    const Guarded saved(layer.SavedBytes(drawn.dims, ArithmeticType(drawn.inputs, drawn.state)),
                        64);
    const CallOptions plain{.executor = &executor, .scratch = scratch.bytes()};
    CallOptions saving = plain;
    saving.saved = saved.bytes();
    const Tensor y(drawn.dtype, OutputShape(drawn.dims)), again(drawn.dtype, y.shape());
    State end = drawn.state, same = drawn.state;
    layer.Forward(drawn.inputs, end, {.y = y}, saving);
    layer.Forward(drawn.inputs, same, {.y = again}, plain);
    EXPECT_TRUE(scratch.Whole());
    EXPECT_TRUE(saved.Whole());
    if (!layer.HasGradients(drawn.dims)) continue;

    const Guarded back(layer.BackwardScratchBytes(drawn.dims, executor.threads()));
    const Tensor dy = test::Normal(drawn.dtype, y.shape(), 5);
    CallOptions options{.executor = &executor, .scratch = back.bytes()};
    const test::Gradients anew =
        test::Differentiate(layer, drawn.inputs, drawn.state, dy, {}, options);
    options.saved = saved.bytes();
    const test::Gradients kept =
        test::Differentiate(layer, drawn.inputs, drawn.state, dy, {}, options);
    EXPECT_TRUE(back.Whole());
    EXPECT_TRUE(saved.Whole());
    const bool wide = ArithmeticType(drawn.inputs, drawn.state) == DType::kFloat64;
    test::ExpectClose(kept, anew, wide ? 1e-9 : 2e-3);
  }
}

TEST_P(StatedSizes, AreEnoughForDecoders) {
  if (!layer.recipe().reading.causal) GTEST_SKIP() << "has no memory to go on from";
  for (int draw = 0; draw < test::Draws(8); ++draw) {
    Memory draws(static_cast<std::uint64_t>(draw) + 31);
    Dims dims = test::SmallDims(layer.recipe());
    const DType dtype = Drawn::kAll[draws.Below(3)];
    const Call call(layer.recipe(), dims, dtype, 7);
    dims = CheckInputs("drawn", layer.requirements(), test::TokensOf(call, 0, 1));
    const DType carried = draws.OneIn(2) ? DType::kFloat64 : DType::kFloat32;
    SCOPED_TRACE(std::string(Name(dtype)) + " in " + std::string(Name(carried)));
    const Guarded scratch(layer.ScratchBytes(dims, 1));
    const Guarded memory(Decoder::Bytes(layer, dims, carried), 64);
    std::ranges::fill(memory.bytes(), std::byte{0});
    const CallOptions options{.executor = &SequentialExecutor(), .scratch = scratch.bytes()};
    Decoder decoder(layer, dims, carried, memory.bytes());
    const State state = DrawnState(layer, test::TokensOf(call, 0, 1), draws);
    if (!state.empty()) decoder.Start(state);
    State single = state;
    const Tensor y(dtype, OutputShape(dims));
    for (std::int64_t t = 0; t < call.dims.tokens; ++t) {
      decoder.Step(test::TokensOf(call, t, 1), {.y = y}, options);
      layer.Step(test::TokensOf(call, t, 1), single, {.y = y}, options);
    }
    for (const State::Entry& entry : decoder.state().entries()) {
      if (!state.empty() || !IsFloating(entry.view.dtype())) continue;
      EXPECT_EQ(entry.view.dtype(), carried) << entry.name;
    }
    EXPECT_TRUE(scratch.Whole());
    EXPECT_TRUE(memory.Whole());
  }
}

// As large as what counts pairs of the state and of the call alike, however these are divided.
TEST(StatedSizesOfKernelRidge, AreEnoughWhereverTheStateEnds) {
  for (const char* recipe :
       {"kernel_ridge{ridge: 0.1}", "kernel_ridge{ridge: 0.1, causal: false}"}) {
    const Layer layer(ParseRecipe(recipe));
    for (std::int64_t all = 1; all <= 300; all = all * 9 / 8 + 1) {
      for (const std::int64_t held : {std::int64_t{0}, all / 20, all / 2}) {
        if (held > 0 && !layer.recipe().reading.causal) continue;
        SCOPED_TRACE(std::to_string(held) + " of " + std::to_string(all));
        Dims dims = test::TwoMemories(all, 3, 2);
        dims.query_heads = 4;
        const Call call(layer.recipe(), dims, DType::kFloat64, 3);
        const Guarded scratch(layer.ScratchBytes(dims, 1));
        const Guarded back(layer.BackwardScratchBytes(dims, 1));
        State state;
        CallOptions options{.executor = &SequentialExecutor(), .scratch = scratch.bytes()};
        if (held > 0) layer.Memorize(test::TokensOf(call, 0, held), state, options);
        const Inputs rest = test::TokensOf(call, held, all - held);
        const Tensor y(DType::kFloat64, {1, all - held, 4, 2});
        State end = state;
        layer.Forward(rest, end, {.y = y}, options);
        options.scratch = back.bytes();
        test::Differentiate(layer, rest, state, y, {}, options);
      }
    }
  }
}

// Who sizes scratch by a call alone does not know what its state holds.
TEST(StatedSizesOfKernelRidge, GoOnWhereTheyDoNotCountTheState) {
  const Layer layer(ParseRecipe("kernel_ridge{ridge: 0.1}"));
  const Call call(layer.recipe(), test::TwoMemories(104, 3, 2), DType::kFloat64, 4);
  const test::Result whole = RunWhole(layer, call);
  Dims few = call.dims;
  few.tokens = 4;
  const Guarded scratch(layer.ScratchBytes(few, 1)), back(layer.BackwardScratchBytes(few, 1));
  CallOptions options{.executor = &SequentialExecutor(), .scratch = scratch.bytes()};
  State state;
  layer.Memorize(test::TokensOf(call, 0, 100), state);
  const Inputs rest = test::TokensOf(call, 100, 4);
  const Tensor y(DType::kFloat64, {1, 4, 2, 2});
  State end = state;
  layer.Forward(rest, end, {.y = y}, options);
  EXPECT_LE(LargestDifference(y, whole.y.view().Slice(1, 100, 4)), 1e-10);
  const Tensor dy = test::Normal(DType::kFloat64, y.shape(), 6);
  const test::Gradients expected = test::Differentiate(layer, rest, state, dy, {});
  options.scratch = back.bytes();
  test::ExpectClose(test::Differentiate(layer, rest, state, dy, {}, options), expected, 1e-12);

  few.tokens = 1;
  const Guarded one(layer.ScratchBytes(few, 1));
  options.scratch = one.bytes();
  Decoder decoder(layer, few, DType::kFloat64);
  const Tensor token(DType::kFloat64, {1, 1, 2, 2});
  for (std::int64_t t = 0; t < 104; ++t) {
    decoder.Step(test::TokensOf(call, t, 1), {.y = token}, options);
    EXPECT_LE(LargestDifference(token, whole.y.view().Slice(1, t, 1)), 1e-10) << t;
  }
  options.scratch = options.scratch.first(one.bytes().size() / 2);
  EXPECT_THROW(decoder.Step(test::TokensOf(call, 0, 1), {.y = token}, options), Error);
}

// [N, H, D, D]: as a gradient by what is symmetric is.
void Symmetrise(const TensorView& x) {
  for (std::int64_t i = 0; i < x.size(0) * x.size(1); ++i) {
    const std::int64_t n = i / x.size(1), h = i % x.size(1);
    for (std::int64_t row = 0; row < x.size(2); ++row) {
      for (std::int64_t column = 0; column < row; ++column) {
        x.Set({n, h, row, column}, x.At({n, h, column, row}));
      }
    }
  }
}

// A shape of so many pairs more.
Shape Longer(const Shape& shape, std::int64_t pairs) {
  if (shape.rank() == 4) return {shape[0], shape[1] + pairs, shape[2], shape[3]};
  return {shape[0], shape[1] + pairs, shape[2]};
}

// Those of pairs that are held; rows behind them have none.
Tensor HeldRows(const Recipe& recipe, const State& state, const State::Entry& entry) {
  State one;
  one.Set(entry.name, Tensor::Copy(entry.view, DType::kFloat64));
  const TensorView lengths = state.Get("state.length");
  if (lengths.defined()) one.Set("state.length", Tensor::Copy(lengths));
  test::TrimPairs(recipe, one);
  return Tensor::Copy(one.Get(entry.name));
}

// What has no tokens leaves its state as it is, and so its gradient; `sequences` of `bounds`, or of
// a batch without any.
void ExpectGradientsToPass(const Layer& layer, const Dims& dims,
                           const std::vector<std::int64_t>& bounds,
                           const std::vector<std::int64_t>& sequences) {
  const Call call(layer.recipe(), dims, DType::kFloat64, 2, true);
  Inputs inputs = call.inputs;
  if (!bounds.empty()) {
    inputs.cu_seqlens = TensorView::Of(bounds.data(), {static_cast<std::int64_t>(bounds.size())});
  }
  const Dims made = CheckInputs("none", layer.requirements(), inputs);
  const State initial = layer.recipe().reading.causal ? SomeState(layer, inputs, 3) : State();
  State dstate;
  for (const State::Entry& entry : initial.entries()) {
    if (!IsFloating(entry.view.dtype())) continue;
    // Rows of more pairs than there were.
    Shape shape = entry.view.shape();
    if (initial.Get("state.length").defined()) shape = Longer(shape, dims.tokens);
    const Tensor drawn = test::Normal(DType::kFloat64, shape, 4);
    if (entry.name == "state.a") Symmetrise(drawn);
    dstate.Set(entry.name, Tensor::Copy(drawn));
  }
  const Guarded saved(layer.SavedBytes(made, DType::kFloat64), 64);
  State end = initial;
  const Tensor y(DType::kFloat64, OutputShape(made));
  layer.Forward(inputs, end, {.y = y}, {.saved = saved.bytes()});
  const test::Gradients got =
      test::Differentiate(layer, inputs, initial, y, dstate, {.saved = saved.bytes()});
  for (const State::Entry& entry : got.initial.entries()) {
    const State::Entry came{entry.name, dstate.Get(entry.name), {}};
    const Tensor expected = HeldRows(layer.recipe(), initial, came);
    const Tensor passed = HeldRows(layer.recipe(), initial, entry);
    for (const std::int64_t n : sequences) {
      EXPECT_EQ(LargestDifference(expected.view().Slice(0, n, 1), passed.view().Slice(0, n, 1)), 0)
          << entry.name << ", sequence " << n;
    }
  }
  for (const InputField& field : InputFields()) {
    const TensorView& gradient = got.inputs.*field.view;
    if (!gradient.defined() || dims.tokens > 0) continue;
    EXPECT_EQ(LargestDifference(gradient, Tensor(gradient.dtype(), gradient.shape())), 0)
        << field.name;
  }
}

void ExpectGradientsToPass(const Layer& layer) {
  Dims dims = test::SmallDims(layer.recipe());
  dims.tokens = 0;
  if (!layer.HasGradients(dims)) return;
  const std::vector<std::int64_t> both{0, 1};
  ExpectGradientsToPass(layer, dims, {},
                        layer.recipe().reading.causal ? both : std::vector<std::int64_t>());
  if (!layer.recipe().reading.causal) return;
  dims.batch = 1;
  ExpectGradientsToPass(layer, dims, {0, 0, 0}, both);
  dims.tokens = 5;
  ExpectGradientsToPass(layer, dims, {0, 0, 5, 5}, {0, 2});
}

TEST_P(StatedSizes, OfNoTokensPassTheGradientOfTheStateOn) { ExpectGradientsToPass(layer); }

TEST(StatedSizesOfWeights, OfNoTokensPassTheGradientOfTheStateOn) {
  for (const char* recipe :
       {"decayed_softmax{importance: log}", "decayed_softmax{importance: input, window: 4}",
        "local_linear{decay: scalar, importance: log}", "local_linear{importance: input}",
        "kernel_ridge{ridge: 0.1, importance: log}",
        "kernel_ridge{ridge: 0.1, importance: input}"}) {
    SCOPED_TRACE(recipe);
    ExpectGradientsToPass(Layer(ParseRecipe(recipe)));
  }
}

}  // namespace
}  // namespace ttr
