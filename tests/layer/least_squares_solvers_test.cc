// Solvers that iterate: what they come to in the end, and in how many steps.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "tests/support/regressions.h"
#include "ttr/layer.h"

namespace ttr {
namespace {

using test::Call;
using test::Condition;
using test::Conditions;
using test::RunWhole;

// The greatest |difference| / (|M| |q|) of answers of two recipes that take the same inputs.
double Apart(const std::string& one, const std::string& other, const Dims& dims) {
  const Call call(ParseRecipe(one), dims, DType::kFloat64, 3);
  Call same(ParseRecipe(other), dims, DType::kFloat64, 3);
  for (const InputField& field : InputFields()) {
    if ((same.inputs.*field.view).defined()) {
      CopyInto(call.inputs.*field.view, same.inputs.*field.view);
    }
  }
  const test::Result x = RunWhole(Layer(call.recipe), call);
  const test::Result y = RunWhole(Layer(same.recipe, kDefinition), same);
  const std::vector<Condition> conditions = Conditions(call);
  const std::vector<double> lengths = test::QueryLengths(call);
  double worst = 0;
  for (std::int64_t t = 0; t < dims.tokens; ++t) {
    for (std::int64_t h = 0; h < dims.heads; ++h) {
      const auto at = static_cast<std::size_t>(t * dims.heads + h);
      double squares = 0;
      for (std::int64_t c = 0; c < dims.value_dim; ++c) {
        squares += std::pow(x.y.view().At({0, t, h, c}) - y.y.view().At({0, t, h, c}), 2);
      }
      worst = std::max(worst, std::sqrt(squares) / (conditions[at].memory * lengths[at]));
    }
  }
  return worst;
}

TEST(IterativeSolvers, EnoughConjugateGradientsAreExact) {
  for (const char* preconditioner :
       {"none", "diagonal", "block_diagonal", "chunk_factor, tolerance: 1e-15"}) {
    const std::string recipe =
        "uniform | linear | conjugate_gradient(steps: 60, ridge: 0.1, "
        "preconditioner: " +
        std::string(preconditioner) + ")";
    EXPECT_LE(Apart(recipe, "rls{ridge: 0.1}", test::TwoMemories(80, 12, 5)), 1e-12)
        << preconditioner;
  }
}

TEST(IterativeSolvers, AToleranceBoundsTheError) {
  for (const char* tolerance : {"1e-2", "1e-5"}) {
    const std::string recipe =
        "decay(scalar) x importance(input) | linear | conjugate_gradient("
        "steps: 60, ridge: 0.25, ridge_kind: constant, tolerance: " +
        std::string(tolerance) + ")";
    const double error = Apart(recipe, "mesa", test::TwoMemories(80, 12, 5));
    EXPECT_LE(error, std::stod(tolerance));
    EXPECT_GE(error, 1e-3 * std::stod(tolerance)) << "it does not stop";
  }
}

// What every answer's iteration took, of both ways; -1 before.
std::vector<std::int64_t> IterationsOf(const Layer& layer, const Call& call, std::int64_t piece) {
  const Dims& dims = call.dims;
  Tensor y(call.inputs.v.dtype(), {dims.batch, dims.tokens, dims.output_heads(), dims.value_dim});
  Tensor iterations(DType::kInt64, {dims.batch, dims.tokens, dims.output_heads()});
  for (std::int64_t& n : iterations.as<std::int64_t>()) n = -1;
  State state;
  for (std::int64_t begin = 0; begin < dims.tokens; begin += piece) {
    const std::int64_t count = std::min(piece, dims.tokens - begin);
    Outputs outputs{.y = y.view().Slice(1, begin, count)};
    outputs.iterations = iterations.view().Slice(1, begin, count);
    layer.Forward(test::TokensOf(call, begin, count), state, outputs);
  }
  const auto all = iterations.as<std::int64_t>();
  return {all.begin(), all.end()};
}

TEST(IterativeSolvers, IterationsAreThoseOfTheDefinition) {
  for (const char* text :
       {"decay(scalar) | linear | conjugate_gradient(steps: 20, ridge: 0.3, ridge_kind: constant, "
        "tolerance: 1e-3)",
        "uniform | linear | conjugate_gradient(steps: 2, ridge: 0.1, tolerance: 1e-6)", "kalmanet",
        "batch_gd", "rls", "mesa", "softmax", "gated_deltanet", "hgrn"}) {
    const Recipe recipe = ParseRecipe(text);
    Dims dims = test::SmallDims(recipe);
    dims.tokens = 30;
    const Call call(recipe, dims, DType::kFloat64, 4);
    const Layer definition(recipe, kDefinition);
    const std::vector<std::int64_t> defined = IterationsOf(definition, call, 30);
    const bool iterates = recipe.optimizer.steps > 1;
    for (const std::int64_t n : defined) {
      EXPECT_LE(n, iterates ? recipe.optimizer.steps : 0) << text;
      EXPECT_GE(n, iterates ? 1 : 0) << text;
    }
    for (const std::int64_t piece : {30, 7, 1}) {
      EXPECT_EQ(IterationsOf(Layer(recipe), call, piece), defined) << text << " " << piece;
    }
  }
}

// P is A^-1 but for what the ridge gains on the associations within a chunk, whatever the keys:
// with g = .99 a factor of 1.37 in 32 tokens, whose root is the condition that is left.
TEST(IterativeSolvers, AChunksFactorLeavesFewSteps) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
    for (const double size : {0.1, 1.0, 10.0}) {
      const Call call(ParseRecipe("decay(0.99) | linear | conjugate_gradient(steps: 20, ridge: "
                                  "0.01, ridge_kind: constant, tolerance: 1e-3, preconditioner: "
                                  "chunk_factor)"),
                      test::TwoMemories(100, 20, 5), dtype, 3);
      for (std::int64_t t = 0; t < 100; ++t) {
        for (std::int64_t i = 0; i < 40; ++i) {
          const double x = call.inputs.k.At({0, t, i / 20, i % 20});
          call.inputs.k.Set({0, t, i / 20, i % 20}, size * x);
        }
      }
      Tensor y(dtype, {1, 100, 2, 5});
      Tensor status(DType::kInt8, {1, 100, 2}), iterations(DType::kInt64, {1, 100, 2});
      State state;
      Layer(call.recipe)
          .Forward(call.inputs, state,
                   {.y = y.view(), .status = status.view(), .iterations = iterations.view()});
      double sum = 0;
      for (std::int64_t t = 0; t < 100; ++t) {
        for (std::int64_t h = 0; h < 2; ++h) {
          EXPECT_EQ(status.view().At({0, t, h}), 0);
          EXPECT_LE(iterations.view().At({0, t, h}), 3) << t << " " << size;
          sum += iterations.view().At({0, t, h});
        }
      }
      EXPECT_LE(sum / 200, 2.5);
      EXPECT_GE(sum / 200, 1);
    }
  }
}

// No ridge: the first tokens have no factor, and go on with the diagonal.
TEST(IterativeSolvers, WithoutAFactorTheDiagonalPreconditions) {
  const std::string start = "decay(0.9) | linear | conjugate_gradient(steps: 60, tolerance: 1e-9, ";
  const Call call(ParseRecipe(start + "preconditioner: chunk_factor)"), test::TwoMemories(7, 12, 5),
                  DType::kFloat64, 3);
  const Recipe diagonal = ParseRecipe(start + "preconditioner: diagonal)");
  const test::Result without = RunWhole(Layer(call.recipe), call);
  const test::Result with =
      RunWhole(Layer(diagonal), Call(diagonal, test::TwoMemories(7, 12, 5), DType::kFloat64, 3));
  EXPECT_EQ(test::LargestDifference(without.y, with.y), 0);
  EXPECT_EQ(test::LargestDifference(without.status, with.status), 0);
}

TEST(IterativeSolvers, ManyGradientStepsAreExact) {
  for (const char* preconditioner : {"diagonal", "block_diagonal"}) {
    const std::string recipe = "quasi_newton{steps: 4000, eta: 1.9, ridge: 0.1, preconditioner: " +
                               std::string(preconditioner) + "}";
    EXPECT_LE(Apart(recipe, "rls{ridge: 0.1}", test::TwoMemories(40, 6, 5)), 1e-11)
        << preconditioner;
  }
}

TEST(IterativeSolvers, ManyChebyshevStepsAreExact) {
  EXPECT_LE(Apart("kalmanet{ridge_kind: constant, ridge: 0.25, importance: input, steps: 1000}",
                  "mesa", test::TwoMemories(40, 6, 5)),
            1e-11);
}

}  // namespace
}  // namespace ttr
