// Local polynomials beside the definition, per token and head: extreme weights and keys, hits, no
// neighbour, systems that are singular, what is not finite. And what they are by other names.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "tests/support/calls.h"
#include "tests/support/targets.h"
#include "ttr/layer.h"
#include "ttr/util/random.h"

namespace ttr {
namespace {

using test::Call;
using test::LargestDifference;
using test::Result;
using test::RunWhole;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// |a - b| of the channel where it is largest, [B, T, heads]; equal NaNs are no difference.
std::vector<double> Distances(const TensorView& a, const TensorView& b) {
  const Tensor x = Tensor::Copy(a, DType::kFloat64), y = Tensor::Copy(b, DType::kFloat64);
  const std::int64_t channels = a.size(3);
  std::vector<double> most(static_cast<std::size_t>(x.elements() / channels));
  for (std::int64_t i = 0; i < x.elements(); ++i) {
    const double p = x.as<double>()[i], q = y.as<double>()[i];
    double& to = most[static_cast<std::size_t>(i / channels)];
    if (std::isnan(p) && std::isnan(q)) continue;
    const double distance = std::abs(p - q);
    to = std::isnan(distance) ? std::numeric_limits<double>::infinity() : std::max(to, distance);
  }
  return most;
}

std::vector<double> Sizes(const TensorView& y) {
  std::vector<double> sizes = Distances(y, Tensor(DType::kFloat64, y.shape()));
  for (double& size : sizes) size = std::isfinite(size) ? size : 0;
  return sizes;
}

// A ridge that is nearly none stays the recipe's; else there is an input in its place.
struct Drawn : Call {
  Drawn(const Recipe& recipe_in, const Dims& dims_in, DType dtype, std::uint64_t seed)
      : Call(recipe_in, dims_in, dtype, seed, true) {
    if (recipe.optimizer.ridge < 1e-6) inputs.ridge = {};
  }
};

// The inputs of `call` in double, and disturbed by as much as `relative`.
struct Wide : Call {
  explicit Wide(const Call& call) : Call(call.recipe, call.dims, DType::kFloat64, 1, true) {
    for (const InputField& field : InputFields()) {
      const TensorView& from = call.inputs.*field.view;
      if (!from.defined()) {
        inputs.*field.view = {};
      } else if (IsFloating(from.dtype())) {
        CopyInto(from, inputs.*field.view);
      } else {
        inputs.*field.view = from;
      }
    }
  }
  void Disturb(double relative, std::uint64_t seed) {
    CounterRandom noise(seed, 0);
    for (const TensorView* view : {&inputs.q, &inputs.k, &inputs.v, &inputs.importance,
                                   &inputs.log_importance, &inputs.log_decay}) {
      if (!view->defined()) continue;
      for (std::int64_t i = 0; i < view->shape().elements(); ++i) {
        view->as<double>()[i] *= 1 + relative * (2 * noise.Uniform() - 1);
      }
    }
  }
};

class LocalPolynomial : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override { ASSERT_EQ(layer.plan().engine, "local_polynomial"); }

  // Whole, in pieces and token by token. What one rounding of every input does to the definition
  // is the condition; `roundings` of them are allowed.
  void ExpectAgreement(const Call& call, double roundings = 100) const {
    const double eps = call.inputs.v.dtype() == DType::kFloat64 ? 0x1p-52 : 0x1p-23;
    const Layer definition(layer.recipe(), kDefinition);
    const Result defined = RunWhole(definition, Wide(call));
    std::vector<double> allowed = Sizes(defined.y);
    for (double& size : allowed) size *= roundings * eps;
    for (std::uint64_t seed = 1; seed <= 8; ++seed) {
      // More than a rounding, so that what the definition rounds itself does not count.
      Wide other(call);
      other.Disturb(16 * eps, seed);
      const std::vector<double> moved = Distances(defined.y, RunWhole(definition, other).y);
      for (std::size_t i = 0; i < allowed.size(); ++i) {
        if (std::isfinite(moved[i])) allowed[i] = std::max(allowed[i], roundings / 16 * moved[i]);
      }
    }
    const auto expect = [&](const Result& got, const std::string& what) {
      const std::vector<double> distance = Distances(defined.y, got.y);
      for (std::size_t i = 0; i < distance.size(); ++i) {
        ASSERT_LE(distance[i], allowed[i])
            << what << ", row " << i << ": " << defined.status.as<std::int8_t>()[i] + 0;
      }
      EXPECT_EQ(LargestDifference(defined.status, got.status), 0) << what;
    };
    for (const std::string& target : test::Targets()) {
      const test::OnTarget on(target);
      expect(RunWhole(layer, call), "whole, " + target);
      if (!layer.recipe().reading.causal) continue;
      expect(RunInPieces(layer, call, 1), "token by token, " + target);
    }
    if (layer.recipe().reading.causal) expect(RunInPieces(layer, call, 37), "in pieces");
  }

  Layer layer{ParseRecipe(GetParam())};
};

INSTANTIATE_TEST_SUITE_P(
    All, LocalPolynomial,
    testing::Values("local_linear", "local_linear{causal: false, ridge: 0.1}",
                    "local_linear{window: 70}", "local_linear{decay: scalar, importance: input}",
                    "local_linear{importance: log, read: before, ridge: 1}",
                    "local_linear{kernel: gaussian, bandwidth: 4, output_norm: rms}",
                    "local_linear{kernel: laplace, bandwidth: 1}",
                    "local_linear{kernel: epanechnikov, bandwidth: 3}",
                    "local_linear{kernel: biweight, bandwidth: 3, decay: scalar}",
                    "local_linear{kernel: triweight, bandwidth: 4, causal: false}",
                    "local_linear{pair_bias: input, ridge: 0}",
                    "local_linear{pair_bias: power, extent: 5, ridge: 0.1}",
                    "local_linear{kernel: laplace, bandwidth: 2, pair_bias: input, decay: scalar}",
                    "local_linear{kernel: inverse_distance, decay: scalar}",
                    "local_linear{kernel: inverse_distance, window: 5, normalise_qk: true}",
                    "local_linear{ridge: 1e-9}", "local_linear{ridge: 1e-9, decay: 0.9}",
                    "local_linear{ridge: 0}", "local_linear{ridge: 0, decay: 0.7, window: 30}",
                    "local_linear{ridge: 0, kernel: gaussian, bandwidth: 0.3}",
                    "local_quadratic{ridge: 0, kernel: epanechnikov, bandwidth: 3}",
                    "local_cubic{ridge: 0, kernel: laplace, bandwidth: 1}", "local_quadratic",
                    "local_quadratic{kernel: gaussian, bandwidth: 4, window: 40}",
                    "local_quadratic{ridge: 1e-9, kernel: laplace, bandwidth: 2}",
                    "local_cubic{decay: scalar, importance: log}",
                    "local_cubic{kernel: triweight, bandwidth: 5, read: before}"),
    [](const auto& one) { return "case" + std::to_string(one.index); });

TEST_P(LocalPolynomial, GoesOverSeveralBlocks) {
  const std::int64_t degree = layer.recipe().function.degree;
  const std::int64_t channels = degree == 1 ? 5 : degree == 2 ? 3 : 2;
  const Dims dims = test::TwoMemories(140, channels, 19);
  ExpectAgreement(Drawn(layer.recipe(), dims, DType::kFloat64, 1));
  ExpectAgreement(Drawn(layer.recipe(), dims, DType::kFloat32, 1));
}

TEST_P(LocalPolynomial, TakesManyChannels) {
  const std::int64_t degree = layer.recipe().function.degree;
  const Dims dims = test::TwoMemories(50, degree == 1 ? 35 : degree == 2 ? 7 : 4, 3);
  ExpectAgreement(Drawn(layer.recipe(), dims, DType::kFloat32, 1));
}

// Every fourth query is a key that came before, some of them twice.
TEST_P(LocalPolynomial, MeetsKeysThatAreTheQuery) {
  const Dims dims = test::TwoMemories(60, 3, 3);
  const Drawn call(layer.recipe(), dims, DType::kFloat64, 2);
  for (std::int64_t t = 8; t < dims.tokens; t += 4) {
    for (std::int64_t h = 0; h < 2; ++h) {
      for (std::int64_t c = 0; c < 3; ++c) {
        const double x = call.inputs.k.At({0, t / 2, h, c});
        call.inputs.q.Set({0, t, h, c}, x);
        if (t % 8 == 0) call.inputs.k.Set({0, t / 2 + 1, h, c}, x);
      }
    }
  }
  ExpectAgreement(call);
}

TEST_P(LocalPolynomial, SpansScalesThatAreFarApart) {
  // A cubic's monomials are 10^-9 to 1: the condition of its normal equations is the square of
  // what a disturbance tells.
  const std::int64_t scales = layer.recipe().function.degree == 3 ? 3 : 5;
  const Dims dims = test::TwoMemories(60, 3, 3);
  const Drawn call(layer.recipe(), dims, DType::kFloat64, 3);
  for (std::int64_t t = 0; t < dims.tokens; ++t) {
    const double by = std::pow(10.0, static_cast<double>(t % scales) - 3);
    for (std::int64_t c = 0; c < 3; ++c) {
      call.inputs.k.Set({0, t, 0, c}, by * call.inputs.k.At({0, t, 0, c}));
      call.inputs.q.Set({0, t, 1, c}, by * call.inputs.q.At({0, t, 1, c}));
    }
  }
  ExpectAgreement(call, 1000);
}

// Keys far from the origin, and queries far from all keys.
TEST_P(LocalPolynomial, FindsKeysThatAreFarAway) {
  const Dims dims = test::TwoMemories(60, 3, 3);
  const Drawn call(layer.recipe(), dims, DType::kFloat32, 3);
  for (std::int64_t t = 0; t < dims.tokens; ++t) {
    for (std::int64_t c = 0; c < 3; ++c) {
      call.inputs.k.Set({0, t, 0, c}, 100 + call.inputs.k.At({0, t, 0, c}));
      call.inputs.q.Set({0, t, 0, c}, 100 + call.inputs.q.At({0, t, 0, c}));
      if (c == 0) call.inputs.q.Set({0, t, 1, c}, 10 + call.inputs.q.At({0, t, 1, c}));
    }
  }
  ExpectAgreement(call, 300);
}

// All keys the same, or on a line: no slopes, or those along it.
TEST_P(LocalPolynomial, TakesTheLeastNormOfWhatKeysDoNotSpan) {
  const Dims dims = test::TwoMemories(40, 3, 3);
  const Drawn call(layer.recipe(), dims, DType::kFloat64, 3);
  for (std::int64_t t = 0; t < dims.tokens; ++t) {
    for (std::int64_t c = 0; c < 3; ++c) {
      call.inputs.k.Set({0, t, 0, c}, 0.5);
      call.inputs.k.Set({0, t, 1, c}, c == 1 ? call.inputs.k.At({0, t, 1, c}) : 0.25);
    }
  }
  ExpectAgreement(call, 1000);
}

TEST_P(LocalPolynomial, LeavesNanToItsReaders) {
  const Dims dims = test::TwoMemories(60, 3, 3);
  const Drawn call(layer.recipe(), dims, DType::kFloat64, 4);
  call.inputs.v.Set({0, 20, 0, 1}, kNan);
  call.inputs.k.Set({0, 40, 1, 2}, kNan);
  call.inputs.q.Set({0, 10, 0, 0}, kNan);
  ExpectAgreement(call);
}

TEST_P(LocalPolynomial, KeepsTheBitsOfEveryNumberOfThreads) {
  Dims dims = test::TwoMemories(200, 3, 8);
  dims.query_heads = 6;
  const Drawn call(layer.recipe(), dims, DType::kFloat32, 5);
  const auto five = MakeExecutor(5);
  const Result one = RunWhole(layer, call, {.executor = &SequentialExecutor()});
  const Result many = RunWhole(layer, call, {.executor = five.get()});
  EXPECT_EQ(LargestDifference(one.y, many.y), 0);
}

Tensor Outputs(const char* recipe, const Call& call) {
  State state;
  Tensor y(call.inputs.v.dtype(), OutputShape(call.dims));
  Layer(ParseRecipe(recipe)).Forward(call.inputs, state, {.y = y});
  return y;
}

TEST(LocalPolynomials, OfInfiniteRidgeAreSoftmax) {
  const Dims dims = test::TwoMemories(120, 4, 5);
  for (const DType dtype : {DType::kFloat64, DType::kFloat32}) {
    const Call call(ParseRecipe("softmax"), dims, dtype, 6);
    const Tensor softmax = Outputs("softmax", call);
    const double eps = dtype == DType::kFloat64 ? 1e-14 : 3e-6;
    for (const char* recipe : {"local_linear{ridge: 1e25}", "local_quadratic{ridge: 1e25}"}) {
      EXPECT_LE(LargestDifference(softmax, Outputs(recipe, call)), eps) << recipe;
    }
  }
}

// v = f(k), whatever the weights, from as many tokens on as f has coefficients.
void ExpectReproduced(const char* recipe, std::int64_t from, double tolerance, DType dtype,
                      const std::function<double(double, double)>& f) {
  const Dims dims = test::TwoMemories(80, 2, 1);
  Call call(ParseRecipe(recipe), dims, dtype, 7);
  const Tensor none(DType::kFloat64, {2});
  call.inputs.ridge = none.view();
  for (std::int64_t t = 0; t < dims.tokens; ++t) {
    for (std::int64_t h = 0; h < 2; ++h) {
      const auto value = [&](const TensorView& x) {
        return f(x.At({0, t, h, 0}), x.At({0, t, h, 1}));
      };
      call.inputs.v.Set({0, t, h, 0}, value(call.inputs.k));
    }
  }
  const Tensor y = Outputs(recipe, call);
  for (std::int64_t t = from; t < dims.tokens; ++t) {
    for (std::int64_t h = 0; h < 2; ++h) {
      const double exact = f(call.inputs.q.At({0, t, h, 0}), call.inputs.q.At({0, t, h, 1}));
      EXPECT_NEAR(y.view().At({0, t, h, 0}), exact, tolerance) << recipe << ", token " << t;
    }
  }
}

TEST(LocalPolynomials, ReproducePolynomialsOfTheirDegree) {
  const auto affine = [](double x, double y) { return 3 * x - 2 * y + 1; };
  const auto quadratic = [](double x, double y) { return x * x - 2 * x * y + 0.5 * y + 1; };
  for (const char* recipe : {"local_linear", "local_linear{kernel: gaussian, bandwidth: 1}",
                             "local_linear{decay: 0.8}"}) {
    ExpectReproduced(recipe, 10, 1e-9, DType::kFloat64, affine);
    ExpectReproduced(recipe, 10, 2e-4, DType::kFloat32, affine);
  }
  for (const char* recipe : {"local_quadratic", "local_quadratic{kernel: laplace, bandwidth: 1}"}) {
    ExpectReproduced(recipe, 20, 1e-8, DType::kFloat64, quadratic);
    ExpectReproduced(recipe, 20, 2e-3, DType::kFloat32, quadratic);
  }
  ExpectReproduced("local_cubic", 30, 1e-7, DType::kFloat64, quadratic);
}

TEST(LocalPolynomials, WithoutForgettingAreTheSame) {
  const Dims dims = test::TwoMemories(60, 3, 5);
  const Call call(ParseRecipe("local_linear"), dims, DType::kFloat64, 7);
  const Tensor plain = Outputs("local_linear", call);
  for (const char* name :
       {"local_linear{decay: 1}", "local_linear{window: 60}", "local_linear{window: 500}"}) {
    EXPECT_LE(LargestDifference(plain, Outputs(name, call)), 1e-12) << name;
  }
}

// Conjugate gradients fit 64 channels where the ridge is no smaller than the variances.
TEST(LocalPolynomials, OfManyChannelsAreThoseOfTheDefinition) {
  const Dims dims = test::TwoMemories(96, 64, 3);
  for (const char* recipe :
       {"local_linear{ridge: 2}", "local_linear{normalise_qk: true}",
        "local_linear{kernel: gaussian, bandwidth: 20, ridge: 0.5, window: 70}"}) {
    const Layer layer(ParseRecipe(recipe)), defined(layer.recipe(), kDefinition);
    const Call narrow(layer.recipe(), dims, DType::kFloat32, 12);
    const Wide wide(narrow);
    const Tensor y = RunWhole(defined, wide).y;
    EXPECT_LE(LargestDifference(y, RunWhole(layer, wide).y), 1e-12) << recipe;
    EXPECT_LE(LargestDifference(Tensor::Copy(RunWhole(layer, narrow).y, DType::kFloat64), y), 2e-5)
        << recipe;
  }
}

// The past has no order but that of its weights.
TEST(LocalPolynomials, DoNotKnowTheOrderOfThePast) {
  const Dims dims = test::TwoMemories(90, 6, 5);
  const Call call(ParseRecipe("local_linear"), dims, DType::kFloat64, 8);
  const Tensor before = Outputs("local_linear", call);
  for (std::int64_t t = 0; t < 44; ++t) {
    for (const TensorView* rows : {&call.inputs.k, &call.inputs.v}) {
      const Tensor kept = Tensor::Copy(rows->Slice(1, t, 1));
      CopyInto(rows->Slice(1, 88 - t, 1), rows->Slice(1, t, 1));
      CopyInto(kept, rows->Slice(1, 88 - t, 1));
    }
  }
  const Tensor after = Outputs("local_linear", call);
  EXPECT_LE(LargestDifference(before.view().Slice(1, 89, 1), after.view().Slice(1, 89, 1)), 1e-11);
}

// The definition answers where there are more monomials than systems are solved for.
TEST(LocalPolynomials, OfManyMonomialsRunOnTheDefinition) {
  const Dims dims = test::TwoMemories(8, 22, 2);
  const Layer layer(ParseRecipe("local_quadratic")), defined(layer.recipe(), kDefinition);
  const Call call(layer.recipe(), dims, DType::kFloat64, 9);
  EXPECT_EQ(LargestDifference(RunWhole(defined, call).y, RunWhole(layer, call).y), 0);
  EXPECT_EQ(LargestDifference(RunWhole(defined, call).y, RunInPieces(layer, call, 3).y), 0);
  EXPECT_EQ(layer.plan().engine, "local_polynomial");
  const Plan plan = MakePlan(layer.recipe(), dims);
  EXPECT_EQ(plan.engine, kDefinition);
  EXPECT_NE(plan.why.find("more than 256 monomials"), std::string::npos) << plan.why;
  EXPECT_EQ(MakePlan(layer.recipe(), test::TwoMemories(8, 21, 2)).engine, "local_polynomial");
  EXPECT_EQ(MakePlan(ParseRecipe("local_cubic{degree: 4}")).engine, kDefinition);
}

}  // namespace
}  // namespace ttr
