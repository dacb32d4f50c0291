// The least-squares engine against the definition: per token, within the condition of its system.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/support/recipes.h"
#include "tests/support/regressions.h"
#include "tests/support/targets.h"
#include "ttr/layer.h"

namespace ttr {
namespace {

using test::Call;
using test::Condition;
using test::Conditions;
using test::Keys;
using test::RunWhole;

constexpr double kInf = std::numeric_limits<double>::infinity();

// Are there digits to compare? Not where the condition exceeds 1 / (100 epsilon), nor while a
// direction fades through the margin of rounding, which is one token for the definition and up to
// a chunk of tokens later for the engine.
std::vector<bool> Comparable(const std::vector<Condition>& conditions, std::size_t memories,
                             double epsilon) {
  std::vector<bool> comparable;
  for (std::size_t i = 0; i < conditions.size(); ++i) {
    bool fading = false;
    for (std::size_t j = i, n = 0; j >= memories && n < 64; ++n) {
      j -= memories;
      fading |= conditions[j].rank > conditions[i].rank;
    }
    comparable.push_back(!fading && conditions[i].number < 0.01 / epsilon);
  }
  return comparable;
}

// The largest |M| of the last chunk of tokens: a chunk adds to the answers of the memory that it
// starts from, which may have been the larger.
double MemoryBehind(const std::vector<Condition>& conditions, std::size_t at,
                    std::size_t memories) {
  double largest = conditions[at].memory;
  for (std::size_t n = 0; at >= memories && n < 64; ++n) {
    at -= memories;
    largest = std::max(largest, conditions[at].memory);
  }
  return largest;
}

// The greatest error of an answer in units of epsilon times the condition times |M| |q|. Infinite
// where an answer is not finite.
double WorstError(const Call& call, const std::vector<Condition>& conditions,
                  const test::Result& defined, const test::Result& computed, double epsilon,
                  std::string& where) {
  const Dims& dims = call.dims;
  const std::int64_t queries = dims.output_heads() / dims.heads;
  const auto memories = static_cast<std::size_t>(dims.batch * dims.heads);
  const std::vector<bool> comparable = Comparable(conditions, memories, epsilon);
  const std::vector<double> lengths = test::QueryLengths(call);
  double worst = 0;
  std::size_t answer = 0;
  for (std::int64_t b = 0; b < dims.batch; ++b) {
    for (std::int64_t t = 0; t < dims.tokens; ++t) {
      for (std::int64_t h = 0; h < dims.output_heads(); ++h) {
        const double query = lengths[answer++];
        const auto at = static_cast<std::size_t>((t * dims.batch + b) * dims.heads + h / queries);
        double squares = 0;
        for (std::int64_t c = 0; c < dims.value_dim; ++c) {
          const double y = computed.y.view().At({b, t, h, c});
          if (!std::isfinite(y)) return kInf;
          squares += std::pow(defined.y.view().At({b, t, h, c}) - y, 2);
        }
        if (squares == 0 || !comparable[at]) continue;
        const double size = MemoryBehind(conditions, at, memories) * query;
        const double error = std::sqrt(squares) / (epsilon * conditions[at].number * size);
        if (error > worst) {
          worst = error;
          where = "token " + std::to_string(t) + " head " + std::to_string(h) + ", condition " +
                  std::to_string(conditions[at].number);
        }
      }
    }
  }
  return worst;
}

// A float64 call and the same numbers, rounded to a narrower type, in both widths: inputs may be
// rounded, results may not.
struct Pair {
  Pair(const Call& from, DType dtype)
      : narrow(from.recipe, from.dims, dtype, 0), wide(from.recipe, from.dims, DType::kFloat64, 0) {
    for (const InputField& field : InputFields()) {
      const TensorView& view = from.inputs.*field.view;
      if (!view.defined()) continue;
      CopyInto(view, narrow.inputs.*field.view);
      CopyInto(narrow.inputs.*field.view, wide.inputs.*field.view);
    }
  }
  Call narrow, wide;
};

struct Shape {
  std::int64_t tokens, key_dim, value_dim;
};

Dims DimsOf(const Shape& shape) {
  Dims dims;
  dims.tokens = shape.tokens;
  dims.key_dim = shape.key_dim;
  dims.value_dim = shape.value_dim;
  dims.heads = dims.key_heads = dims.value_heads = 2;
  dims.query_heads = 4;
  return dims;
}

class LeastSquaresEngine : public ::testing::TestWithParam<Keys> {};

INSTANTIATE_TEST_SUITE_P(All, LeastSquaresEngine, ::testing::ValuesIn(test::kAllKeys),
                         [](const auto& keys) { return std::string(Name(keys.param)); });

// All of these decays and ridges on one kind of keys, in the arithmetic of one dtype.
void ExpectErrorsOfTheCondition(const std::string& name, const std::vector<std::string>& decays,
                                const std::vector<std::string>& ridges, Keys keys, DType dtype,
                                double epsilon) {
  for (const std::string& decay : decays) {
    for (const std::string& ridge : ridges) {
      const std::string recipe = name + "{decay: " + decay + ", ridge: " + ridge + "}";
      const Call drawn(ParseRecipe(recipe), DimsOf({150, 20, 7}), DType::kFloat64, 5);
      test::FillKeys(keys, 7, drawn);
      const Pair pair(drawn, dtype);
      const Layer layer(drawn.recipe);
      ASSERT_EQ(layer.plan().engine, "least_squares");
      const test::Result defined = RunWhole(Layer(drawn.recipe, kDefinition), pair.wide);
      const std::vector<Condition> conditions = Conditions(pair.wide);
      const auto expect = [&](const test::Result& computed, const char* what) {
        std::string where;
        EXPECT_LE(WorstError(pair.wide, conditions, defined, computed, epsilon, where), 10)
            << recipe << what << where;
      };
      expect(RunWhole(layer, pair.narrow), ", whole, ");
      // A float32 state is rounded at every token, which the condition does not know of.
      if (dtype == DType::kFloat32) continue;
      expect(RunInPieces(layer, pair.narrow, 1), ", by token, ");
      expect(RunDecoder(layer, pair.narrow), ", deferred, ");
    }
  }
}

// Ridges that fade, and ridges that do not.
void ExpectErrorsOfTheCondition(Keys keys, DType dtype, double epsilon) {
  ExpectErrorsOfTheCondition("rls", {"none", "0.999", "0.99", "0.9", "scalar"},
                             {"0", "1e-8", "1e-3", "0.1", "10"}, keys, dtype, epsilon);
  ExpectErrorsOfTheCondition("mesa", {"0.999", "0.9", "scalar"}, {"1e-3", "0.25", "10"}, keys,
                             dtype, epsilon);
}

TEST_P(LeastSquaresEngine, ErrsByTheConditionInDouble) {
  ExpectErrorsOfTheCondition(GetParam(), DType::kFloat64, 0x1p-52);
}

TEST_P(LeastSquaresEngine, ErrsByTheConditionInFloat) {
  ExpectErrorsOfTheCondition(GetParam(), DType::kFloat32, 0x1p-23);
}

class LeastSquaresLayer : public ::testing::TestWithParam<std::string> {
 protected:
  // The condition speaks of answers before their norm.
  Recipe recipe() const {
    Recipe recipe = ParseRecipe(GetParam());
    recipe.reading.output_norm = OutputNorm::kNone;
    return recipe;
  }
};

INSTANTIATE_TEST_SUITE_P(All, LeastSquaresLayer, ::testing::ValuesIn(test::LeastSquaresRecipes()),
                         test::CaseName);

// Answers within the condition, the same status where there are digits to tell, and the same state.
void ExpectAgreement(const Call& call, const std::vector<Condition>& conditions,
                     const test::Result& defined, const test::Result& computed,
                     const std::string& what) {
  constexpr double kEpsilon = 0x1p-52;
  std::string where;
  EXPECT_LE(WorstError(call, conditions, defined, computed, kEpsilon, where), 10)
      << what << " " << where;
  const Dims& dims = call.dims;
  const std::vector<bool> comparable =
      Comparable(conditions, static_cast<std::size_t>(dims.batch * dims.heads), kEpsilon);
  const std::int64_t queries = dims.output_heads() / dims.heads;
  for (std::int64_t b = 0; b < dims.batch; ++b) {
    for (std::int64_t t = 0; t < dims.tokens; ++t) {
      for (std::int64_t h = 0; h < dims.output_heads(); ++h) {
        if (!comparable[static_cast<std::size_t>((t * dims.batch + b) * dims.heads +
                                                 h / queries)]) {
          continue;
        }
        EXPECT_EQ(defined.status.view().At({b, t, h}), computed.status.view().At({b, t, h}))
            << what << " token " << t << " head " << h;
      }
    }
  }
  for (const State::Entry& entry : defined.state.entries()) {
    double size = 1;
    const Tensor numbers = Tensor::Copy(entry.view);
    for (const double x : numbers.as<double>()) size = std::max(size, std::abs(x));
    EXPECT_LE(test::LargestDifference(entry.view, computed.state.Get(entry.name)), 1e-13 * size)
        << what << " " << entry.name;
  }
}

TEST_P(LeastSquaresLayer, AgreesWithTheDefinitionOnEveryTarget) {
  for (const Shape& shape :
       {Shape{0, 3, 4}, Shape{1, 3, 4}, Shape{2, 1, 1}, Shape{7, 3, 4}, Shape{40, 3, 4},
        Shape{1, 20, 37}, Shape{100, 20, 37}, Shape{300, 3, 2}, Shape{20, 16, 16},
        Shape{24, 32, 64}, Shape{12, 64, 70}}) {
    Dims dims = test::SmallDims(recipe());
    dims.tokens = shape.tokens;
    dims.key_dim = shape.key_dim;
    dims.value_dim = shape.value_dim;
    if (PhiDim(recipe(), dims) > 100) continue;
    const Call call(recipe(), dims, DType::kFloat64, 6, true);
    const test::Result defined = RunWhole(Layer(recipe(), kDefinition), call);
    const std::vector<Condition> conditions = Conditions(call);
    for (const std::string& target : test::Targets()) {
      const test::OnTarget on(target);
      const std::string what = target + ", " + std::to_string(shape.tokens) + " tokens";
      const Layer layer(recipe());
      ExpectAgreement(call, conditions, defined, RunWhole(layer, call), what);
      if (!recipe().reading.causal || dims.tokens == 0 || dims.tokens > 50) continue;
      ExpectAgreement(call, conditions, defined, test::RunInPieces(layer, call, 1),
                      what + " one by one");
      ExpectAgreement(call, conditions, defined, test::RunDecoder(layer, call), what + " deferred");
    }
  }
}

TEST_P(LeastSquaresLayer, AgreesWithTheDefinitionUnderEveryGate) {
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
    const test::Result defined = RunWhole(Layer(recipe(), kDefinition), call);
    const std::vector<Condition> conditions = Conditions(call);
    const Layer layer(recipe());
    ExpectAgreement(call, conditions, defined, RunWhole(layer, call), "whole");
    if (!recipe().reading.causal) continue;  // nothing to go on from
    ExpectAgreement(call, conditions, defined, test::RunInPieces(layer, call, 1), "by token");
    ExpectAgreement(call, conditions, defined, test::RunDecoder(layer, call), "deferred");
    ExpectAgreement(call, conditions, defined, test::RunInPieces(layer, call, 7), "split");
  }
}

// What comes out under a norm is the answer without one over its length.
void ExpectAnswersByTheirNorm(const Recipe& normed) {
  Recipe plain = normed;
  plain.reading.output_norm = OutputNorm::kNone;
  Dims dims = test::SmallDims(normed);
  dims.tokens = 20;
  const Call call(normed, dims, DType::kFloat64, 6, true);
  const Layer layer(normed);
  const Tensor answers = RunWhole(Layer(plain), call).y;
  std::vector<Tensor> outputs;
  outputs.push_back(RunWhole(layer, call).y);
  if (normed.reading.causal) {
    outputs.push_back(test::RunInPieces(layer, call, 1).y);
    outputs.push_back(test::RunDecoder(layer, call).y);
  }
  const auto width = static_cast<std::size_t>(dims.value_dim);
  const double mean = normed.reading.output_norm == OutputNorm::kRms ? double(width) : 1;
  const auto z = answers.as<double>();
  for (std::size_t row = 0; row < z.size(); row += width) {
    double squares = 0;
    for (const double x : z.subspan(row, width)) squares += x * x;
    if (squares == 0) continue;
    for (const Tensor& y : outputs) {
      for (std::size_t i = row; i < row + width; ++i) {
        EXPECT_NEAR(y.as<double>()[i], z[i] / std::sqrt(squares / mean), 1e-9) << "number " << i;
      }
    }
  }
}

TEST(LeastSquaresNorm, DividesTheAnswers) {
  int norms = 0;
  for (const std::string& name : test::LeastSquaresRecipes()) {
    const Recipe recipe = ParseRecipe(name);
    if (recipe.reading.output_norm == OutputNorm::kNone) continue;
    SCOPED_TRACE(name);
    ExpectAnswersByTheirNorm(recipe);
    ++norms;
  }
  EXPECT_GT(norms, 2);
}

}  // namespace
}  // namespace ttr
