// From a recipe to the options of local polynomials.

#include "src/engines/local_polynomial/local_polynomial.h"

#include <vector>

#include "src/adapters/output_norm.h"
#include "src/adapters/pair_gradients.h"
#include "src/adapters/pair_options.h"
#include "src/adapters/registry.h"
#include "src/engines/local_polynomial/backward.h"
#include "src/recipe/family.h"

namespace ttr {
namespace {

constexpr std::int64_t kMostDegree = 3;

local_polynomial::Options OptionsOf(const Recipe& recipe, const Dims& dims) {
  local_polynomial::Options options{QueryOptionsOf(recipe, dims)};
  options.ridge = recipe.optimizer.ridge;
  options.degree = recipe.function.degree;
  options.window = recipe.weights.window;
  options.output_norm = OutputNormOf(recipe);
  return options;
}

/// The inputs and the constants of a call, which `factors` outlives.
local_polynomial::Call CallOf(const EngineCall& from, const State& state,
                              const std::vector<double>& factors) {
  return {QueriedTensorsOf(from, state, factors), from.inputs.ridge};
}

local_polynomial::Sizes SizesOf(const Recipe& recipe, const Dims& dims, DType dtype) {
  return {QuerySizesOf(recipe, dims, dtype), recipe.function.degree};
}

class LocalPolynomial final : public Engine {
 public:
  std::string_view name() const override { return "local_polynomial"; }

  bool Covers(const Recipe& recipe) const override {
    return FamilyOf(recipe) == Family::kLocalPolynomial;
  }
  const char* Obstacle(const Recipe& recipe) const override {
    if (recipe.function.degree > kMostDegree) return "its polynomials are of a degree above 3";
    return nullptr;
  }
  const char* SizeObstacle(const Recipe& recipe, const Dims& dims) const override {
    const std::int64_t degree = recipe.function.degree;
    const bool few = degree == 1 || local_polynomial::MonomialsOf(dims.key_dim, degree) <=
                                        local_polynomial::kMostMonomials;
    return few ? nullptr : "its polynomials have more than 256 monomials";
  }
  std::string_view How(const Recipe& recipe) const override {
    return recipe.function.degree == 1
               ? "a linear fit around every query, several side by side"
               : "a polynomial fit around every query, several side by side; of more than 256 "
                 "monomials on the definition";
  }
  double FlopsPerToken(const Recipe& recipe, const Dims& dims) const override {
    const double pairs = PairsRead(recipe, dims), queries = QueriesOfMemory(dims);
    double monomials = 1;
    for (std::int64_t i = 1; i <= recipe.function.degree; ++i) {
      monomials *= static_cast<double>(dims.key_dim + i) / static_cast<double>(i);
    }
    monomials -= 1;
    const auto channels = static_cast<double>(2 * dims.key_dim + 2 * dims.value_dim);
    return queries *
           (pairs * (monomials * monomials + channels) + monomials * monomials * monomials / 3);
  }

  void Forward(const EngineCall& call, State& state, const Outputs& outputs) const override {
    if (call.needs == Needs::kRead && !state.Get("state.k").defined()) {
      return RetrieveNothing(outputs, true);
    }
    const std::vector<double>& factors = call.prepared.For(call.dims, call.dtype).decay_factors;
    local_polynomial::Call operands = CallOf(call, state, factors);
    if (call.needs != Needs::kWrite) {
      operands.y = outputs.y;
      operands.status = outputs.status;
    }
    local_polynomial::Forward(OptionsOf(call.recipe(), call.dims), operands, call.executor,
                              call.scratch);
  }

  bool HasGradients() const override { return true; }

  void Backward(const EngineCall& call, const State& initial,
                const BackwardTensors& tensors) const override {
    const Recipe& recipe = call.recipe();
    const std::vector<double>& factors = call.prepared.For(call.dims, call.dtype).decay_factors;
    const local_polynomial::Call operands = CallOf(call, initial, factors);
    local_polynomial::Options options = OptionsOf(recipe, call.dims);
    options.output_norm = local_polynomial::OutputNorm::kNone;
    BackwardThroughPairs(
        call, tensors, operands,
        [&](const auto& reading) { local_polynomial::Predict(options, reading, call.executor); },
        [&](const auto&... of) {
          local_polynomial::Backward(options, operands, of..., call.executor, call.scratch);
        });
  }

  std::size_t BackwardScratchBytes(const Recipe& recipe, const Dims& dims,
                                   int threads) const override {
    return local_polynomial::BackwardScratchBytes(SizesOf(recipe, dims, DType::kFloat64), threads);
  }

  std::size_t ScratchBytes(const Recipe& recipe, const Dims& dims, int threads) const override {
    return local_polynomial::ScratchBytes(SizesOf(recipe, dims, DType::kFloat64), threads);
  }
};

}  // namespace

const Engine& LocalPolynomialEngine() {
  static const LocalPolynomial engine;
  return engine;
}

}  // namespace ttr
