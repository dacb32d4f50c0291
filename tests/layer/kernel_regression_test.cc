// Kernel regression beside the definition: kernels, weights, ways to cut a sequence, singular
// prefixes, what is not finite. And what it is by other names.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "tests/support/agreement.h"
#include "tests/support/calls.h"
#include "ttr/error.h"
#include "ttr/layer.h"

namespace ttr {
namespace {

using test::Call;
using test::LargestDifference;
using test::RunWhole;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// `piece` tokens at a time into a state of rows in bfloat16.
test::Result RunNarrow(const Layer& layer, const Call& call, std::int64_t piece, State& state) {
  const Dims& dims = call.dims;
  for (const StateSpec& spec : layer.requirements().state) {
    const DType wide = spec.counts() ? DType::kInt64 : DType::kFloat32;
    state.Set(spec.name, Tensor(spec.role == EntryRole::kPairs ? DType::kBFloat16 : wide,
                                StateShape(spec, layer.recipe(), dims, dims.tokens)));
  }
  test::Result result{Tensor(DType::kFloat32, OutputShape(dims)), {}, {}};
  for (std::int64_t t = 0; t < dims.tokens; t += piece) {
    const std::int64_t count = std::min(piece, dims.tokens - t);
    layer.Forward(test::TokensOf(call, t, count), state, {.y = result.y.view().Slice(1, t, count)});
  }
  result.state = state;
  return result;
}

class KernelRegression : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override { ASSERT_EQ(layer.plan().engine, "kernel_regression"); }

  void ExpectAgreement(const Call& call, double rounding) const {
    test::ExpectAgreement(layer, call, {.outputs = rounding, .state = 1e-6});
  }

  Layer layer{ParseRecipe(GetParam())};
};

INSTANTIATE_TEST_SUITE_P(
    All, KernelRegression,
    testing::Values("kernel_ridge{ridge: 0.1}", "kernel_ridge{ridge: 0.1, read: before}",
                    "kernel_ridge{ridge: 0.1, causal: false}",
                    "kernel_ridge{ridge: 0.1, normalise_qk: true, scale: 1}",
                    "kernel_ridge{ridge: 0.2, importance: input}",
                    "kernel_ridge{ridge: 0.2, importance: log, output_norm: rms}",
                    "kernel_ridge{kernel: gaussian, bandwidth: 3, ridge: 0.1}",
                    "kernel_ridge{kernel: gaussian, bandwidth: 3, ridge: 0.1, importance: input}",
                    "kernel_ridge{kernel: laplace, bandwidth: 2, ridge: 0.1}",
                    "kernel_ridge{kernel: laplace, bandwidth: 2, ridge: 0.1, importance: log}",
                    "kernel_ridge{kernel: linear, ridge: 0.1}",
                    "kernel_ridge{kernel: linear, ridge: 0.1, importance: input, scale: 0.5}"),
    [](const auto& one) { return "case" + std::to_string(one.index); });

// Systems of so many keys of unit variance have a condition of some 1e4.
constexpr double kRounding64 = 1e-10, kRounding32 = 1e-2;

TEST_P(KernelRegression, AgreesWithTheDefinitionOverSeveralBlocks) {
  const Dims dims = test::TwoMemories(150, 5, 19);
  ExpectAgreement(Call(layer.recipe(), dims, DType::kFloat64, 1, true), kRounding64);
  ExpectAgreement(Call(layer.recipe(), dims, DType::kFloat32, 1, true), kRounding32);
}

TEST_P(KernelRegression, AgreesOnHeadsOfEveryNumber) {
  const Dims dims = test::SmallDims(layer.recipe());
  ExpectAgreement(Call(layer.recipe(), dims, DType::kFloat64, 2, true), kRounding64);
}

TEST_P(KernelRegression, LeavesOutPairsWithoutWeight) {
  const Dims dims = test::TwoMemories(60, 4, 3);
  const Call call(layer.recipe(), dims, DType::kFloat64, 3, true);
  for (const std::int64_t t : {0, 5, 6, 31, 32, 50}) {
    if (call.inputs.importance.defined()) call.inputs.importance.Set({0, t, 0}, 0);
    if (call.inputs.log_importance.defined()) {
      call.inputs.log_importance.Set({0, t, 0}, -std::numeric_limits<double>::infinity());
    }
  }
  ExpectAgreement(call, kRounding64);
}

TEST_P(KernelRegression, LeavesWhatIsNotFiniteToLaterTokens) {
  const Dims dims = test::TwoMemories(90, 4, 3);
  const Call call(layer.recipe(), dims, DType::kFloat64, 4, true);
  call.inputs.v.Set({0, 40, 0, 1}, kNan);
  call.inputs.k.Set({0, 60, 1, 2}, kNan);
  call.inputs.q.Set({0, 20, 0, 0}, kNan);
  ExpectAgreement(call, kRounding64);
}

TEST_P(KernelRegression, KeepsTheBitsOfEveryNumberOfThreads) {
  Dims dims = test::TwoMemories(400, 8, 8);
  dims.query_heads = 6;
  const Call call(layer.recipe(), dims, DType::kFloat32, 5, true);
  const auto five = MakeExecutor(5), two = MakeExecutor(2);
  const test::Result one = RunWhole(layer, call, {.executor = &SequentialExecutor()});
  for (Executor* executor : {five.get(), two.get()}) {
    const test::Result many = RunWhole(layer, call, {.executor = executor});
    EXPECT_EQ(LargestDifference(one.y, many.y), 0);
  }
}

// The dual of recursive least squares.
TEST(KernelRegressions, WithALinearKernelAreRls) {
  const Dims dims = test::TwoMemories(140, 6, 5);
  for (const DType dtype : {DType::kFloat64, DType::kFloat32}) {
    const Call call(ParseRecipe("rls{ridge: 0.5}"), dims, dtype, 6);
    const test::Result rls = RunWhole(Layer(call.recipe), call);
    State state;
    const Tensor y(dtype, OutputShape(dims));
    const Layer dual(ParseRecipe("kernel_ridge{kernel: linear, ridge: 0.5, scale: 1}"));
    dual.Forward(call.inputs, state, {.y = y});
    EXPECT_LE(LargestDifference(rls.y, y), dtype == DType::kFloat64 ? 1e-12 : 2e-3);
  }
}

// Keys that come again, with other values, where nothing keeps the system regular.
TEST(KernelRegressions, WithoutRidgeHaveLeastNorm) {
  for (const char* recipe :
       {"kernel_ridge{kernel: gaussian, bandwidth: 0.5, ridge: 0}",
        "kernel_ridge{kernel: laplace, bandwidth: 1, ridge: 0}",
        "kernel_ridge{kernel: exponential, ridge: 0, scale: 2}",
        "kernel_ridge{kernel: linear, ridge: 0}",
        "kernel_ridge{kernel: gaussian, bandwidth: 0.5, ridge: 0, importance: input}"}) {
    const Layer layer(ParseRecipe(recipe)), defined(layer.recipe(), kDefinition);
    const Dims dims = test::TwoMemories(50, 4, 3);
    for (const DType dtype : {DType::kFloat64, DType::kFloat32}) {
      Call call(layer.recipe(), dims, dtype, 7, true);
      call.inputs.ridge = {};
      call.inputs.bandwidth = {};
      for (const std::int64_t t : {4, 9, 10, 33}) {
        CopyInto(call.inputs.k.Slice(1, t / 2, 1), call.inputs.k.Slice(1, t, 1));
      }
      const test::Result expected = RunWhole(defined, call);
      EXPECT_GT(LargestDifference(expected.status, Tensor(DType::kInt8, expected.status.shape())),
                0)
          << recipe;
      for (const test::Result& got :
           {RunWhole(layer, call), RunInPieces(layer, call, 7), RunDecoder(layer, call)}) {
        EXPECT_LE(LargestDifference(expected.y, got.y), dtype == DType::kFloat64 ? 1e-8 : 1e-4)
            << recipe;
        EXPECT_EQ(LargestDifference(expected.status, got.status), 0) << recipe;
      }
    }
  }
}

// k(x, x) = e^100 is beyond float32.
TEST(KernelRegressions, TakeLongKeysUnderAnExponentialKernel) {
  const Layer layer(ParseRecipe("kernel_ridge{scale: 1, ridge: 0.001}"));
  const Dims dims = test::TwoMemories(60, 4, 3);
  const Call call(layer.recipe(), dims, DType::kFloat32, 8);
  for (std::int64_t t = 0; t < dims.tokens; ++t) {
    for (std::int64_t h = 0; h < 2; ++h) {
      double squares = 0;
      for (std::int64_t c = 0; c < 4; ++c) squares += std::pow(call.inputs.k.At({0, t, h, c}), 2);
      for (std::int64_t c = 0; c < 4; ++c) {
        const double k = 10 / std::sqrt(squares) * call.inputs.k.At({0, t, h, c});
        call.inputs.k.Set({0, t, h, c}, k);
        call.inputs.q.Set({0, t, h, c}, k);
      }
    }
  }
  const test::Result defined = RunWhole(Layer(layer.recipe(), kDefinition), call);
  EXPECT_LE(LargestDifference(defined.y, RunWhole(layer, call).y), 1e-3);
}

TEST(KernelRegressions, DoNotKnowTheOrderOfThePast) {
  const Dims dims = test::TwoMemories(90, 6, 5);
  const Call call(ParseRecipe("kernel_ridge{kernel: gaussian, bandwidth: 4, ridge: 0.1}"), dims,
                  DType::kFloat64, 8);
  const test::Result before = RunWhole(Layer(call.recipe), call);
  for (std::int64_t t = 0; t < 44; ++t) {
    for (const TensorView* rows : {&call.inputs.k, &call.inputs.v}) {
      const Tensor kept = Tensor::Copy(rows->Slice(1, t, 1));
      CopyInto(rows->Slice(1, 88 - t, 1), rows->Slice(1, t, 1));
      CopyInto(kept, rows->Slice(1, 88 - t, 1));
    }
  }
  const test::Result after = RunWhole(Layer(call.recipe), call);
  EXPECT_LE(LargestDifference(before.y.view().Slice(1, 89, 1), after.y.view().Slice(1, 89, 1)),
            1e-12);
}

// A stream whose factor grows with its state, beside one long call.
TEST(KernelRegressions, StreamByADecoder) {
  const Dims dims = test::TwoMemories(700, 8, 3);
  const Call call(ParseRecipe("kernel_ridge{kernel: gaussian, bandwidth: 8, ridge: 0.1}"), dims,
                  DType::kFloat64, 9);
  const Layer layer(call.recipe);
  const test::Result whole = RunWhole(layer, call);
  Decoder decoder(layer, dims, DType::kFloat64);
  const Tensor y(DType::kFloat64, OutputShape(dims));
  for (std::int64_t t = 0; t < dims.tokens; ++t) {
    decoder.Step(test::TokensOf(call, t, 1), {.y = y.view().Slice(1, t, 1)});
  }
  EXPECT_LE(LargestDifference(whole.y, y), 1e-11);
}

// A factor that goes from token to token is of the constants of its token.
TEST(KernelRegressions, StreamUnderConstantsThatChange) {
  for (const char* recipe :
       {"kernel_ridge{kernel: gaussian, bandwidth: 3, ridge: 0.1}",
        "kernel_ridge{kernel: laplace, bandwidth: 3, ridge: 0.1, importance: input}",
        "kernel_ridge{ridge: 0.1}", "rls{ridge: 0.1, ridge_kind: constant}"}) {
    const Layer layer(ParseRecipe(recipe));
    const Call call(layer.recipe(), test::TwoMemories(60, 4, 3), DType::kFloat64, 12);
    Decoder decoder(layer, call.dims, DType::kFloat64);
    State state;
    const Tensor y(DType::kFloat64, {1, 1, 2, 3}), expected(DType::kFloat64, y.shape());
    for (std::int64_t t = 0; t < 60; ++t) {
      Inputs inputs = test::TokensOf(call, t, 1);
      const std::vector<double> ridge{t < 20 ? 0.1 : 1.5, 0.1}, width{3, t < 40 ? 3. : 1.};
      inputs.ridge = TensorView::Of(ridge.data(), {2});
      if (layer.recipe().similarity.kernel == Kernel::kGaussian ||
          layer.recipe().similarity.kernel == Kernel::kLaplace) {
        inputs.bandwidth = TensorView::Of(width.data(), {2});
      }
      decoder.Step(inputs, {.y = y});
      layer.Step(inputs, state, {.y = expected});
      EXPECT_LE(LargestDifference(y, expected), 1e-9) << recipe << ", token " << t;
    }
  }
}

// Pairs are rounded as they are written: the call on rounded pairs.
TEST_P(KernelRegression, KeepsPairsInBFloat16) {
  if (!layer.recipe().reading.causal) GTEST_SKIP() << "has no state";
  const Dims dims = test::TwoMemories(40, 5, 3);
  const Call call(layer.recipe(), dims, DType::kFloat32, 11, true);
  const test::Result defined = [&] {
    State state;
    return RunNarrow(Layer(layer.recipe(), kDefinition), call, 40, state);
  }();
  for (const std::int64_t piece : {40, 7, 1}) {
    State state;
    const test::Result got = RunNarrow(layer, call, piece, state);
    EXPECT_LE(LargestDifference(defined.y, got.y), kRounding32) << piece;
    for (const char* name : {"state.k", "state.v"}) {
      EXPECT_EQ(state.Get(name).dtype(), DType::kBFloat16);
      EXPECT_LE(LargestDifference(defined.state.Get(name), got.state.Get(name)), 1e-2) << name;
    }
  }
}

TEST(KernelRegressions, SayWhatTheyDoNotTake) {
  EXPECT_EQ(Layer(ParseRecipe("kernel_ridge{window: 8}")).plan().engine, "window_regression");
  EXPECT_EQ(Layer(ParseRecipe("kernel_ridge{decay: 0.9}")).plan().engine, kDefinition);
  EXPECT_EQ(Layer(ParseRecipe("kernel_ridge{scale: -1}")).plan().engine, kDefinition);
}

TEST(KernelRegressions, RefuseAFactorThatNoMemoryHolds) {
  const Layer layer(ParseRecipe("kernel_ridge"));
  const std::int64_t tokens = std::int64_t{1} << 22;
  const Tensor k(DType::kFloat32, {1, tokens, 1, 1}), y(DType::kFloat32, {1, tokens, 1, 1});
  State state;
  try {
    layer.Forward({.q = k, .k = k, .v = k}, state, {.y = y});
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("of memory here"), std::string::npos) << error.what();
  }
  EXPECT_TRUE(state.empty());
}

}  // namespace
}  // namespace ttr
