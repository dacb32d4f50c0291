// The solvers of the least-squares engine that iterate, against the definition, per answer.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "src/engines/least_squares/least_squares.h"
#include "tests/support/recipes.h"
#include "tests/support/regressions.h"
#include "ttr/layer.h"
#include "ttr/target.h"

namespace ttr {
namespace {

using test::Call;
using test::Condition;
using test::Conditions;
using test::LargestDifference;
using test::RunInPieces;
using test::RunWhole;

constexpr double kInf = std::numeric_limits<double>::infinity();

struct Shape {
  std::int64_t tokens, key_dim, value_dim;
};

class IterativeLayer : public ::testing::TestWithParam<std::string> {
 protected:
  void TearDown() override { ForceTarget(""); }
  Recipe recipe() const {
    Recipe recipe = ParseRecipe(GetParam());
    recipe.reading.output_norm = OutputNorm::kNone;
    return recipe;
  }
};

INSTANTIATE_TEST_SUITE_P(All, IterativeLayer, ::testing::ValuesIn(test::IterativeRecipes()),
                         test::CaseName);

struct Worst {
  double error = 0;  // of those that are compared, in units of the rounding of their size
  std::int64_t compared = 0, answers = 0, statuses = 0;
  std::string where;
};

// What the rounding of one answer is in proportion to: its own size, or what its sums cancel from.
double SizeOf(const Tensor& y) {
  double size = 1;
  for (const double x : y.as<double>()) {
    if (std::isfinite(x)) size = std::max(size, std::abs(x));
  }
  return size;
}

Worst Compare(const Call& call, const test::Result& defined, const test::Result& computed) {
  Worst worst;
  const Dims& dims = call.dims;
  const std::vector<Condition> conditions = Conditions(call);
  const std::int64_t queries = dims.output_heads() / dims.heads;
  const std::vector<double> lengths = test::QueryLengths(call);
  std::size_t answer = 0;
  for (std::int64_t b = 0; b < dims.batch; ++b) {
    for (std::int64_t t = 0; t < dims.tokens; ++t) {
      for (std::int64_t h = 0; h < dims.output_heads(); ++h) {
        const double q = lengths[answer++];
        const auto at = static_cast<std::size_t>((t * dims.batch + b) * dims.heads + h / queries);
        const Condition& condition = conditions[at];
        ++worst.answers;
        ++worst.compared;
        const auto status = defined.status.view().At({b, t, h});
        if (status != computed.status.view().At({b, t, h})) ++worst.statuses;
        double squares = 0, y2 = 0;
        for (std::int64_t c = 0; c < dims.value_dim; ++c) {
          const double y = computed.y.view().At({b, t, h, c});
          const double x = defined.y.view().At({b, t, h, c});
          squares += std::pow(x - y, 2);
          y2 += x * x;
        }
        const double error = std::sqrt(squares) / std::max(std::sqrt(y2), condition.memory * q);
        if (!(error <= worst.error)) {
          worst.error = error;
          worst.where = "token " + std::to_string(t) + " cond " + std::to_string(condition.number) +
                        " status " + std::to_string(int(status));
        }
      }
    }
  }
  return worst;
}

TEST_P(IterativeLayer, AgreesWithTheDefinitionOnEveryTarget) {
  for (const Shape& shape : {Shape{0, 3, 4}, Shape{1, 3, 4}, Shape{2, 1, 1}, Shape{7, 3, 4},
                             Shape{40, 3, 4}, Shape{1, 20, 37}, Shape{100, 20, 37}}) {
    Dims dims = test::SmallDims(recipe());
    dims.tokens = shape.tokens;
    dims.key_dim = shape.key_dim;
    dims.value_dim = shape.value_dim;
    if (PhiDim(recipe(), dims) > 100) continue;
    const Call call(recipe(), dims, DType::kFloat64, 6, true);
    const test::Result defined = RunWhole(Layer(recipe(), Engine::kDefinition), call);
    for (const std::string& target : SupportedTargets()) {
      ForceTarget(target);
      const Worst w = Compare(call, defined, RunWhole(Layer(recipe()), call));
      printf("%s D%ld T%ld: %.2g (%s) status %ld of %ld\n", target.c_str(), shape.key_dim, shape.tokens, w.error, w.where.c_str(), w.statuses, w.answers);
    }
  }
}

TEST_P(IterativeLayer, AgreesWithTheDefinitionUnderEveryGate) {
  const std::vector<std::vector<double>> lists = {
      {0},
      {-1e-3},
      {-0.7},
      {-7},
      {-70},
      {-kInf},
      {-0.1, -1e-3, 0, -70, -0.7, -1e-3, -kInf, -0.02, -7, 0, -1e-3},
      {-0.1, -0.2, -0.3, -0.01, -1e-3, -0.5, -0.6, -0.3, -0.2, -0.1, -0.05, -kInf, -0.4}};
  Dims dims = test::SmallDims(recipe());
  dims.tokens = 40;
  const Call call(recipe(), dims, DType::kFloat64, 9);
  if (!call.inputs.log_decay.defined()) GTEST_SKIP() << "no gates";
  for (const std::vector<double>& gates : lists) {
    double* numbers = call.inputs.log_decay.as<double>();
    const std::int64_t count = call.inputs.log_decay.shape().elements();
    for (std::int64_t i = 0; i < count; ++i) {
      numbers[i] = gates[static_cast<std::size_t>(i) % gates.size()];
    }
    const test::Result defined = RunWhole(Layer(recipe(), Engine::kDefinition), call);
    const Layer layer(recipe());
    for (int piece : {40, 1, 7}) {
      const Worst w = Compare(call, defined, RunInPieces(layer, call, piece));
      printf("gate %g.. piece %d: %.2g (%s) status %ld of %ld\n", gates[0], piece, w.error, w.where.c_str(), w.statuses, w.answers);
    }
  }
}

}  // namespace
}  // namespace ttr
