// A factor of exactly 0 takes nothing: rows that are not finite, weighed by a step, an importance
// or a gate of 0, count as rows of zeros. Every layer that has such a factor, forwards and
// backwards, for all memories and for one of several that share a row.
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "src/recipe/family.h"
#include "tests/support/calls.h"
#include "tests/support/gradients.h"
#include "tests/support/recipes.h"
#include "ttr/layer.h"

namespace ttr {
namespace {

using test::Call;
using test::Fill;
using test::LargestDifference;
using test::Result;
using Field = TensorView Inputs::*;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// A factor, the value at which it takes nothing, and what it weighs.
struct Factor {
  std::string name;
  Field field;
  double nothing;
  std::vector<Field> rows;
};

std::vector<Factor> FactorsOf(const Recipe& recipe) {
  using enum Importance;
  const bool undecayed = recipe.optimizer.erase == Erase::kUndecayed;
  const bool by_step = recipe.optimizer.solver == Solver::kSgd;
  const Importance importance = recipe.weights.importance;
  std::vector<Factor> factors;
  for (const InputSpec& spec : InputSpecs(recipe)) {
    if (spec.name == "step" && by_step) {
      factors.push_back({"step", &Inputs::step, 0, {&Inputs::k, &Inputs::v}});
      if (!undecayed) factors.back().rows.push_back(&Inputs::erase_key);
      if (!undecayed) factors.back().rows.push_back(&Inputs::erase_gate);
    } else if (spec.name == "importance" && !by_step) {
      factors.push_back(
          {"importance", &Inputs::importance, 0, {&Inputs::k, &Inputs::v, &Inputs::v_im}});
    } else if (spec.name == "log_importance") {
      factors.push_back(
          {"log_importance", &Inputs::log_importance, -kInfinity, {&Inputs::k, &Inputs::v}});
    } else if (spec.name == "erase_gate" && undecayed) {
      factors.push_back({"erase_gate", &Inputs::erase_gate, 0, {&Inputs::erase_key}});
    } else if (spec.name == "log_decay" &&
               (importance == kComplement || importance == kRootComplement)) {
      factors.push_back({"log_decay", &Inputs::log_decay, 0, {&Inputs::v, &Inputs::v_im}});
    }
  }
  return factors;
}

std::vector<std::string> Weighing() {
  std::vector<std::string> recipes;
  for (const std::string& recipe : test::LayerRecipes()) {
    if (!FactorsOf(ParseRecipe(recipe)).empty()) recipes.push_back(recipe);
  }
  return recipes;
}

// Tokens whose pairs have no weight: one by itself, two in a row, the last one.
constexpr std::int64_t kTokens[] = {2, 5, 6, 10};

class Weightless : public testing::TestWithParam<std::string> {
 protected:
  const Recipe recipe = ParseRecipe(GetParam());

  // Sets the factor to nothing, of `memories` memories from the first on, and what it weighs to x.
  static void Set(const Call& call, const Factor& factor, std::int64_t memories, double x) {
    const TensorView& view = call.inputs.*factor.field;
    const std::int64_t steps = view.size(1) / call.dims.tokens;
    for (const std::int64_t t : kTokens) {
      Fill(view.Slice(1, t * steps, steps).Slice(2, 0, memories), factor.nothing);
      for (const Field field : factor.rows) {
        const TensorView& rows = call.inputs.*field;
        if (rows.defined()) Fill(rows.Slice(1, t * steps, steps), x);
      }
    }
  }

  // The greatest difference of what memories 0 .. memories read.
  static double Difference(const Call& call, std::int64_t memories, const Tensor& a,
                           const Tensor& b) {
    const std::int64_t heads = memories * call.dims.output_heads() / call.dims.heads;
    return LargestDifference(a.view().Slice(2, 0, heads), b.view().Slice(2, 0, heads));
  }
};

INSTANTIATE_TEST_SUITE_P(All, Weightless, testing::ValuesIn(Weighing()), test::CaseName);

TEST_P(Weightless, RowsCountAsZeros) {
  const Dims dims = test::SmallDims(recipe);
  for (const Factor& factor : FactorsOf(recipe)) {
    for (const std::int64_t memories : {dims.heads, std::int64_t{1}}) {
      for (const double x : {kNan, kInfinity}) {
        SCOPED_TRACE(factor.name + ", memories " + std::to_string(memories));
        const Call zeros(recipe, dims, DType::kFloat64, 1, true);
        const Call spoilt(recipe, dims, DType::kFloat64, 1, true);
        Set(zeros, factor, memories, 0);
        Set(spoilt, factor, memories, x);
        const Layer definition(recipe, kDefinition);
        const Result expected = RunWhole(definition, zeros);
        EXPECT_EQ(Difference(spoilt, memories, expected.y, RunWhole(definition, spoilt).y), 0);
        const Layer layer(recipe);
        const auto expect = [&](const Result& result, const char* how) {
          EXPECT_LT(Difference(spoilt, memories, expected.y, result.y), 1e-9) << how;
        };
        expect(RunWhole(layer, spoilt), "whole");
        if (!recipe.reading.causal) continue;
        expect(RunInPieces(layer, spoilt, 4), "in pieces");
        expect(RunDecoder(layer, spoilt), "by a decoder");
      }
    }
  }
}

TEST_P(Weightless, GradientsAreThoseOfZeros) {
  const Dims dims = test::SmallDims(recipe);
  const Layer layer(recipe);
  if (!layer.HasGradients()) GTEST_SKIP() << "by differences";
  const Tensor dy = test::Normal(DType::kFloat64, OutputShape(dims), 3);
  for (const Factor& factor : FactorsOf(recipe)) {
    SCOPED_TRACE(factor.name);
    const Call zeros(recipe, dims, DType::kFloat64, 1, true);
    const Call spoilt(recipe, dims, DType::kFloat64, 1, true);
    Set(zeros, factor, dims.heads, 0);
    Set(spoilt, factor, dims.heads, kNan);
    test::ExpectClose(test::Differentiate(layer, spoilt.inputs, {}, dy, {}),
                      test::Differentiate(layer, zeros.inputs, {}, dy, {}), 1e-9);
  }
}

}  // namespace
}  // namespace ttr
