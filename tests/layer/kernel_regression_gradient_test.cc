// Gradients of kernel regression, against those of the definition.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "tests/support/calls.h"
#include "tests/support/directions.h"
#include "tests/support/engines.h"
#include "tests/support/gradients.h"
#include "tests/support/pair_gradients.h"
#include "ttr/layer.h"

namespace ttr {
namespace {

using test::Call;
using test::Differentiate;
using test::ExpectClose;
using test::Gradients;
using test::Normal;

class KernelRegressionGradient : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override { ASSERT_EQ(layer_.plan().engine, "kernel_regression"); }
  Layer layer_{ParseRecipe(GetParam())};
};

INSTANTIATE_TEST_SUITE_P(
    All, KernelRegressionGradient,
    testing::Values("kernel_ridge{ridge: 0.3}", "kernel_ridge{ridge: 0.3, read: before}",
                    "kernel_ridge{ridge: 0.3, causal: false}",
                    "kernel_ridge{ridge: 0.3, normalise_qk: true, scale: 2}",
                    "kernel_ridge{ridge: 0.3, output_norm: rms}",
                    "kernel_ridge{ridge: 0.3, importance: input}",
                    "kernel_ridge{ridge: 0.3, importance: log, read: before}",
                    "kernel_ridge{kernel: gaussian, bandwidth: 2, ridge: 0.3}",
                    "kernel_ridge{kernel: gaussian, bandwidth: 2, ridge: 0.3, importance: input}",
                    "kernel_ridge{kernel: laplace, bandwidth: 2, ridge: 0.3}",
                    "kernel_ridge{kernel: laplace, bandwidth: 2, ridge: 0.3, importance: log, "
                    "causal: false}",
                    "kernel_ridge{kernel: linear, ridge: 0.3}",
                    "kernel_ridge{kernel: linear, ridge: 0.3, importance: input, scale: 2}"),
    [](const auto& one) { return "case" + std::to_string(one.index); });

TEST_P(KernelRegressionGradient, IsThatOfTheDefinition) {
  test::ExpectGradientsOfTheDefinition(layer_, 1e-6);
}

TEST_P(KernelRegressionGradient, HasTheSameBitsForAnyNumberOfThreads) {
  test::ExpectSameGradientsOnAnyThreads(layer_, 300);
}

// More pairs than a block has.
TEST_P(KernelRegressionGradient, IsThatOfTheDefinitionAlongADirection) {
  const Dims dims = test::TwoMemories(150, 7, 3);
  const Call call(layer_.recipe(), dims, DType::kFloat64, 5, true);
  test::Raise(call.inputs);
  test::ExpectSlopeOfTheDefinition(layer_, call, Normal(DType::kFloat64, OutputShape(dims), 32),
                                   1e-6);
}

// A key that comes again makes all later prefixes singular, whatever its value; what such a memory
// answers is linear in values, and in queries as smooth as ever.
TEST(KernelRegressionGradients, OfSingularPrefixesAreThoseOfTheDefinition) {
  for (const char* recipe : {"kernel_ridge{kernel: gaussian, bandwidth: 2, ridge: 0}",
                             "kernel_ridge{kernel: laplace, bandwidth: 2, ridge: 0}",
                             "kernel_ridge{ridge: 0}", "kernel_ridge{kernel: linear, ridge: 0}"}) {
    const Layer layer(ParseRecipe(recipe)), defined(layer.recipe(), kDefinition);
    const Dims dims = test::TwoMemories(7, 4, 3);
    const Call call(layer.recipe(), dims, DType::kFloat64, 3);
    CopyInto(call.inputs.k.Slice(1, 1, 1), call.inputs.k.Slice(1, 3, 1));
    const Tensor dy = Normal(DType::kFloat64, OutputShape(dims), 30);
    const Gradients got = Differentiate(layer, call.inputs, {}, dy, {});
    const Gradients expected = Differentiate(defined, call.inputs, {}, dy, {});
    for (TensorView Inputs::* field : {&Inputs::q, &Inputs::v}) {
      EXPECT_LE(test::LargestDifference(got.inputs.*field, expected.inputs.*field), 1e-5) << recipe;
    }
  }
}

// Keys in a plane, and a linear kernel: moved within the plane they keep their rank.
TEST(KernelRegressionGradients, OfKeysThatKeepTheirRankAreSlopes) {
  const Layer layer(ParseRecipe("kernel_ridge{kernel: linear, ridge: 0}"));
  const Dims dims = test::TwoMemories(9, 4, 3);
  const Call call(layer.recipe(), dims, DType::kFloat64, 3);
  const Tensor direction = Normal(DType::kFloat64, call.inputs.k.shape(), 31);
  const auto flatten = [](const TensorView& keys) {
    for (std::int64_t t = 0; t < keys.size(1); ++t) {
      for (std::int64_t h = 0; h < keys.size(2); ++h) {
        for (std::int64_t c = 2; c < 4; ++c) keys.Set({0, t, h, c}, 0);
      }
    }
  };
  flatten(call.inputs.k);
  flatten(direction);
  const Tensor dy = Normal(DType::kFloat64, OutputShape(dims), 30);
  const Gradients got = Differentiate(layer, call.inputs, {}, dy, {});
  const auto loss = [&](double step) {
    const Tensor k = Tensor::Copy(call.inputs.k, DType::kFloat64);
    for (std::size_t i = 0; i < k.as<double>().size(); ++i) {
      k.as<double>()[i] += step * direction.as<double>()[i];
    }
    Inputs moved = call.inputs;
    moved.k = k;
    State state;
    const Tensor y(DType::kFloat64, OutputShape(dims));
    layer.Forward(moved, state, {.y = y});
    double sum = 0;
    for (std::size_t i = 0; i < y.as<double>().size(); ++i) {
      sum += dy.as<double>()[i] * y.as<double>()[i];
    }
    return sum;
  };
  const Tensor dk = Tensor::Copy(got.inputs.k, DType::kFloat64);
  double slope = 0;
  for (std::size_t i = 0; i < dk.as<double>().size(); ++i) {
    slope += dk.as<double>()[i] * direction.as<double>()[i];
  }
  const double difference = (loss(1e-6) - loss(-1e-6)) / 2e-6;
  EXPECT_NEAR(slope, difference, 1e-5 * std::max(1.0, std::abs(difference)));
}

// On the side where there is some, as the definition has it.
TEST(KernelRegressionGradients, ByAnImportanceOfZeroAreSlopes) {
  for (const char* recipe :
       {"kernel_ridge{ridge: 0.3, importance: input}",
        "kernel_ridge{kernel: laplace, bandwidth: 2, ridge: 0.3, importance: input, read: before}",
        "kernel_ridge{kernel: linear, ridge: 0.3, importance: input, causal: false}"}) {
    const Layer layer(ParseRecipe(recipe)), defined(layer.recipe(), kDefinition);
    Dims dims = test::TwoMemories(9, 4, 3);
    dims.query_heads = 4;
    const Call call(layer.recipe(), dims, DType::kFloat64, 3, true);
    test::Raise(call.inputs);
    for (const std::int64_t t : {0, 3, 4, 8}) call.inputs.importance.Set({0, t, t % 2}, 0);
    // One-sided differences want a curve that is slow beside their step.
    for (const std::int64_t h : {0, 1}) call.inputs.ridge.Set({h}, 2);
    const Tensor dy = Normal(DType::kFloat64, OutputShape(dims), 30);
    const Gradients got = Differentiate(layer, call.inputs, {}, dy, {});
    const Gradients expected = Differentiate(defined, call.inputs, {}, dy, {});
    ExpectClose(got, expected, 1e-5);
    EXPECT_NE(got.inputs.importance.At({0, 3, 1}), 0);
    // A pair of no weight may hold anything.
    call.inputs.k.Set({0, 3, 1, 0}, std::numeric_limits<double>::quiet_NaN());
    const Gradients spoilt = Differentiate(layer, call.inputs, {}, dy, {});
    EXPECT_EQ(spoilt.inputs.importance.At({0, 3, 1}), 0);
    EXPECT_TRUE(std::isfinite(spoilt.inputs.importance.At({0, 2, 1})));
  }
}

// What is not finite reaches what later queries depend on, if they count.
TEST(KernelRegressionGradients, LeaveWhatIsNotFiniteToWhatDependsOnIt) {
  const Layer layer(ParseRecipe("kernel_ridge{ridge: 0.3, importance: input}"));
  const Dims dims = test::TwoMemories(20, 4, 3);
  const Call clean(layer.recipe(), dims, DType::kFloat64, 3, true),
      spoilt(layer.recipe(), dims, DType::kFloat64, 3, true);
  for (const bool key : {true, false}) {
    CopyInto(clean.inputs.k, spoilt.inputs.k);
    CopyInto(clean.inputs.v, spoilt.inputs.v);
    (key ? spoilt.inputs.k : spoilt.inputs.v)
        .Set({0, 12, 1, 2}, std::numeric_limits<double>::quiet_NaN());
    const Tensor dy = Normal(DType::kFloat64, OutputShape(dims), 30);
    const Gradients all = Differentiate(layer, spoilt.inputs, {}, dy, {});
    EXPECT_TRUE(std::isnan(all.inputs.k.At({0, 4, 1, 0})));
    EXPECT_TRUE(std::isnan(all.inputs.q.At({0, 15, 1, 0})));
    EXPECT_TRUE(std::isnan(all.inputs.importance.At({0, 4, 1})));
    // Queries before it, and the other memory.
    const Gradients expected = Differentiate(layer, clean.inputs, {}, dy, {});
    for (std::int64_t t = 0; t < 20; ++t) {
      for (std::int64_t h = 0; h < (t < 12 ? 2 : 1); ++h) {
        EXPECT_NEAR(all.inputs.q.At({0, t, h, 1}), expected.inputs.q.At({0, t, h, 1}), 1e-12);
      }
      EXPECT_NEAR(all.inputs.k.At({0, t, 0, 1}), expected.inputs.k.At({0, t, 0, 1}), 1e-12);
    }
    // Where later queries do not count, all is as without them.
    const TensorView later = dy.view().Slice(1, 12, 8);
    CopyInto(Tensor(DType::kFloat64, later.shape()), later);
    const Gradients before = Differentiate(layer, spoilt.inputs, {}, dy, {});
    const Gradients without = Differentiate(layer, clean.inputs, {}, dy, {});
    for (TensorView Inputs::* field : {&Inputs::q, &Inputs::k, &Inputs::v, &Inputs::importance}) {
      EXPECT_LE(test::LargestDifference(before.inputs.*field, without.inputs.*field), 1e-12);
    }
  }
}

TEST_P(KernelRegressionGradient, InFloat32IsThatInFloat64) {
  test::ExpectGradientsInDouble(layer_, test::TwoMemories(200, 19, 21), 1e-3);
}

}  // namespace
}  // namespace ttr
