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
#include "ttr/layer.h"

namespace ttr {
namespace {

using test::Call;
using test::Differentiate;
using test::ExpectClose;
using test::ExpectWithin;
using test::Gradients;
using test::Normal;
using test::RandomState;

// Away from 0, where differences have no two sides.
void Raise(const TensorView& weights) {
  if (!weights.defined()) return;
  double* numbers = weights.as<double>();
  for (std::int64_t i = 0; i < weights.shape().elements(); ++i) numbers[i] += 0.3;
}

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

// Central differences of step 6e-6 have some nine digits.
TEST_P(KernelRegressionGradient, IsThatOfTheDefinition) {
  for (const bool grouped : {false, true}) {
    Dims dims = test::SmallDims(layer_.recipe());
    dims.batch = 1;
    dims.tokens = 5;
    dims.query_heads = grouped ? 2 : 8;
    const Call call(layer_.recipe(), dims, DType::kFloat64, 3, true);
    for (const TensorView* weights : {&call.inputs.importance, &call.inputs.ridge}) Raise(*weights);
    Raise(call.inputs.bandwidth);
    const Tensor dy = Normal(DType::kFloat64, OutputShape(dims), 30);
    const Layer defined(layer_.recipe(), kDefinition);
    State initial, dstate;
    if (layer_.recipe().reading.causal) {
      initial = RandomState(layer_, call.inputs, 10);
      for (const StateSpec& spec : layer_.requirements().state) {
        if (spec.counts) continue;
        dstate.Set(spec.name,
                   Normal(DType::kFloat64, StateShape(spec, layer_.recipe(), dims, 12), 21));
      }
    }
    const Gradients got = Differentiate(layer_, call.inputs, initial, dy, dstate);
    const Gradients expected = Differentiate(defined, call.inputs, initial, dy, dstate);
    ExpectClose(got, expected, 1e-6);
  }
}

TEST_P(KernelRegressionGradient, HasTheSameBitsForAnyNumberOfThreads) {
  Dims dims = test::SmallDims(layer_.recipe());
  dims.batch = 1;
  dims.heads = dims.key_heads = dims.value_heads = dims.query_heads = 2;
  dims.tokens = 300;
  const Call call(layer_.recipe(), dims, DType::kFloat32, 4);
  const Tensor dy = Normal(DType::kFloat32, OutputShape(dims), 30);
  const auto five = MakeExecutor(5);
  const Gradients one =
      Differentiate(layer_, call.inputs, {}, dy, {}, {.executor = &SequentialExecutor()});
  const Gradients many = Differentiate(layer_, call.inputs, {}, dy, {}, {.executor = five.get()});
  ExpectWithin(one, many, 0);
}

// More pairs than a block has.
TEST_P(KernelRegressionGradient, IsThatOfTheDefinitionAlongADirection) {
  const Dims dims = test::TwoMemories(150, 7, 3);
  const Call call(layer_.recipe(), dims, DType::kFloat64, 5, true);
  for (const TensorView* weights : {&call.inputs.importance, &call.inputs.ridge}) Raise(*weights);
  Raise(call.inputs.bandwidth);
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
    Raise(call.inputs.importance);
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

// In float32 what it is in float64.
TEST_P(KernelRegressionGradient, InFloat32IsThatInFloat64) {
  const Dims dims = test::TwoMemories(200, 19, 21);
  const Call narrow(layer_.recipe(), dims, DType::kFloat32, 5);
  const Call wide(layer_.recipe(), dims, DType::kFloat64, 5);
  for (const InputField& field : InputFields()) {
    const TensorView& from = narrow.inputs.*field.view;
    if (from.defined()) CopyInto(from, wide.inputs.*field.view);
  }
  const Tensor dy = Normal(DType::kFloat32, OutputShape(dims), 30);
  const Gradients expected = Differentiate(layer_, wide.inputs, {}, dy, {});
  const Gradients got = Differentiate(layer_, narrow.inputs, {}, dy, {});
  for (const InputField& field : InputFields()) {
    const TensorView exact = expected.inputs.*field.view;
    if (!exact.defined()) continue;
    double largest = 1;
    for (std::int64_t i = 0; i < exact.shape().elements(); ++i) {
      largest = std::max(largest, std::abs(exact.as<double>()[i]));
    }
    EXPECT_LE(test::LargestDifference(got.inputs.*field.view, exact), 1e-3 * largest) << field.name;
  }
}

}  // namespace
}  // namespace ttr
