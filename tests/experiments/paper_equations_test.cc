// The paper's equations, as they are written there, beside the recipes that docs/paper.md has for
// them, computed by the definition.
#include "tests/experiments/paper_equations.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>
#include <string_view>

#include "experiments/paper/paper.h"
#include "tests/support/calls.h"
#include "ttr/error.h"

namespace ttr::experiments {
namespace {

using Eigen::Index;
using Matrix = Eigen::MatrixXd;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kEps = std::numeric_limits<double>::epsilon();

const Equation* Find(const PaperEntry& entry) {
  for (const Equation& equation : Equations()) {
    if (equation.place == entry.place && equation.recipe == entry.recipe) return &equation;
  }
  return nullptr;
}

// One memory, one sequence.
Dims OneMemory() {
  Dims dims;
  dims.tokens = kTokens;
  dims.key_dim = kKeyDim;
  dims.value_dim = kValueDim;
  return dims;
}

// Row t of what an input has for every token; of rows n t + j the first of each token.
Matrix Rows(const TensorView& input, Index columns) {
  Matrix rows = Matrix::Zero(kTokens, columns);
  if (!input.defined()) return rows;
  const std::int64_t stride = input.size(1) / kTokens;
  for (Index t = 0; t < kTokens; ++t) {
    for (Index i = 0; i < columns; ++i) {
      rows(t, i) =
          input.rank() == 4 ? input.At({0, t * stride, 0, i}) : input.At({0, t * stride + i, 0});
    }
  }
  return rows;
}

Index StepsOf(const Recipe& recipe) {
  return recipe.optimizer.eta_kind == EtaKind::kInput || recipe.optimizer.solver == Solver::kSgd
             ? recipe.optimizer.steps
             : 1;
}

Pairs PairsOf(const test::Call& call, Index steps) {
  const Inputs& in = call.inputs;
  Pairs p;
  p.k = Rows(in.k, kKeyDim);
  p.v = Rows(in.v, kValueDim);
  p.q = Rows(in.q, kKeyDim);
  p.decay = Rows(in.log_decay, 1).array().exp();
  p.weight_decay = Rows(in.weight_decay, 1);
  p.momentum = Rows(in.momentum, 1);
  p.step = Rows(in.step, steps);
  return p;
}

// Every token's pair as often as it has steps.
void RepeatPairs(const TensorView& input) {
  const std::int64_t n = input.size(1) / kTokens;
  for (std::int64_t row = 0; row < input.size(1); ++row) {
    CopyInto(input.Slice(1, row - row % n, 1), input.Slice(1, row, 1));
  }
}

void Scale(Tensor& tensor, double factor) {
  for (double& x : tensor.as<double>()) x *= factor;
}

// The greatest difference of the recipe's outputs from the equation, in shares of what rounding may
// make of it; of the tokens where the equation has a value, at least a third.
double Excess(const Equation& equation, std::string_view recipe, std::uint64_t seed) {
  test::Call call(ParseRecipe(recipe), OneMemory(), DType::kFloat64, seed);
  RepeatPairs(call.inputs.k);
  RepeatPairs(call.inputs.v);
  double eps = kEps;
  if (equation.recipe.find("normalise_qk") != std::string_view::npos) {
    Scale(call.random.tensors.at("k"), 1024);  // 1e-6 under the root is nothing beside 1e6
    Scale(call.random.tensors.at("q"), 1024);
    eps += 1e-12;
  }
  const test::Result result = test::RunWhole(Layer(call.recipe, kDefinition), call);
  const Pairs pairs = PairsOf(call, StepsOf(ParseRecipe(equation.recipe)));
  double excess = 0;
  Index compared = 0;
  for (Index t = 0; t < kTokens; ++t) {
    const Answer answer = equation.answer(pairs, t);
    if (!(answer.size < 1e-6 / kEps)) continue;  // no value, or no digits of it
    ++compared;
    for (Index i = 0; i < kValueDim; ++i) {
      const double difference = std::fabs(result.y.view().At({0, t, 0, i}) - answer.y[i]);
      const double share = difference / (16 * eps * answer.size);
      excess = share <= excess ? excess : share;  // a NaN stays
    }
  }
  return compared >= kTokens / 3 ? excess : kInfinity;
}

TEST(PaperEquations, AreWhatTheRecipesCompute) {
  std::size_t computed = 0;
  for (const PaperSection& section : Paper()) {
    for (const PaperEntry& entry : section.entries) {
      if (!entry.computed) continue;
      const Equation* equation = Find(entry);
      ASSERT_NE(equation, nullptr) << entry.place << " " << entry.recipe;
      ++computed;
      for (const std::uint64_t seed : {1, 2, 3}) {
        EXPECT_LE(Excess(*equation, entry.recipe, seed), 1) << entry.place << " " << entry.recipe;
      }
    }
  }
  EXPECT_EQ(computed, Equations().size());
}

// Where the map of the paper has options, the name alone is another layer.
TEST(PaperEquations, AreNotWhatTheseNamesComputeAlone) {
  const std::set<std::string_view> names = {"rls",          "feature_rls",  "weighted_rls",
                                            "kernel_ridge", "local_linear", "local_quadratic",
                                            "batch_gd",     "quasi_newton", "nadaraya_watson",
                                            "softmax"};
  for (const Equation& equation : Equations()) {
    const std::string_view name = equation.recipe.substr(0, equation.recipe.find('{'));
    if (name == equation.recipe || !names.contains(name)) continue;
    EXPECT_GT(Excess(equation, name, 1), 1000) << equation.place << " " << equation.recipe;
  }
}

// Claims that are about other keys than random ones.

test::Result RunOn(const char* recipe, const test::Call& call) {
  return test::RunWhole(Layer(ParseRecipe(recipe), kDefinition), call);
}

TEST(PaperClaims, LinearAttentionIsLeastSquaresOnOrthonormalKeys) {
  Dims dims = OneMemory();
  dims.tokens = kKeyDim;
  const test::Call call(ParseRecipe("linear_attention"), dims, DType::kFloat64, 1);
  const Matrix random = Matrix::Random(kKeyDim, kKeyDim);
  const Matrix keys = Eigen::HouseholderQR<Matrix>(random).householderQ();
  const auto k = call.random.tensors.at("k").view();
  for (Index t = 0; t < kKeyDim; ++t) {
    for (Index i = 0; i < kKeyDim; ++i) {
      StoreElement(k.data(), DType::kFloat64, t * kKeyDim + i, keys(t, i));
    }
  }
  const test::Result sum = RunOn("linear_attention", call), exact = RunOn("rls{ridge: 0}", call);
  EXPECT_LT(test::LargestDifference(sum.y, exact.y), 1e-13);
}

// The mean square of a token's answer.
double MeanSquare(const test::Result& result, Index t) {
  double sum = 0;
  for (Index i = 0; i < kValueDim; ++i) sum += std::pow(result.y.view().At({0, t, 0, i}), 2);
  return sum / kValueDim;
}

TEST(PaperClaims, AnOutputNormRestoresTheScale) {
  double early = 0, late = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const test::Call call(ParseRecipe("linear_attention"), OneMemory(), DType::kFloat64, seed);
    const test::Result plain = RunOn("linear_attention", call);
    const test::Result normed = RunOn("linear_attention{output_norm: rms}", call);
    for (Index t = 0; t < kTokens; ++t) {
      EXPECT_NEAR(MeanSquare(normed, t), 1, 1e-12);
      (t < kTokens / 2 ? early : late) += MeanSquare(plain, t);
    }
  }
  EXPECT_GT(late, 1.5 * early);
}

// Neither T^2 nor T Dk^2 numbers: scratch does not grow with the length.
TEST(PaperClaims, LocalLinearAttentionNeedsNoRoomOfItsOwnForMoreTokens) {
  const Layer layer(ParseRecipe("local_linear"));
  Dims dims = OneMemory();
  dims.tokens = 4096;
  const std::size_t few = layer.ScratchBytes(dims, 1);
  dims.tokens *= 4;
  EXPECT_LE(layer.ScratchBytes(dims, 1), few + few / 4);
}

TEST(PaperClaims, WithoutLossEveryValueIsRecalled) {
  Dims dims = OneMemory();
  dims.tokens = kKeyDim;
  test::Call call(ParseRecipe("rls{ridge: 0, causal: false}"), dims, DType::kFloat64, 1);
  call.inputs.q = call.inputs.k;
  const test::Result result = RunOn("rls{ridge: 0, causal: false}", call);
  EXPECT_LT(test::LargestDifference(result.y, call.inputs.v), 1e-11);
}

}  // namespace
}  // namespace ttr::experiments
