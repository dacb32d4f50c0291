// Whatever is put at a token, outputs before it have the same bits: other inputs from there on,
// numbers that are not finite or huge, decays that forget. And gradients of what comes before it do
// not see it, for outputs that count before it alone. Every layer of the zoo, and drawn recipes;
// TTR_DRAWS says how many are drawn.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/calls.h"
#include "tests/support/drawn.h"
#include "tests/support/gradients.h"
#include "tests/support/hostile.h"
#include "tests/support/recipes.h"
#include "ttr/layer.h"
#include "ttr/util/random.h"

namespace ttr {
namespace {

using test::Call;
using test::Fill;
using test::Result;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// The inputs that have rows of tokens, and how many a token.
struct TokenInput {
  InputSpec spec;
  std::int64_t rows;
};

std::vector<TokenInput> TokenInputs(const Recipe& recipe) {
  std::vector<TokenInput> inputs;
  const std::int64_t steps = recipe.optimizer.solver == Solver::kSgd ? recipe.optimizer.steps : 1;
  for (const InputSpec& spec : InputSpecs(recipe)) {
    const std::vector<Axis>& shape = spec.shapes.front();
    if (shape.size() < 2) continue;
    if (shape[1] == Axis::kTokens) inputs.push_back({spec, 1});
    if (shape[1] == Axis::kRows) inputs.push_back({spec, steps});
  }
  return inputs;
}

// Least squares close a chunk before a decay that is small, or what is not finite, and answer
// tokens of a short chunk another way; kernel regression answers what shares a block of rows with a
// failed pivot by least norm: the same numbers to rounding, which a condition may make large.
bool KeepsBits(const Recipe& recipe) {
  const std::string_view engine = MakePlan(recipe).engine;
  return engine != "least_squares" && engine != "kernel_regression";
}

// Is there anything that a token must not see?
bool IsCausal(const Recipe& recipe) {
  return recipe.reading.causal && recipe.reading.read != Read::kBatchEnd;
}

class Spoiler {
 public:
  explicit Spoiler(std::uint64_t seed) : random_(seed, 7) {}

  std::int64_t Below(std::int64_t count) {
    return static_cast<std::int64_t>(random_.Below(static_cast<std::uint64_t>(count)));
  }

  // Changes tokens from t on; tells how. `finite`: so that all products stay finite.
  std::string Spoil(const Call& call, const Call& other, std::int64_t t, bool finite = false) {
    if (finite) {
      const bool forgets = call.inputs.log_decay.defined() && Below(2) == 0;
      return forgets ? Forget(call, t) : Replace(call, other, t);
    }
    switch (Below(5)) {
      case 0: return Replace(call, other, t);
      case 1:
        if (call.inputs.log_decay.defined()) return Forget(call, t);
        [[fallthrough]];
      case 2: return SetNumber(call, t, kNan, "NaN");
      case 3: return SetNumber(call, t, Below(2) == 0 ? kInfinity : -kInfinity, "infinity");
      default: return SetNumber(call, t, std::exp2(static_cast<double>(Below(100))), "2^n");
    }
  }

 private:
  static std::string Replace(const Call& call, const Call& other, std::int64_t t) {
    for (const TokenInput& input : TokenInputs(call.recipe)) {
      const TensorView& view = call.inputs.*input.spec.view;
      if (!view.defined()) continue;
      const std::int64_t first = t * input.rows, count = view.size(1) - first;
      CopyInto((other.inputs.*input.spec.view).Slice(1, first, count), view.Slice(1, first, count));
    }
    return "other inputs";
  }

  std::string Forget(const Call& call, std::int64_t t) {
    constexpr double kLowest = -std::numeric_limits<float>::max();
    const double decays[] = {-1e4, -1e6, -1e9, -1e20, kLowest, -kInfinity};
    const double decay = decays[Below(6)];
    Fill(call.inputs.log_decay.Slice(1, t, 1), decay);
    return "log_decay " + std::to_string(decay);
  }

  // A number of a row, or all of them.
  std::string SetNumber(const Call& call, std::int64_t t, double x, const char* name) {
    std::vector<TokenInput> inputs = TokenInputs(call.recipe);
    std::erase_if(inputs, [&](const TokenInput& input) {
      const TensorView& view = call.inputs.*input.spec.view;
      // The door has a word in what gates may be.
      const bool gate = input.spec.name != "q" && input.spec.name != "k" && input.spec.name != "v";
      return !view.defined() || !IsFloating(view.dtype()) || (gate && !std::isnan(x));
    });
    const TokenInput& input = inputs[static_cast<std::size_t>(Below(std::ssize(inputs)))];
    const TensorView row = (call.inputs.*input.spec.view).Slice(1, t * input.rows, 1);
    Fill(Below(2) == 0 ? row : row.Slice(row.rank() - 1, Below(row.size(row.rank() - 1)), 1), x);
    return std::string(input.spec.name) + " " + name;
  }

  CounterRandom random_;
};

// Looks at the first `rows` tokens.
bool HaveSameBits(const TensorView& a, const TensorView& b, std::int64_t rows) {
  const Tensor x = Tensor::Copy(a.Slice(1, 0, rows)), y = Tensor::Copy(b.Slice(1, 0, rows));
  const auto bytes = static_cast<std::size_t>(x.elements()) * SizeOf(x.dtype());
  return bytes == 0 || std::memcmp(x.data(), y.data(), bytes) == 0;
}

std::string Describe(const Call& call, std::int64_t t, const std::string& how) {
  return ToString(call.recipe) + ", T = " + std::to_string(call.dims.tokens) +
         ", Dk = " + std::to_string(call.dims.key_dim) +
         ", Dv = " + std::to_string(call.dims.value_dim) + ", token " + std::to_string(t) + ": " +
         how;
}

void ExpectNoSight(const Recipe& recipe, const Dims& dims, DType dtype, std::uint64_t seed) {
  const Layer layer(recipe);
  const Call plain(recipe, dims, dtype, seed, true), spoilt(recipe, dims, dtype, seed, true);
  const Call other(recipe, dims, dtype, seed + 1000, true);
  Spoiler spoiler(seed);
  const std::int64_t t = spoiler.Below(dims.tokens);
  const std::string how = Describe(plain, t, spoiler.Spoil(spoilt, other, t));
  const auto expect = [&](const Result& a, const Result& b, const char* what) {
    EXPECT_TRUE(HaveSameBits(a.y, b.y, t)) << how << ", " << what;
    EXPECT_TRUE(HaveSameBits(a.status, b.status, t)) << how << ", status " << what;
  };
  expect(RunWhole(layer, plain), RunWhole(layer, spoilt), "whole");
  const std::int64_t piece = 1 + spoiler.Below(dims.tokens);
  expect(RunInPieces(layer, plain, piece), RunInPieces(layer, spoilt, piece), "in pieces");
}

// Do gradients pass by what is not finite? Through a state that is carried they go back from token
// to token, and a gradient of zero times NaN is NaN.
bool PassesByNonfinite(const Recipe& recipe) {
  const std::string_view engine = MakePlan(recipe).engine;
  return engine == "kernel_smoother" || engine == "local_polynomial";
}

bool IsFinite(const TensorView& view) {
  const Tensor copy = Tensor::Copy(view, DType::kFloat64);
  return std::ranges::all_of(copy.as<double>(), [](double x) { return std::isfinite(x); });
}

// Networks whose steps are too long do not stay so.
bool StaysFinite(const Layer& layer, const Call& call) {
  const Result result = RunWhole(layer, call);
  return IsFinite(result.y) && std::ranges::all_of(result.state.entries(), [](const auto& entry) {
           return IsFinite(entry.view);
         });
}

// Gradients of tokens before t, for outputs that count before t alone: the same numbers (of zeros
// the sign may differ).
void ExpectNoSightBackwards(const Recipe& recipe, const Dims& dims, std::uint64_t seed) {
  const Layer layer(recipe);
  const DType dtype = seed % 2 == 0 ? DType::kFloat64 : DType::kFloat32;
  const Call plain(recipe, dims, dtype, seed, true), spoilt(recipe, dims, dtype, seed, true);
  const Call other(recipe, dims, dtype, seed + 1000, true);
  Spoiler spoiler(seed);
  const std::int64_t t = spoiler.Below(dims.tokens);
  const bool finite = !PassesByNonfinite(recipe);
  const std::string how = Describe(plain, t, spoiler.Spoil(spoilt, other, t, finite));
  if (finite && !(StaysFinite(layer, plain) && StaysFinite(layer, spoilt))) return;
  const Tensor dy(dtype, OutputShape(dims));
  const Tensor counts = test::Normal(dtype, OutputShape(dims), seed);
  CopyInto(counts.view().Slice(1, 0, t), dy.view().Slice(1, 0, t));
  const test::Gradients a = test::Differentiate(layer, plain.inputs, {}, dy, {}, {}, dtype);
  const test::Gradients b = test::Differentiate(layer, spoilt.inputs, {}, dy, {}, {}, dtype);
  for (const TokenInput& input : TokenInputs(recipe)) {
    const TensorView& x = a.inputs.*input.spec.view;
    if (!x.defined()) continue;
    const TensorView& y = b.inputs.*input.spec.view;
    const std::int64_t rows = t * input.rows;
    EXPECT_EQ(test::LargestDifference(x.Slice(1, 0, rows), y.Slice(1, 0, rows)), 0)
        << how << ", gradient of " << input.spec.name;
  }
}

DType DTypeOf(std::uint64_t seed) {
  constexpr DType kAll[] = {DType::kFloat64, DType::kFloat32, DType::kBFloat16};
  return kAll[seed % 3];
}

class Causality : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Recipes, Causality, ::testing::ValuesIn(test::LayerRecipes()),
                         test::CaseName);

TEST_P(Causality, KeepsTheBitsOfOutputsBefore) {
  const Recipe recipe = ParseRecipe(GetParam());
  if (!IsCausal(recipe)) GTEST_SKIP() << "reads what comes later";
  if (!KeepsBits(recipe)) GTEST_SKIP() << "to rounding";
  const bool slow =
      MakePlan(recipe).engine == kDefinition ||
      (recipe.function.kind == FunctionClass::kPolynomial && recipe.function.degree > 1);
  const int draws = test::Draws(slow ? 6 : 30);
  for (int i = 0; i < draws; ++i) {
    Dims dims = test::SmallDims(recipe);
    dims.batch = 1;
    dims.tokens = slow ? 20 : 100;
    ExpectNoSight(recipe, dims, DTypeOf(static_cast<std::uint64_t>(i)),
                  static_cast<std::uint64_t>(i));
  }
}

TEST_P(Causality, KeepsGradientsBefore) {
  const Recipe recipe = ParseRecipe(GetParam());
  if (!IsCausal(recipe)) GTEST_SKIP() << "reads what comes later";
  if (!KeepsBits(recipe)) GTEST_SKIP() << "to rounding";
  if (!Layer(recipe).HasGradients()) GTEST_SKIP() << "differences of the definition";
  const bool slow = recipe.function.kind == FunctionClass::kPolynomial;
  const int draws = test::Draws(slow ? 4 : 20);
  for (int i = 0; i < draws; ++i) {
    Dims dims = test::SmallDims(recipe);
    dims.batch = 1;
    dims.tokens = slow ? 40 : 100;
    ExpectNoSightBackwards(recipe, dims, static_cast<std::uint64_t>(i));
  }
}

TEST(CausalityOfAnyRecipe, KeepsTheBitsOfOutputsBefore) {
  test::Drawn drawn(3);
  const int draws = test::Draws(300);
  for (int i = 0; i < draws; ++i) {
    const Recipe recipe = drawn.Next();
    Dims dims = drawn.Shape(recipe, 100, 20);
    if (!IsCausal(recipe) || !KeepsBits(recipe) || dims.tokens == 0) continue;
    ExpectNoSight(recipe, dims, DTypeOf(static_cast<std::uint64_t>(i)),
                  static_cast<std::uint64_t>(i));
  }
}

}  // namespace
}  // namespace ttr
