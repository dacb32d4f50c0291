// Calls that nobody should make, drawn at random: other shapes, dtypes, strides (0 and negative
// ones, too), addresses and memory than a call wants. Every view lies in memory of exactly its
// extent, so that the address sanitizer sees a byte too many. Either the call is refused before
// anything is written, or it answers as it does of plain copies.
#include "tests/support/hostile.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/support/calls.h"
#include "tests/support/recipes.h"
#include "ttr/decoder.h"
#include "ttr/error.h"
#include "ttr/layer.h"

namespace ttr {
namespace {

using test::Draws;
using test::Memory;
using test::Refuses;
using test::Spoil;

// Everything that a call of a layer touches, each in memory of its own.
struct Hostile {
  Hostile(const Recipe& recipe, Memory& memory_in, DType dtype, std::uint64_t seed)
      : memory(memory_in), layer(recipe) {
    Dims dims = test::SmallDims(recipe);
    dims.tokens = 1 + memory.Below(12);
    const test::Call call(recipe, dims, dtype, seed, memory.OneIn(2));
    const Dims made = CheckInputs("hostile", recipe, call.inputs);
    for (const InputField& field : InputFields()) {
      const TensorView& view = call.inputs.*field.view;
      if (view.defined()) inputs.*field.view = memory.Copy(view);
    }
    outputs.y = memory.Copy(Tensor(dtype, OutputShape(made)));
    outputs.status = memory.Copy(Tensor(DType::kInt8, StatusShape(made)));
    const State start = layer.InitialState(call.inputs);
    constexpr std::int64_t kRoom = 14;  // for the pairs of any call, where they are kept
    const std::vector<StateSpec>& specs = layer.requirements().state;
    for (const StateSpec& spec : specs) {
      const TensorView entry = start.Get(spec.name);
      const bool keeps = start.Get("state.length").defined();
      const Shape shape = keeps ? StateShape(spec, recipe, made, kRoom) : entry.shape();
      names.push_back(spec.name);
      initial.push_back(memory.Copy(keeps ? Tensor(entry.dtype(), shape) : Tensor::Copy(entry)));
      dfinal.push_back(memory.Copy(Tensor(entry.dtype(), shape)));
      dinitial.push_back(memory.Copy(Tensor(entry.dtype(), shape)));
    }
    dy = memory.Copy(Tensor(dtype, OutputShape(made)));
    for (std::int64_t i = 0; i < dy.shape().elements(); ++i) {
      StoreElement(dy.data(), dtype, i, 0.1 * static_cast<double>(i % 7 - 3));
    }
    for (const InputField& field : InputFields()) {
      const TensorView& view = inputs.*field.view;
      if (!view.defined() || !IsFloating(view.dtype())) continue;
      gradients.*field.view = memory.Copy(Tensor(view.dtype(), view.shape()));
    }
  }

  std::vector<TensorView*> Views(bool backwards) {
    std::vector<TensorView*> views;
    for (const InputField& field : InputFields()) {
      if ((inputs.*field.view).defined()) views.push_back(&(inputs.*field.view));
    }
    for (TensorView& view : initial) views.push_back(&view);
    if (!backwards) {
      for (TensorView& view : dfinal) views.push_back(&view);
      views.push_back(&outputs.y);
      views.push_back(&outputs.status);
      return views;
    }
    views.push_back(&dy);
    for (TensorView& view : dfinal) views.push_back(&view);
    for (TensorView& view : dinitial) views.push_back(&view);
    for (const InputField& field : InputFields()) {
      if ((gradients.*field.view).defined()) views.push_back(&(gradients.*field.view));
    }
    return views;
  }

  State Bound(const std::vector<TensorView>& views) const {
    State state;
    for (std::size_t i = 0; i < names.size(); ++i) {
      if (views[i].defined()) state.Bind(names[i], views[i]);
    }
    return state;
  }

  void Forward(int how) {
    State state = Bound(initial);
    switch (how) {
      case 0: layer.Forward(inputs, state, outputs); break;
      case 1: layer.Step(inputs, state, outputs); break;
      case 2: {
        Inputs written = inputs;
        written.q = {};
        layer.Memorize(written, state);
        break;
      }
      case 3: {
        Inputs read{.q = inputs.q};
        read.features_w = inputs.features_w;
        read.features_b = inputs.features_b;
        layer.Retrieve(read, state, outputs);
        break;
      }
      default: {
        State final = Bound(dfinal);
        layer.Forward(inputs, state, final, outputs);
      }
    }
  }
  void Backward() {
    State into = Bound(dinitial);
    const State from = Bound(dfinal);
    // Counts have no gradient.
    State kept;
    for (const State::Entry& entry : into.entries()) {
      if (IsFloating(entry.view.dtype())) kept.Bind(entry.name, entry.view);
    }
    layer.Backward(inputs, Bound(initial), dy, from, gradients, kept);
  }

  Memory& memory;
  Layer layer;
  Inputs inputs, gradients;
  Outputs outputs;
  std::vector<std::string> names;
  std::vector<TensorView> initial, dfinal, dinitial;
  TensorView dy;
};

class HostileCalls : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Recipes, HostileCalls, ::testing::ValuesIn(test::LayerRecipes()),
                         test::CaseName);

TEST_P(HostileCalls, AreRefusedOrRun) {
  const Recipe recipe = ParseRecipe(GetParam());
  const bool slow = !Layer(recipe).HasGradients();
  int refused = 0;
  const int draws = Draws(slow ? 30 : 60);
  for (int draw = 0; draw < draws; ++draw) {
    SCOPED_TRACE("draw " + std::to_string(draw));
    Memory memory(static_cast<std::uint64_t>(draw) * 1000 + 7);
    const DType dtype = draw % 3 == 0   ? DType::kFloat64
                        : draw % 3 == 1 ? DType::kFloat32
                                        : DType::kBFloat16;
    Hostile hostile(recipe, memory, dtype, static_cast<std::uint64_t>(draw));
    const bool backwards = !slow && memory.OneIn(2);
    const auto views = hostile.Views(backwards);
    TensorView& view =
        *views[static_cast<std::size_t>(memory.Below(static_cast<std::int64_t>(views.size())))];
    const std::string before = test::Describe(view);
    Spoil(memory, views, view);
    SCOPED_TRACE(before + " -> " + test::Describe(view));
    const int how = static_cast<int>(memory.Below(5));
    refused += Refuses(memory, [&] { backwards ? hostile.Backward() : hostile.Forward(how); });
  }
  EXPECT_GT(refused, draws / 5);
  EXPECT_LT(refused, draws);
}

// Whatever is written, laid into the memory of anything else.
TEST(HostileOverlap, IsRefused) {
  const Recipe recipe = ParseRecipe("gated_deltanet");
  for (const bool backwards : {false, true}) {
    Memory memory(11);
    Hostile hostile(recipe, memory, DType::kFloat64, 3);
    const auto views = hostile.Views(backwards);
    std::vector<TensorView*> written = {&hostile.outputs.y, &hostile.dfinal[0]};
    if (backwards) {
      written = {&hostile.dinitial[0]};
      for (const InputField& field : InputFields()) {
        if ((hostile.gradients.*field.view).defined()) {
          written.push_back(&(hostile.gradients.*field.view));
        }
      }
    }
    for (TensorView* const view : written) {
      for (TensorView* const other : views) {
        if (view == other || other->dtype() != DType::kFloat64) continue;
        const TensorView kept = *view, small = *other;
        // The smaller of the two goes into the larger.
        const bool fits = kept.shape().elements() <= small.shape().elements();
        (fits ? *view : *other) = fits ? TensorView(small.data(), DType::kFloat64, kept.shape())
                                       : TensorView(kept.data(), DType::kFloat64, small.shape());
        EXPECT_TRUE(Refuses(memory, [&] { backwards ? hostile.Backward() : hostile.Forward(4); }))
            << test::Describe(*view) << " and " << test::Describe(*other);
        *view = kept;
        *other = small;
      }
    }
  }
}

// Scratch and saved memory over the state from which a final one is made.
TEST(HostileOverlap, OfAnInitialStateIsRefused) {
  for (const char* const text : {"gated_deltanet", "softmax"}) {
    const Layer layer(ParseRecipe(text));
    const test::Call call(layer.recipe(), test::SmallDims(layer.recipe()), DType::kFloat64, 3);
    State start;
    layer.Memorize(call.inputs, start);
    const std::size_t most =
        std::max(layer.ScratchBytes(call.dims, 1), layer.SavedBytes(call.dims, DType::kFloat64));
    for (const State::Entry& entry : start.entries()) {
      Tensor memory(DType::kInt8, {static_cast<std::int64_t>(most) + entry.owned.bytes()});
      const TensorView inside(memory.data(), entry.view.dtype(), entry.view.shape());
      CopyInto(entry.view, inside);
      const Tensor before = Tensor::Copy(memory);
      State initial = start, final;
      initial.Bind(entry.name, inside);
      const Tensor y(DType::kFloat64, OutputShape(call.dims));
      const std::span bytes(static_cast<std::byte*>(memory.data()), most);
      for (const CallOptions& options :
           {CallOptions{.executor = &SequentialExecutor(), .scratch = bytes},
            CallOptions{.executor = &SequentialExecutor(), .saved = bytes}}) {
        try {
          layer.Forward(call.inputs, initial, final, {.y = y}, options);
          ADD_FAILURE() << entry.name << " is overlapped";
        } catch (const Error& error) {
          const std::string expected = " must be memory of its own but is overlapping initial ";
          EXPECT_NE(std::string(error.what()).find(expected + entry.name), std::string::npos)
              << error.what();
        }
        EXPECT_EQ(test::LargestDifference(memory, before), 0);
      }
    }
  }
}

// A final state is as it was where the call is refused.
TEST(HostileOverlap, LeavesAFinalStateAloneWhereOutputsAreWrong) {
  Memory memory(12);
  Hostile hostile(ParseRecipe("rls{ridge: 0.5}"), memory, DType::kFloat64, 3);
  hostile.outputs.y = hostile.outputs.y.Slice(1, 0, 0);
  EXPECT_TRUE(Refuses(memory, [&] { hostile.Forward(4); }));
}

// Inputs of all the strides that are allowed, and gradients of outputs of any: the same numbers.
TEST_P(HostileCalls, OfStridesThatAreAllowedAnswerAsCopiesDo) {
  const Recipe recipe = ParseRecipe(GetParam());
  const Layer layer(recipe);
  if (!layer.HasGradients()) GTEST_SKIP() << "differences of the definition";
  for (int draw = 0; draw < 4; ++draw) {
    SCOPED_TRACE(draw);
    Memory memory(static_cast<std::uint64_t>(draw) + 99);
    Hostile plain(recipe, memory, DType::kFloat64, 5);
    Inputs strided = plain.inputs;
    for (const InputField& field : InputFields()) {
      TensorView& view = strided.*field.view;
      if (!view.defined() || view.rank() < 3) continue;
      // Backwards over tokens, apart over heads, and the first of them for all of a batch.
      std::vector<std::int64_t> strides(static_cast<std::size_t>(view.rank()), 1);
      const std::int64_t row = view.size(view.rank() - 1) + draw;
      strides[static_cast<std::size_t>(view.rank() - 2)] = row;
      strides[1] = -row * (view.rank() == 4 ? view.size(2) : 1) - draw;
      strides[0] = draw % 2 == 0 ? 0 : 3 - strides[1] * view.size(1);
      const TensorView to = memory.Make(view.dtype(), view.shape(), strides);
      CopyInto(view, to);
      CopyInto(to, view);  // what a stride of 0 has left
      view = to;
    }
    std::vector<std::int64_t> zeros(4, 0);
    const TensorView sum = memory.Make(DType::kFloat64, plain.dy.shape(), zeros);
    StoreElement(sum.data(), DType::kFloat64, 0, 0.25);
    CopyInto(sum, plain.dy);
    plain.Forward(0);
    State state;
    Tensor y(DType::kFloat64, plain.outputs.y.shape());
    layer.Forward(strided, state, {.y = y});
    // (The state of `plain` was the recipe's start, too.)
    EXPECT_LT(test::LargestDifference(y, plain.outputs.y), 1e-9);

    Inputs into;
    std::vector<TensorView> expected, got;
    const auto spread = [&](const Shape& shape) {  // axes the other way round, with gaps
      std::vector<std::int64_t> strides(static_cast<std::size_t>(shape.rank()), 1);
      std::int64_t reach = shape[shape.rank() - 1] + draw;
      for (int axis = 0; axis + 1 < shape.rank(); ++axis) {
        strides[static_cast<std::size_t>(axis)] = axis == 0 ? -reach : reach;
        reach *= shape[axis];
      }
      return memory.Make(DType::kFloat64, shape, strides);
    };
    for (const InputField& field : InputFields()) {
      const TensorView& view = plain.inputs.*field.view;
      if (!view.defined() || !IsFloating(view.dtype())) continue;
      expected.push_back(plain.gradients.*field.view);
      got.push_back(spread(view.shape()));
      into.*field.view = got.back();
    }
    State one, two;
    // A start without pairs has no gradient.
    const bool keeps = std::ranges::find(plain.names, "state.length") != plain.names.end();
    for (std::size_t i = 0; i < plain.names.size(); ++i) {
      if (keeps || !IsFloating(plain.initial[i].dtype())) continue;
      expected.push_back(plain.dinitial[i]);
      got.push_back(spread(plain.initial[i].shape()));
      one.Bind(plain.names[i], expected.back());
      two.Bind(plain.names[i], got.back());
    }
    layer.Backward(plain.inputs, {}, plain.dy, {}, plain.gradients, one);
    layer.Backward(strided, {}, sum, {}, into, two);
    for (std::size_t i = 0; i < got.size(); ++i) {
      EXPECT_LT(test::LargestDifference(got[i], expected[i]), 1e-8) << i;
    }
  }
}

// Sizes that no call can have.
TEST(HostileSizes, AreRefused) {
  const Layer layer(ParseRecipe("gated_deltanet"));
  const auto spoil = [](const std::function<void(Dims&)>& change) {
    Dims dims;
    dims.tokens = 5;
    change(dims);
    return dims;
  };
  const Dims hostile[] = {spoil([](Dims& d) { d.heads = 0; }),
                          spoil([](Dims& d) { d.heads = -3; }),
                          spoil([](Dims& d) { d.tokens = -1; }),
                          spoil([](Dims& d) { d.key_dim = 0; }),
                          spoil([](Dims& d) { d.value_dim = std::int64_t{1} << 50; }),
                          spoil([](Dims& d) { d.query_heads = 0; }),
                          spoil([](Dims& d) { d.heads = 4, d.key_heads = 3; }),
                          spoil([](Dims& d) { d.sequences = -1; })};
  for (const Dims& dims : hostile) {
    EXPECT_THROW(layer.ScratchBytes(dims, 1), Error);
    EXPECT_THROW(layer.BackwardScratchBytes(dims, 1), Error);
    EXPECT_THROW(layer.SavedBytes(dims), Error);
    EXPECT_THROW(EstimateCost(layer.recipe(), layer.plan(), dims), Error);
    EXPECT_THROW(Decoder::Bytes(layer, dims), Error);
  }
}

// A decoder's state in float64, not rounded; 0 where that grows.
double StateBytes(const Layer& layer, const Dims& dims) {
  double bytes = 0;
  for (const StateSpec& spec : layer.requirements().state) {
    double numbers = 1;
    for (const Axis axis : spec.shape) {
      numbers *= static_cast<double>(SizeOf(axis, layer.recipe(), dims));
    }
    bytes += 8 * numbers;
  }
  const bool grows = Decoder::Bytes(layer, dims, DType::kFloat64) == 0;
  return grows ? 0 : bytes;
}

TEST(HostileSizes, OfLongCallsAreNot) {
  for (const char* const text : {"kernel_rls", "softmax", "gated_deltanet",
                                 "linear_attention{features: taylor2}", "mamba"}) {
    Dims dims = test::TwoMemories(std::int64_t{1} << 24, 128, 128);
    dims.heads = dims.key_heads = dims.value_heads = dims.query_heads = 16;
    const Layer layer(ParseRecipe(text));
    EXPECT_GT(layer.ScratchBytes(dims, 8), 0U) << text;
    dims.sequences = 1 << 16;
    EXPECT_GT(layer.ScratchBytes(dims, 8), 0U) << text;
  }
}

class HostileProducts : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Recipes, HostileProducts, ::testing::ValuesIn(test::LayerRecipes()),
                         test::CaseName);

// Sizes that a call can have one by one, but not together: refused, or more for more.
TEST_P(HostileProducts, AreRefusedOrDoNotWrap) {
  const Layer layer(ParseRecipe(GetParam()));
  Memory draws(5);
  const auto all = [&](const Dims& dims) -> std::vector<double> {
    try {
      return {static_cast<double>(Decoder::Bytes(layer, dims, DType::kFloat64)),
              static_cast<double>(layer.ScratchBytes(dims, 8)),
              static_cast<double>(layer.BackwardScratchBytes(dims, 8)),
              static_cast<double>(layer.SavedBytes(dims, DType::kFloat64))};
    } catch (const Error&) {
      return {};
    }
  };
  int refused = 0;
  for (int draw = 0; draw < Draws(200); ++draw) {
    const auto power = [&](std::int64_t most) { return std::int64_t{1} << draws.Below(most + 1); };
    Dims dims{
        .batch = power(40), .tokens = power(40), .key_dim = power(40), .value_dim = power(40)};
    dims.heads = dims.key_heads = dims.value_heads = dims.query_heads = power(20);
    dims.features = power(20);
    dims.hidden = layer.recipe().function.expansion * dims.key_dim;
    if (layer.recipe().reading.causal && draws.OneIn(3)) {
      dims.sequences = dims.batch;
      dims.batch = 1;
    }
    const std::vector<double> most = all(dims);
    if (most.empty()) {
      ++refused;
      continue;
    }
    for (const double bytes : most) EXPECT_LT(bytes, 4.7e18);
    EXPECT_GE(most[0], StateBytes(layer, dims));
    Dims less = dims;
    (less.sequences > 0 ? less.sequences : less.batch) = 1;
    const std::vector<double> few = all(less);
    ASSERT_FALSE(few.empty());
    for (std::size_t i = 1; i < few.size(); ++i) EXPECT_LE(few[i], most[i]) << i;
  }
  EXPECT_GT(refused, 0);
}

// What can never fit is refused before anything is allocated, with how much it is.
TEST(HostileSizes, ThatNeverFitAreRefusedWithTheFigure) {
  const auto message = [](const char* recipe, std::int64_t dk, std::int64_t tokens) {
    const Layer layer(ParseRecipe(recipe));
    // No memory is behind these views, which are of stride 0.
    static double number = 0;
    const std::int64_t strides[] = {0, 0, 0, 1};
    std::vector<double> row(static_cast<std::size_t>(dk));
    const TensorView x(row.data(), DType::kFloat64, Shape{1, tokens, 1, dk}, strides);
    const TensorView v(&number, DType::kFloat64, Shape{1, tokens, 1, 1}, strides);
    std::vector<double> y(static_cast<std::size_t>(tokens));
    State state;
    try {
      layer.Forward({.q = x, .k = x, .v = v}, state,
                    {.y = TensorView::Of(y.data(), {1, tokens, 1, 1})});
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  for (const std::string& text :
       {message("local_cubic", 4096, 2), message("kernel_ridge", 2, 5'000'000)}) {
    EXPECT_NE(text.find("[Forward]"), std::string::npos) << text;
    EXPECT_NE(text.find(" GB"), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace ttr
