// The kernel smoother beside the definition, where weights are extreme: hits, no neighbour, scales
// far apart, what is not finite. And what it is by other names.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <tuple>

#include "tests/support/agreement.h"
#include "tests/support/calls.h"
#include "ttr/layer.h"

namespace ttr {
namespace {

using test::Call;
using test::LargestDifference;
using test::RunWhole;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

class KernelSmoother : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override { ASSERT_EQ(layer.plan().engine, "kernel_smoother"); }

  void ExpectAgreement(const Call& call, double rounding) const {
    // Logarithms of weights in the state are hundreds, outputs about 1.
    test::ExpectAgreement(layer, call, {.outputs = rounding, .state = 5 * rounding});
  }

  Layer layer{ParseRecipe(GetParam())};
};

INSTANTIATE_TEST_SUITE_P(
    All, KernelSmoother,
    testing::Values("softmax", "softmax{causal: false}", "window_softmax{window: 70}",
                    "decayed_softmax{importance: input}", "softmax{importance: log, read: before}",
                    "nadaraya_watson{bandwidth: 0.5}", "nadaraya_watson{kernel: laplace}",
                    "nadaraya_watson{kernel: epanechnikov, bandwidth: 1}",
                    "nadaraya_watson{kernel: biweight, bandwidth: 1.2, decay: scalar}",
                    "nadaraya_watson{kernel: triweight, bandwidth: 2, causal: false}",
                    "softmax{pair_bias: input}", "softmax{pair_bias: distance, extent: 3}",
                    "softmax{pair_bias: power, extent: 2, exponent: 0.7, read: before}",
                    "decayed_softmax{pair_bias: block, extent: 37}",
                    "softmax{pair_bias: block, extent: 150, causal: false}",
                    "softmax{pair_bias: prefix, extent: 140, causal: false}",
                    "decayed_softmax{pair_bias: input, importance: input, read: before}",
                    "nadaraya_watson{kernel: biweight, bandwidth: 1.2, pair_bias: input}",
                    "softmax{kernel: inverse_distance, pair_bias: input, causal: false}",
                    "softmax{kernel: inverse_distance}",
                    "softmax{kernel: inverse_distance, decay: scalar, importance: log}",
                    "softmax{kernel: inverse_distance, window: 5, normalise_qk: true}"),
    [](const auto& one) { return "case" + std::to_string(one.index); });

TEST_P(KernelSmoother, GoesOverSeveralBlocks) {
  const Dims dims = test::TwoMemories(300, 5, 19);
  ExpectAgreement(Call(layer.recipe(), dims, DType::kFloat64, 1, true), 1e-12);
  ExpectAgreement(Call(layer.recipe(), dims, DType::kFloat32, 1, true), 2e-5);
}

// Every fourth query is a key that came before, some of them twice.
TEST_P(KernelSmoother, MeetsKeysThatAreTheQuery) {
  const Dims dims = test::TwoMemories(90, 5, 3);
  const Call call(layer.recipe(), dims, DType::kFloat64, 2, true);
  for (std::int64_t t = 8; t < dims.tokens; t += 4) {
    for (std::int64_t h = 0; h < 2; ++h) {
      for (std::int64_t c = 0; c < 5; ++c) {
        const double x = call.inputs.k.At({0, t / 2, h, c});
        call.inputs.q.Set({0, t, h, c}, x);
        if (t % 8 == 0) call.inputs.k.Set({0, t / 2 + 1, h, c}, x);
      }
    }
  }
  ExpectAgreement(call, 1e-12);
}

TEST_P(KernelSmoother, SpansScalesThatAreFarApart) {
  const Dims dims = test::TwoMemories(90, 4, 3);
  const Call call(layer.recipe(), dims, DType::kFloat64, 3, true);
  for (std::int64_t t = 0; t < dims.tokens; ++t) {
    const double by = std::pow(10.0, static_cast<double>(t % 7) - 3);
    for (std::int64_t c = 0; c < 4; ++c) {
      call.inputs.k.Set({0, t, 0, c}, by * call.inputs.k.At({0, t, 0, c}));
      call.inputs.q.Set({0, t, 1, c}, by * call.inputs.q.At({0, t, 1, c}));
    }
  }
  // Scores of 10^3 have three digits less.
  ExpectAgreement(call, 1e-11);
}

// All weights underflow, but in proportion to the greatest: the nearest keys share what there is,
// and beyond a compact kernel nobody does. A distance d has d^2 eps of rounding, over a bandwidth
// of half at least.
TEST_P(KernelSmoother, IsAskedFarFromAllKeys) {
  const Dims dims = test::TwoMemories(90, 4, 3);
  for (const auto& [dtype, eps, by] :
       {std::tuple{DType::kFloat64, 2.3e-16, 1e4}, std::tuple{DType::kFloat32, 1.2e-7, 30.0}}) {
    const Call call(layer.recipe(), dims, dtype, 10, true);
    double farthest = 0;
    for (std::int64_t t = 0; t < dims.tokens; ++t) {
      for (std::int64_t h = 0; h < 2; ++h) {
        double squares = 0;
        for (std::int64_t c = 0; c < 4; ++c) {
          const double x = by * call.inputs.q.At({0, t, h, c});
          call.inputs.q.Set({0, t, h, c}, x);
          squares += x * x;
        }
        farthest = std::max(farthest, squares);
      }
    }
    ExpectAgreement(call, 8 * eps * farthest / 0.5);
  }
}

TEST_P(KernelSmoother, LeavesWhatIsNotFiniteToItsReaders) {
  const Dims dims = test::TwoMemories(90, 4, 3);
  const Call call(layer.recipe(), dims, DType::kFloat64, 4, true);
  call.inputs.v.Set({0, 40, 0, 1}, kNan);
  call.inputs.v.Set({0, 44, 1, 0}, std::numeric_limits<double>::infinity());
  call.inputs.k.Set({0, 60, 1, 2}, kNan);
  call.inputs.q.Set({0, 20, 0, 0}, kNan);
  ExpectAgreement(call, 1e-12);
}

TEST_P(KernelSmoother, KeepsTheBitsOfEveryNumberOfThreads) {
  Dims dims = test::TwoMemories(400, 8, 8);
  dims.query_heads = 6;
  const Call call(layer.recipe(), dims, DType::kFloat32, 5, true);
  const auto five = MakeExecutor(5);
  const test::Result one = RunWhole(layer, call, {.executor = &SequentialExecutor()});
  const test::Result many = RunWhole(layer, call, {.executor = five.get()});
  EXPECT_EQ(LargestDifference(one.y, many.y), 0);
}

// s(k, q) depends on k . q alone where both have unit length: |k - q|^2 = 2 - 2 k . q.
TEST(KernelSmoothers, GaussianOnUnitVectorsIsSoftmax) {
  const Dims dims = test::TwoMemories(120, 16, 5);
  for (const DType dtype : {DType::kFloat64, DType::kFloat32}) {
    const Call call(ParseRecipe("softmax{normalise_qk: true}"), dims, dtype, 6);
    const Recipe gaussian = ParseRecipe("nadaraya_watson{normalise_qk: true, bandwidth: 8}");
    const test::Result softmax = RunWhole(Layer(call.recipe), call);
    State state;
    const Tensor y(dtype, OutputShape(dims));
    Layer(gaussian).Forward(call.inputs, state, {.y = y});
    EXPECT_LE(LargestDifference(softmax.y, y), dtype == DType::kFloat64 ? 1e-6 : 1e-5);
  }
}

TEST(KernelSmoothers, WithoutForgettingAreSoftmax) {
  const Dims dims = test::TwoMemories(120, 16, 5);
  const Call call(ParseRecipe("softmax"), dims, DType::kFloat64, 7);
  const test::Result softmax = RunWhole(Layer(call.recipe), call);
  for (const char* name : {"softmax{decay: 1}", "softmax{window: 120}", "softmax{window: 500}"}) {
    State state;
    const Tensor y(DType::kFloat64, OutputShape(dims));
    Layer(ParseRecipe(name)).Forward(call.inputs, state, {.y = y});
    EXPECT_LE(LargestDifference(softmax.y, y), 1e-14) << name;
  }
}

}  // namespace
}  // namespace ttr
