// Kernel regression with a budget, beside the definition: kernels, weights, ways to cut a sequence,
// what is not finite, long streams, gradients where a key nearly joins, bad input.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <utility>

#include "tests/support/agreement.h"
#include "tests/support/calls.h"
#include "tests/support/gradients.h"
#include "ttr/error.h"
#include "ttr/layer.h"
#include "ttr/util/random.h"

namespace ttr {
namespace {

using test::Call;
using test::LargestDifference;
using test::RunWhole;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

class KernelDictionary : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override { ASSERT_EQ(layer.plan().engine, "kernel_dictionary"); }

  void ExpectAgreement(const Call& call, double rounding) const {
    test::ExpectAgreement(layer, call, {.outputs = rounding, .state = rounding, .piece = 7});
  }

  Layer layer{ParseRecipe(GetParam())};
};

INSTANTIATE_TEST_SUITE_P(
    All, KernelDictionary,
    testing::Values("kernel_rls{budget: 9, tolerance: 0.3, ridge: 0.1}",
                    "kernel_rls{budget: 9, tolerance: 0.3, ridge: 0.1, read: before}",
                    "kernel_rls{budget: 9, tolerance: 0.3, ridge: 0.1, causal: false}",
                    "kernel_rls{budget: 20, normalise_qk: true, scale: 1, tolerance: 0.1}",
                    "kernel_rls{budget: 12, importance: input, output_norm: rms, ridge: 0.2}",
                    "kernel_rls{kernel: gaussian, bandwidth: 5, budget: 50, tolerance: 0.2}",
                    "kernel_rls{kernel: gaussian, bandwidth: 5, budget: 8, ridge: 0, tolerance: 0}",
                    "kernel_rls{kernel: laplace, bandwidth: 4, budget: 15, importance: input}",
                    "kernel_rls{kernel: linear, budget: 3, ridge: 0.1, scale: 0.5}",
                    "kernel_rls{kernel: linear, budget: 30, ridge: 0.1, importance: input}"),
    [](const auto& one) { return "case" + std::to_string(one.index); });

TEST_P(KernelDictionary, AgreesWithTheDefinition) {
  const Dims dims = test::TwoMemories(60, 5, 6);
  ExpectAgreement(Call(layer.recipe(), dims, DType::kFloat64, 1, true), 1e-10);
  // A state in float32 is rounded between pieces.
  ExpectAgreement(Call(layer.recipe(), dims, DType::kFloat32, 1, true), 2e-3);
}

TEST_P(KernelDictionary, AgreesOnHeadsOfEveryNumber) {
  const Dims dims = test::SmallDims(layer.recipe());
  ExpectAgreement(Call(layer.recipe(), dims, DType::kFloat64, 2, true), 1e-10);
}

TEST_P(KernelDictionary, LeavesOutPairsWithoutWeight) {
  const Call call(layer.recipe(), test::TwoMemories(30, 4, 3), DType::kFloat64, 3, true);
  if (!call.inputs.importance.defined()) GTEST_SKIP() << "has no weights";
  for (const std::int64_t t : {0, 5, 6, 20}) {
    call.inputs.importance.Set({0, t, 0}, 0);
    call.inputs.k.Set({0, t, 0, 1}, t == 5 ? kNan : 1);
  }
  ExpectAgreement(call, 1e-10);
}

TEST_P(KernelDictionary, LeavesWhatIsNotFiniteToLaterTokens) {
  const Call call(layer.recipe(), test::TwoMemories(40, 4, 3), DType::kFloat64, 4, true);
  call.inputs.v.Set({0, 20, 0, 1}, kNan);
  call.inputs.k.Set({0, 30, 1, 2}, kNan);
  call.inputs.q.Set({0, 10, 0, 0}, kNan);
  ExpectAgreement(call, 1e-10);
  const Call begins(layer.recipe(), test::TwoMemories(5, 4, 3), DType::kFloat64, 4, true);
  begins.inputs.k.Set({0, 0, 1, 2}, kNan);
  ExpectAgreement(begins, 1e-10);
}

TEST(KernelDictionaries, OfAllKeysAreKernelRidge) {
  for (const std::string options :
       {"ridge: 0.1", "kernel: gaussian, bandwidth: 3, ridge: 0.1, importance: input",
        "kernel: laplace, bandwidth: 2, ridge: 0.01, read: before"}) {
    const Dims dims = test::TwoMemories(50, 4, 5);
    const Call call(ParseRecipe("kernel_ridge{" + options + "}"), dims, DType::kFloat64, 5, true);
    const test::Result whole = RunWhole(Layer(call.recipe), call);
    const Layer budgeted(ParseRecipe("kernel_rls{tolerance: 0, budget: 50, " + options + "}"));
    State state;
    const Tensor y(DType::kFloat64, OutputShape(dims));
    budgeted.Forward(call.inputs, state, {.y = y});
    EXPECT_LE(LargestDifference(whole.y, y), 1e-9) << options;
    EXPECT_EQ(state.Get("state.count").At({0, 0}), 50);
  }
}

// k(k, k) = e^180 is beyond float32, in which the state is.
TEST(KernelDictionaries, TakeLongKeysIntoAStateInFloat32) {
  for (const char* recipe :
       {"kernel_rls{budget: 9, scale: 1, ridge: 1, tolerance: 0.1}",
        "kernel_rls{budget: 4, scale: 1, ridge: 1, tolerance: 0.1, read: before}"}) {
    const Layer layer(ParseRecipe(recipe));
    const Call call(layer.recipe(), test::TwoMemories(24, 4, 3), DType::kFloat32, 14);
    for (const std::int64_t t : {0, 7, 8, 20}) {
      double squares = 0;
      for (std::int64_t c = 0; c < 4; ++c) squares += std::pow(call.inputs.k.At({0, t, 0, c}), 2);
      for (std::int64_t c = 0; c < 4; ++c) {
        const double k = std::sqrt(180 / squares) * call.inputs.k.At({0, t, 0, c});
        call.inputs.k.Set({0, t, 0, c}, k);
      }
    }
    const test::Result whole = RunWhole(layer, call);
    EXPECT_LE(LargestDifference(RunWhole(Layer(layer.recipe(), kDefinition), call).y, whole.y),
              1e-4);
    for (const float y : whole.y.as<float>()) EXPECT_TRUE(std::isfinite(y));
    for (const test::Result& got :
         {RunInPieces(layer, call, 7), RunInPieces(layer, call, 1), RunDecoder(layer, call)}) {
      EXPECT_LE(LargestDifference(whole.y, got.y), 2e-3) << recipe;
    }
  }
}

// With linear keys of three channels three of them span all others: recursive least squares.
TEST(KernelDictionaries, OfALinearKernelAreRls) {
  const Dims dims = test::TwoMemories(200, 3, 5);
  const Call call(ParseRecipe("rls{ridge: 0.5}"), dims, DType::kFloat64, 6);
  const test::Result rls = RunWhole(Layer(call.recipe), call);
  const Layer dual(ParseRecipe("kernel_rls{kernel: linear, ridge: 0.5, scale: 1, tolerance: 0}"));
  State state;
  const Tensor y(DType::kFloat64, OutputShape(dims));
  dual.Forward(call.inputs, state, {.y = y});
  EXPECT_LE(LargestDifference(rls.y, y), 1e-11);
  EXPECT_EQ(state.Get("state.count").At({0, 1}), 3);
}

// v = sin(3 k) and noise, a memory of twenty keys.
TEST(KernelDictionaries, ReadAStreamOfAHundredThousandRows) {
  const std::int64_t piece = 10000;
  const Layer layer(
      ParseRecipe("kernel_rls{kernel: gaussian, bandwidth: 0.5, budget: 20, tolerance: 1e-4}"));
  const Tensor k(DType::kFloat32, {1, piece, 1, 1}), v(DType::kFloat32, {1, piece, 1, 1});
  const Tensor y(DType::kFloat32, {1, piece, 1, 1});
  CounterRandom random(7);
  State state;
  std::size_t bytes = 0;  // of the state, as numbers
  for (int i = 0; i < 10; ++i) {
    double error = 0, noise = 0;
    for (std::int64_t t = 0; t < piece; ++t) {
      const double x = 4 * random.Uniform() - 2;
      k.view().Set({0, t, 0, 0}, x);
      v.view().Set({0, t, 0, 0}, std::sin(3 * x) + 0.3 * random.Normal());
    }
    layer.Forward({.q = k, .k = k, .v = v}, state, {.y = y});
    for (std::int64_t t = 0; t < piece; ++t) {
      const double right = std::sin(3 * k.view().At({0, t, 0, 0}));
      error += std::pow(y.view().At({0, t, 0, 0}) - right, 2);
      noise += std::pow(v.view().At({0, t, 0, 0}) - right, 2);
    }
    // A fit of so many numbers has the share n / t of the noise.
    ASSERT_LT(error, (i == 0 ? 0.02 : 40.0 / static_cast<double>(i * piece)) * noise) << i;
    std::size_t held = 0;
    for (const State::Entry& entry : state.entries()) {
      held += static_cast<std::size_t>(entry.view.shape().elements());
    }
    if (i == 0) bytes = held;
    EXPECT_EQ(held, bytes);
  }
  EXPECT_LE(state.Get("state.count").At({0, 0}), 20);
}

// Differences hold the dictionary: beside a key that nearly joins they see no jump.
TEST(KernelDictionaries, HaveSlopesBesideASwitch) {
  const Dims dims{.batch = 1, .tokens = 4, .key_dim = 1, .value_dim = 1};
  // The second key lies outside by 1 - exp(-2 d^2 / B).
  const double d = 0.4, outside = 1 - std::exp(-2 * d * d / 2);
  for (const double beside : {-1e-7, 1e-7}) {
    Recipe recipe = ParseRecipe("kernel_rls{kernel: gaussian, bandwidth: 2, ridge: 0.1}");
    recipe.optimizer.tolerance = outside + beside;
    const Layer layer(recipe);
    const Call call(recipe, dims, DType::kFloat64, 8);
    const double keys[] = {0, d, 2, 3};
    for (std::int64_t t = 0; t < 4; ++t) call.inputs.k.Set({0, t, 0, 0}, keys[t]);
    const Tensor dy = test::Normal(DType::kFloat64, OutputShape(dims), 9);
    const auto loss = [&](double moved) {
      call.inputs.k.Set({0, 1, 0, 0}, moved);
      const test::Result result = RunWhole(layer, call);
      double sum = 0;
      for (std::size_t i = 0; i < 4; ++i) sum += dy.as<double>()[i] * result.y.as<double>()[i];
      return sum;
    };
    const double step = 1e-9;  // on one side of the switch
    const double slope = (loss(d + step) - loss(d - step)) / (2 * step);
    call.inputs.k.Set({0, 1, 0, 0}, d);
    const test::Gradients got = test::Differentiate(layer, call.inputs, {}, dy, {});
    EXPECT_NEAR(got.inputs.k.At({0, 1, 0, 0}), slope, 1e-5);
    EXPECT_GT(std::abs(slope), 1e-3);
  }
}

void ExpectError(const std::string& part, const std::function<void()>& call) {
  try {
    call();
    ADD_FAILURE() << "no error: " << part;
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find(part), std::string::npos) << text;
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
  }
}

TEST(KernelDictionaries, RefuseRecipesWithoutAMeaning) {
  for (const auto& [recipe, part] :
       {std::pair{"softmax{budget: 4}", "a budget belongs to"},
        std::pair{"kernel_smoother{budget: 4}", "a budget belongs to"},
        std::pair{"kernel_rls{decay: 0.9}", "which a decay would fade"},
        std::pair{"kernel_rls{window: 8}", "this memory keeps none"},
        std::pair{"kernel_rls{tolerance: 1}", "neglects every key"},
        std::pair{"kernel_rls{importance: log}", "importance(log)"},
        std::pair{"kernel_rls{kernel: biweight, bandwidth: 1}", "not positive definite"},
        std::pair{"kernel_ridge{tolerance: 0.1}", "and to a budget"},
        std::pair{"kernel_rls{budget: -1}", "budget"}}) {
    ExpectError(part, [&] { ParseRecipe(recipe); });
  }
}

TEST(KernelDictionaries, RefuseStatesThatAreNone) {
  const Layer layer(ParseRecipe("kernel_rls{budget: 4}"));
  const Call call(layer.recipe(), test::TwoMemories(6, 3, 2), DType::kFloat64, 10);
  const State right = RunWhole(layer, call).state;
  const Tensor y(DType::kFloat64, OutputShape(call.dims));
  const auto run = [&](State& state) { layer.Forward(call.inputs, state, {.y = y}); };
  State lacks;
  for (const State::Entry& entry : right.entries()) {
    if (entry.name != "state.l") lacks.Set(entry.name, Tensor::Copy(entry.view));
  }
  ExpectError("state.l", [&] { run(lacks); });
  State many = right;
  many.Get("state.count").Set({0, 1}, 5);
  ExpectError("state.count must be a whole number from 0 to 4", [&] { run(many); });
  State other = right;
  other.Set("state.keys", Tensor(DType::kFloat64, {1, 2, 5, 3}));
  ExpectError("state.keys", [&] { run(other); });
}

TEST(KernelDictionaries, RefuseABudgetThatNoMemoryHolds) {
  const Layer layer(ParseRecipe("kernel_rls{budget: 1000000}"));
  const Tensor k(DType::kFloat32, {1, 2, 1, 1}), y(DType::kFloat32, {1, 2, 1, 1});
  State state;
  ExpectError("of memory here", [&] { layer.Forward({.q = k, .k = k, .v = k}, state, {.y = y}); });
  EXPECT_TRUE(state.empty());
}

}  // namespace
}  // namespace ttr
