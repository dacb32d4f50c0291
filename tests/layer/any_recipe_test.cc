// Drawn recipes on drawn shapes: whatever has a meaning and runs on an engine agrees with the
// definition, as closely as the definition agrees with itself on inputs that differ in their last
// digits. TTR_DRAWS says how many are drawn.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/support/calls.h"
#include "tests/support/drawn.h"
#include "tests/support/gradients.h"
#include "tests/support/hostile.h"
#include "ttr/layer.h"

namespace ttr {
namespace {

using test::Call;
using test::Drawn;
using test::Draws;
using test::LargestDifference;
using test::Result;

double Largest(const TensorView& view) {
  const Tensor copy = Tensor::Copy(view, DType::kFloat64);
  double largest = 0;
  for (const double x : copy.as<double>()) largest = std::max(largest, std::abs(x));
  return largest;
}

// What a disturbance of some hundred roundings makes of the definition is the condition. An engine
// may round as much some thousand times.
void ExpectNear(const TensorView& expected, const TensorView& disturbed, const TensorView& got,
                const std::string& what) {
  const double condition = 1000 * LargestDifference(expected, disturbed);
  EXPECT_LE(LargestDifference(expected, got), condition + 1e-11 * Largest(expected)) << what;
}

void ExpectNear(const Result& expected, const Result& disturbed, const Result& got,
                const std::string& what) {
  ExpectNear(expected.y, disturbed.y, got.y, what + ", y");
  for (const State::Entry& entry : expected.state.entries()) {
    ExpectNear(entry.view, disturbed.state.Get(entry.name), got.state.Get(entry.name),
               what + ", " + entry.name);
  }
}

// Weights of a network whose steps are too long, which a norm of its outputs hides.
bool Diverges(const Result& result) {
  const auto grows = [](const State::Entry& entry) { return !(Largest(entry.view) < 1e6); };
  return Largest(result.status) > 0 || std::ranges::any_of(result.state.entries(), grows);
}

TEST(AnyRecipe, AgreesWithTheDefinition) {
  Drawn drawn(1);
  std::int64_t compared = 0;
  for (std::int64_t i = 0; i < Draws(600); ++i) {
    const Recipe recipe = drawn.Next();
    const Dims dims = drawn.Shape(recipe, 40, 20);
    SCOPED_TRACE(std::to_string(i) + ": " + ToString(recipe) +
                 ", T = " + std::to_string(dims.tokens) + ", Dk = " + std::to_string(dims.key_dim) +
                 ", Dv = " + std::to_string(dims.value_dim));
    const Layer layer(recipe), definition(recipe, kDefinition);
    const auto seed = static_cast<std::uint64_t>(i);
    const Call call(recipe, dims, DType::kFloat64, seed, drawn.Draw(2) == 1);
    const Result expected = RunWhole(definition, call), got = RunWhole(layer, call);
    // Memories that grow without bound, and regressions that are all but singular.
    if (!(Largest(expected.y) < 1e6)) continue;
    if (layer.plan().engine == "network" && Diverges(expected)) continue;
    ++compared;
    Result pieces;
    const bool waits = recipe.reading.read == Read::kBatchEnd;  // for tokens of a later piece
    const bool steps = recipe.reading.causal && !waits && dims.tokens > 0;
    if (steps) pieces = RunInPieces(layer, call, drawn.Draw(dims.tokens));
    Result deferred;
    if (steps) deferred = RunDecoder(layer, call);
    drawn.Disturb(call);
    const Result disturbed = RunWhole(definition, call);
    ExpectNear(expected, disturbed, got, "whole");
    if (steps) ExpectNear(expected, disturbed, pieces, "in pieces");
    if (steps) ExpectNear(expected, disturbed, deferred, "deferred");
  }
  EXPECT_GE(compared, Draws(600) * 9 / 10);
}

// Central differences of the definition have some ten digits, and four where it bends.
TEST(AnyRecipe, HasTheGradientsOfTheDefinition) {
  Drawn drawn(2);
  std::int64_t compared = 0;
  const std::int64_t draws = Draws(600) / 4;
  for (std::int64_t i = 0; i < draws; ++i) {
    const Recipe recipe = drawn.Next();
    const Dims dims = drawn.Shape(recipe, 6, 4);
    SCOPED_TRACE(std::to_string(i) + ": " + ToString(recipe) +
                 ", T = " + std::to_string(dims.tokens) + ", Dk = " + std::to_string(dims.key_dim) +
                 ", Dv = " + std::to_string(dims.value_dim));
    const Layer layer(recipe), definition(recipe, kDefinition);
    // Other solvers that iterate have the gradient of what they converge to.
    const Solver solver = recipe.optimizer.solver;
    if (solver == Solver::kConjugateGradient || solver == Solver::kChebyshev) continue;
    if (recipe.reading.output_norm != OutputNorm::kNone) continue;  // no slope at 0
    // A norm within a network bends where its input is as small as its eps, as of one channel of
    // keys: sharper than a difference sees. Networks with norms have tests of their own.
    if (recipe.function.norm) continue;
    const Call call(recipe, dims, DType::kFloat64, static_cast<std::uint64_t>(i), i % 2 == 0);
    const Tensor dy = test::Normal(
        DType::kFloat64, {dims.batch, dims.tokens, dims.output_heads(), dims.value_dim}, 5);
    test::Gradients expected = test::Differentiate(definition, call.inputs, {}, dy, {});
    test::Gradients got = test::Differentiate(layer, call.inputs, {}, dy, {});
    double largest = 0;
    for (const InputField& field : InputFields()) {
      const TensorView& x = expected.inputs.*field.view;
      if (x.defined()) largest = std::max(largest, Largest(x));
    }
    if (!(largest < 1e3)) continue;  // close to what is singular
    // An empty memory may be where the solution of least norm has no slope.
    expected.initial = got.initial = State();
    ++compared;
    test::ExpectClose(got, expected, 1e-4);
  }
  EXPECT_GE(compared, draws / 2);
}

}  // namespace
}  // namespace ttr
