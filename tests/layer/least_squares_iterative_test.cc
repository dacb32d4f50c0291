// The solvers of the least-squares engine that iterate, against the definition, per answer.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "src/engines/least_squares/least_squares.h"
#include "tests/support/recipes.h"
#include "tests/support/regressions.h"
#include "tests/support/targets.h"
#include "ttr/executor.h"
#include "ttr/layer.h"

namespace ttr {
namespace {

using test::Call;
using test::Condition;
using test::Conditions;
using test::RunInPieces;
using test::RunWhole;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

struct Shape {
  std::int64_t tokens, key_dim, value_dim;
};

// How far an answer may be from the definition's, as a share of its size or of |M| |q|, M = B A^-1,
// whichever is the larger; negative: not at all comparable.
//
// Every step of gradient descent and of Chebyshev's iteration rounds A x, and A has errors of its
// own: steps x epsilon x condition. Where A is singular, its condition without what is missing does
// not bound that of a block, whence 1e4, which none of those drawn here exceeds.
//
// Conjugate gradients that a tolerance stops have y = M (q - r), |r| <= tolerance |q|: two answers
// differ by twice the tolerance at most, wherever they stop. Stopped by their steps, the iterate is
// a function of A as sensitive as its Krylov space is ill-conditioned, which grows with each step;
// on systems that are ill-conditioned themselves it has no digits that are determined.
double Allowed(const Recipe& recipe, const Condition& condition, bool solved, std::int64_t size,
               double epsilon) {
  const Optimizer& optimizer = recipe.optimizer;
  const bool regular = condition.rank == size;
  const bool blocks = optimizer.preconditioner == Preconditioner::kBlockDiagonal;
  const double number = std::max(condition.number, regular || !blocks ? 16.0 : 1e4);
  const double rounding = 4 * static_cast<double>(optimizer.steps) * epsilon * number;
  if (optimizer.solver != Solver::kConjugateGradient)
    return number * epsilon > 0.01 ? -1 : rounding;
  if (!regular || number > 1e3) return -1;
  if (optimizer.tolerance > 0 && solved) return 2 * optimizer.tolerance + rounding;
  const double sensitive =
      rounding * std::pow(4, static_cast<double>(std::min(optimizer.steps, size)));
  return sensitive > 0.1 ? -1 : sensitive;
}

// Many steps of conjugate gradients whatever they reach: in many dimensions roundings decide.
bool IsUndetermined(const Recipe& recipe) {
  const Optimizer& optimizer = recipe.optimizer;
  return optimizer.solver == Solver::kConjugateGradient && optimizer.tolerance == 0 &&
         optimizer.steps > 4;
}

// `output` is the rounding of the type of the answers.
void ExpectAgreement(const Call& call, const std::vector<Condition>& conditions,
                     const test::Result& defined, const test::Result& computed, double epsilon,
                     double output, const std::string& what) {
  const Dims& dims = call.dims;
  const std::int64_t size = PhiDim(call.recipe, dims);
  const std::int64_t queries = dims.output_heads() / dims.heads;
  const std::vector<double> lengths = test::QueryLengths(call);
  std::size_t answer = 0;
  std::int64_t compared = 0;
  for (std::int64_t b = 0; b < dims.batch; ++b) {
    for (std::int64_t t = 0; t < dims.tokens; ++t) {
      for (std::int64_t h = 0; h < dims.output_heads(); ++h) {
        const double query = lengths[answer++];
        const auto at = static_cast<std::size_t>((t * dims.batch + b) * dims.heads + h / queries);
        const Condition& condition = conditions[at];
        const double status = defined.status.view().At({b, t, h});
        const double allowed = Allowed(call.recipe, condition, status == 0, size, epsilon);
        if (allowed < 0) continue;
        ++compared;
        ASSERT_EQ(status, computed.status.view().At({b, t, h}))
            << what << " token " << t << " head " << h;
        double error = 0, squares = 0;
        for (std::int64_t c = 0; c < dims.value_dim; ++c) {
          const double y = defined.y.view().At({b, t, h, c});
          error += std::pow(y - computed.y.view().At({b, t, h, c}), 2);
          squares += y * y;
        }
        const double length = std::sqrt(squares);
        ASSERT_LE(std::sqrt(error),
                  allowed * std::max(length, condition.memory * query) + output * length)
            << what << " token " << t << " head " << h << ", condition " << condition.number;
      }
    }
  }
  const double all = static_cast<double>(dims.batch * dims.tokens * dims.output_heads());
  if (dims.tokens > 1) {
    EXPECT_GE(static_cast<double>(compared), 0.3 * all) << what;
  }
  for (const State::Entry& entry : defined.state.entries()) {
    double largest = 1;
    const Tensor numbers = Tensor::Copy(entry.view, DType::kFloat64);
    for (const double x : numbers.as<double>()) largest = std::max(largest, std::abs(x));
    EXPECT_LE(test::LargestDifference(entry.view, computed.state.Get(entry.name)),
              500 * epsilon * largest)
        << what << " " << entry.name;
  }
}

constexpr double kDouble = 0x1p-52, kFloat = 0x1p-23;

class IterativeLayer : public ::testing::TestWithParam<std::string> {
 protected:
  Recipe recipe() const {
    Recipe recipe = ParseRecipe(GetParam());
    recipe.reading.output_norm = OutputNorm::kNone;
    return recipe;
  }
};

INSTANTIATE_TEST_SUITE_P(All, IterativeLayer, ::testing::ValuesIn(test::IterativeRecipes()),
                         test::CaseName);

TEST_P(IterativeLayer, AgreesWithTheDefinitionOnEveryTarget) {
  for (const Shape& shape : {Shape{0, 3, 4}, Shape{1, 3, 4}, Shape{2, 1, 1}, Shape{7, 3, 4},
                             Shape{40, 3, 4}, Shape{1, 20, 37}, Shape{100, 20, 37}}) {
    Dims dims = test::SmallDims(recipe());
    dims.tokens = shape.tokens;
    dims.key_dim = shape.key_dim;
    dims.value_dim = shape.value_dim;
    if (PhiDim(recipe(), dims) > 100) continue;
    if (dims.key_dim > 3 && IsUndetermined(recipe())) continue;
    const Call call(recipe(), dims, DType::kFloat64, 6, true);
    const test::Result defined = RunWhole(Layer(recipe(), kDefinition), call);
    const std::vector<Condition> conditions = Conditions(call);
    for (const std::string& target : test::Targets()) {
      const test::OnTarget on(target);
      const Layer layer(recipe());
      ASSERT_EQ(layer.plan().engine, "least_squares");
      ExpectAgreement(call, conditions, defined, RunWhole(layer, call), kDouble, 0,
                      target + ", " + std::to_string(shape.tokens) + " tokens");
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
  // Conjugate gradients on what has faded to a singular A have no digits to compare.
  const Optimizer& optimizer = recipe().optimizer;
  if (optimizer.solver == Solver::kConjugateGradient &&
      optimizer.ridge_kind == RidgeKind::kFading) {
    GTEST_SKIP() << "singular systems";
  }
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
    const std::string gate = "gates " + std::to_string(gates[0]);
    for (const std::int64_t piece : {40, 1, 7}) {
      ExpectAgreement(call, conditions, defined, RunInPieces(layer, call, piece), kDouble, 0,
                      gate + ", pieces of " + std::to_string(piece));
    }
  }
}

TEST_P(IterativeLayer, AgreesWithTheDefinitionInNarrowTypes) {
  if (IsUndetermined(recipe())) GTEST_SKIP() << "float does not determine these iterates";
  Dims dims = test::SmallDims(recipe());
  dims.tokens = 40;
  dims.key_dim = recipe().function.features == FeatureMap::kNone ? 12 : 3;
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    const Call narrow(recipe(), dims, dtype, 11, true);
    const Call wide(recipe(), dims, DType::kFloat64, 11, true);
    for (const InputField& field : InputFields()) {
      if ((narrow.inputs.*field.view).defined()) {
        CopyInto(narrow.inputs.*field.view, wide.inputs.*field.view);
      }
    }
    const test::Result defined = RunWhole(Layer(recipe(), kDefinition), wide);
    ExpectAgreement(wide, Conditions(wide), defined, RunWhole(Layer(recipe()), narrow), kFloat,
                    dtype == DType::kBFloat16 ? 0x1p-8 : 0, std::string(Name(dtype)));
  }
}

TEST_P(IterativeLayer, NanStaysWithWhatDependsOnIt) {
  if (!recipe().reading.causal) GTEST_SKIP() << "reads the whole sequence at once";
  Dims dims = test::SmallDims(recipe());
  dims.tokens = 40;
  const Call clean(recipe(), dims, DType::kFloat64, 4);
  const Call spoilt(recipe(), dims, DType::kFloat64, 4);
  spoilt.inputs.q.Set({0, 7, 2, 0}, kNan);   // one answer
  spoilt.inputs.k.Set({1, 20, 0, 1}, kNan);  // those of two memories from there on
  const Optimizer& optimizer = recipe().optimizer;
  const bool shares = optimizer.preconditioner == Preconditioner::kChunkFactor;
  const double rounding = shares ? std::max(1e-9, 100 * optimizer.tolerance) : 1e-9;
  const Layer layer(recipe());
  const test::Result expected = RunWhole(layer, clean);
  const test::Result got = RunWhole(layer, spoilt);
  const std::int64_t first = recipe().reading.read == Read::kBefore ? 21 : 20;
  for (std::int64_t b = 0; b < dims.batch; ++b) {
    for (std::int64_t t = 0; t < dims.tokens; ++t) {
      for (std::int64_t h = 0; h < dims.output_heads(); ++h) {
        const bool query = b == 0 && t == 7 && h == 2;
        const bool key = b == 1 && t >= first && h < 4;
        for (std::int64_t c = 0; c < dims.value_dim; ++c) {
          const double y = got.y.view().At({b, t, h, c});
          if (query || key) {
            ASSERT_TRUE(std::isnan(y)) << b << " " << t << " " << h;
          } else {
            const double clean_y = expected.y.view().At({b, t, h, c});
            // Chunks end before what is not finite, and where they end a tolerance stops elsewhere.
            ASSERT_NEAR(y, clean_y, rounding * std::max(1.0, std::abs(clean_y)))
                << b << " " << t << " " << h;
          }
        }
      }
    }
  }
}

TEST_P(IterativeLayer, ThreadsDoNotChangeBits) {
  Dims dims = test::SmallDims(recipe());
  dims.tokens = 200;
  const Call call(recipe(), dims, DType::kFloat32, 5);
  const Layer layer(recipe());
  const auto two = MakeExecutor(2);
  const test::Result one =
      RunWhole(layer, call, {.executor = &SequentialExecutor(), .scratch = {}});
  const test::Result other = RunWhole(layer, call, {.executor = two.get(), .scratch = {}});
  EXPECT_EQ(test::LargestDifference(one.y, other.y), 0);
  EXPECT_EQ(test::LargestDifference(one.status, other.status), 0);
}

// What a layer reports of every answer, from memory that is full of something else.
Tensor Residuals(const Layer& layer, const Call& call, Tensor& status) {
  const Dims& dims = call.dims;
  const ttr::Shape shape{dims.batch, dims.tokens, dims.output_heads()};
  Tensor y(DType::kFloat64, {dims.batch, dims.tokens, dims.output_heads(), dims.value_dim});
  Tensor residual(DType::kFloat64, shape);
  status = Tensor(DType::kInt8, shape);
  for (double& x : residual.as<double>()) x = kNan;
  State state;
  layer.Forward(call.inputs, state,
                {.y = y.view(), .status = status.view(), .residual = residual.view()});
  return residual;
}

Dims SharedMemories(const Recipe& recipe) {
  Dims dims = test::SmallDims(recipe);
  dims.tokens = 45;
  dims.key_dim = 12;
  dims.query_heads = 2 * dims.heads;
  return dims;
}

// After so many steps the answers, and what they leave, are the definition's.
TEST(IterativeResidual, IsThatOfTheDefinition) {
  for (const char* line :
       {"batch_gd{steps: 4}", "quasi_newton{steps: 3}",
        "batch_gd{eta_kind: constant, eta: 0.1, steps: 4}",
        "quasi_newton{eta_kind: constant, steps: 3}",
        "quasi_newton{preconditioner: block_diagonal, block: 5, steps: 2, read: before}",
        "mesa{optimizer: conjugate_gradient, steps: 3}",
        "mesa{optimizer: conjugate_gradient, steps: 1, read: before}", "kalmanet{steps: 5}"}) {
    const Recipe recipe = ParseRecipe(line);
    const Call call(recipe, SharedMemories(recipe), DType::kFloat64, 5, true);
    const Layer layer(recipe);
    ASSERT_EQ(layer.plan().engine, "least_squares") << line;
    Tensor status;
    const Tensor defined = Residuals(Layer(recipe, kDefinition), call, status);
    double most = 0;
    for (const double x : defined.as<double>()) most = std::max(most, x);
    ASSERT_GT(most, 0.01) << line;
    for (const std::string& target : test::Targets()) {
      const test::OnTarget on(target);
      const Tensor computed = Residuals(layer, call, status);
      EXPECT_LE(test::LargestDifference(defined.view(), computed.view()), 1e-9)
          << line << " " << target;
    }
  }
}

// An iteration that has made matters worse than answering 0 says so, whether or not its residual is
// asked for.
TEST(IterativeResidual, LargerThanTheRightHandSideIsStatusTwo) {
  for (const char* line : {"batch_gd{eta_kind: constant, steps: 6, eta: 0.5}",
                           "quasi_newton{eta_kind: constant, steps: 6, eta: 0.8}"}) {
    const Recipe recipe = ParseRecipe(line);
    const Call call(recipe, SharedMemories(recipe), DType::kFloat64, 5, true);
    Tensor expected;
    const Tensor defined = Residuals(Layer(recipe, kDefinition), call, expected);
    std::int64_t solved = 0, diverged = 0;
    for (std::size_t i = 0; i < expected.as<std::int8_t>().size(); ++i) {
      const bool worse = defined.as<double>()[i] > 1.001;
      EXPECT_EQ(expected.as<std::int8_t>()[i] == 2, worse) << line;
      (worse ? diverged : solved) += 1;
    }
    EXPECT_GT(diverged, 10) << line;
    EXPECT_GT(solved, 0) << line;
    for (const std::string& target : test::Targets()) {
      const test::OnTarget on(target);
      const test::Result computed = RunWhole(Layer(recipe), call);
      EXPECT_EQ(test::LargestDifference(computed.status, expected), 0) << line << " " << target;
    }
  }
}

TEST(IterativeResidual, KeepsToTheTolerance) {
  for (const char* preconditioner : {"none", "diagonal", "chunk_factor"}) {
    const Recipe recipe = ParseRecipe(
        "mesa{optimizer: conjugate_gradient, steps: 40, tolerance: 1e-3, "
        "preconditioner: " +
        std::string(preconditioner) + "}");
    const Call call(recipe, SharedMemories(recipe), DType::kFloat64, 6, true);
    for (const std::string_view engine : {std::string_view("least_squares"), kDefinition}) {
      Tensor status;
      const Tensor residual = Residuals(Layer(recipe, engine), call, status);
      double most = 0;
      for (const double x : residual.as<double>()) most = std::max(most, x);
      EXPECT_LE(most, 1e-3 * (1 + 1e-9)) << preconditioner;
      for (const std::int8_t s : status.as<std::int8_t>()) EXPECT_EQ(s, 0) << preconditioner;
    }
  }
}

TEST(IterativeResidual, IsNothingOfWhatIsSolved) {
  for (const char* line : {"rls", "mesa", "gated_deltanet", "hgrn"}) {
    const Recipe recipe = ParseRecipe(line);
    const Call call(recipe, test::SmallDims(recipe), DType::kFloat64, 7, true);
    Tensor status;
    const Tensor residual = Residuals(Layer(recipe), call, status);
    for (const double x : residual.as<double>()) EXPECT_EQ(x, 0) << line;
  }
}

// Inputs of one memory for the engine itself.
struct EngineCall {
  static constexpr std::int64_t kTokens = 50, kKeys = 12, kValues = 3;

  EngineCall() : random(ParseRecipe("mesa{decay: none, importance: none}"), dims(), kF, 8) {
    call.q = random.inputs.q;
    call.k = random.inputs.k;
    call.v = random.inputs.v;
    call.ridge = ridge;
    call.a = a;
    call.b = b;
    call.y = y;
    call.status = status;
    call.iterations = iterations;
    for (std::int64_t i = 0; i < kKeys; ++i) ridge.view().Set({0, i}, 0.1);
    options.ridge = least_squares::Ridge::kConstant;
  }
  static Dims dims() {
    Dims dims = test::TwoMemories(kTokens, kKeys, kValues);
    dims.heads = dims.key_heads = dims.value_heads = dims.query_heads = 1;
    return dims;
  }
  void CallOptions() { least_squares::Forward(options, call, SequentialExecutor()); }
  double Iterations(std::int64_t t) const { return iterations.view().At({0, t, 0}); }

  static constexpr DType kF = DType::kFloat64;
  Call random;
  Tensor ridge{kF, {1, kKeys}}, a{kF, {1, 1, kKeys, kKeys}}, b{kF, {1, 1, kKeys, kValues}};
  Tensor y{kF, {1, kTokens, 1, kValues}};
  Tensor status{DType::kInt8, {1, kTokens, 1}}, iterations{DType::kInt64, {1, kTokens, 1}};
  least_squares::Options options;
  least_squares::Call call;
};

TEST(IterativeEngine, OneGradientStepOfSizeOneIsLinearAttention) {
  EngineCall e;
  e.options.ridge = least_squares::Ridge::kInState;
  e.options.iteration = {.solver = least_squares::Solver::kGradient};
  e.CallOptions();
  const Inputs& in = e.random.inputs;
  for (std::int64_t t = 0; t < EngineCall::kTokens; ++t) {
    for (std::int64_t c = 0; c < EngineCall::kValues; ++c) {
      double sum = 0;
      for (std::int64_t i = 0; i <= t; ++i) {
        double score = 0;
        for (std::int64_t d = 0; d < EngineCall::kKeys; ++d) {
          score += in.q.At({0, t, 0, d}) * in.k.At({0, i, 0, d});
        }
        sum += score * in.v.At({0, i, 0, c});
      }
      EXPECT_NEAR(e.y.view().At({0, t, 0, c}), sum, 1e-12);
    }
  }
}

TEST(IterativeEngine, ReportsWhatItTook) {
  EngineCall e;
  for (std::int64_t d = 0; d < EngineCall::kKeys; ++d) e.random.inputs.q.Set({0, 4, 0, d}, 0);
  least_squares::Iteration& how = e.options.iteration;
  // The system of the first token has two eigenvalues: two steps may leave nothing for a third.
  how = {.solver = least_squares::Solver::kConjugateGradient, .steps = 2};
  e.CallOptions();
  for (std::int64_t t = 0; t < EngineCall::kTokens; ++t) {
    EXPECT_EQ(e.Iterations(t), t == 4 ? 0 : 2) << t;
    EXPECT_EQ(e.status.view().At({0, t, 0}), 0) << "without a tolerance";
  }
  how.steps = 3;
  how.tolerance = 1e-6;
  EngineCall missed;
  missed.options = e.options;
  missed.CallOptions();
  EXPECT_EQ(missed.status.view().At({0, 0, 0}), 0);
  EXPECT_EQ(missed.status.view().At({0, 40, 0}), 2);
  how.steps = 100;
  EngineCall reached;
  reached.options = e.options;
  reached.CallOptions();
  for (std::int64_t t = 0; t < EngineCall::kTokens; ++t) {
    EXPECT_EQ(reached.status.view().At({0, t, 0}), 0);
    // As many as there are different eigenvalues: the ridge, and t + 1 more.
    EXPECT_LE(reached.Iterations(t), std::min<double>(static_cast<double>(t) + 2, 12)) << t;
    EXPECT_GE(reached.Iterations(t), std::min<double>(static_cast<double>(t) + 1, 4)) << t;
  }
}

}  // namespace
}  // namespace ttr
