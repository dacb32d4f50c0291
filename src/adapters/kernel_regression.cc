// From a recipe to the options of kernel regression.

#include "src/engines/kernel_regression/kernel_regression.h"

#include "src/adapters/output_norm.h"
#include "src/adapters/pair_gradients.h"
#include "src/adapters/pair_options.h"
#include "src/adapters/registry.h"
#include "src/engines/kernel_regression/backward.h"
#include "src/recipe/family.h"

namespace ttr {
namespace {

kernel_regression::Options OptionsOf(const Recipe& recipe, const Dims& dims) {
  return {QueryOptionsOf(recipe, dims), recipe.optimizer.ridge};
}

kernel_regression::Call CallOf(const EngineCall& from, const State& state) {
  kernel_regression::Call call{QueriedTensorsOf(from, state)};
  call.ridge = from.inputs.ridge;
  return call;
}

kernel_regression::Sizes SizesOf(const Recipe& recipe, const Dims& dims, DType dtype) {
  return {QuerySizesOf(recipe, dims, dtype)};
}

class KernelRegression final : public Engine {
 public:
  std::string_view name() const override { return "kernel_regression"; }

  bool Covers(const Recipe& recipe) const override {
    return FamilyOf(recipe) == Family::kKernelRegression;
  }
  const char* Obstacle(const Recipe& recipe) const override {
    if (recipe.weights.decay != Decay::kNone) {
      return "under a decay the system of every prefix is another, and no factor serves two";
    }
    if (!recipe.reading.scale_rsqrt && recipe.reading.scale < 0) {
      return "a scale below 0, of which no kernel is positive definite";
    }
    return nullptr;
  }
  std::string_view How(const Recipe&) const override {
    return "one Cholesky factor of the kernel's matrix, in blocks: every prefix exactly, SIMD";
  }
  /// One factor serves all prefixes: T^3 / 3, and as much again for the answers.
  double FlopsPerToken(const Recipe& recipe, const Dims& dims) const override {
    const auto tokens = static_cast<double>(dims.tokens);
    const auto channels = static_cast<double>(dims.key_dim + dims.value_dim);
    const double queries = QueriesOfMemory(dims);
    const double answers = recipe.reading.causal ? tokens / 3 : tokens;
    return (tokens * tokens / 3 + tokens * channels) + queries * tokens * (answers + channels);
  }
  double WorkBytes(const Recipe& recipe, const Dims& dims, std::int64_t pairs,
                   bool backward) const override {
    const auto count = static_cast<double>(pairs);
    const double queries = QueriesOfMemory(dims);
    const double solutions = (recipe.reading.causal ? 1 : 2) * queries;  // two columns a query
    return 4 * count * count * (0.5 + (backward ? solutions : 0));
  }

  void Forward(const EngineCall& call, State& state, const Outputs& outputs) const override {
    const Recipe& recipe = call.recipe();
    if (call.needs == Needs::kRead && !state.Get("state.k").defined()) {
      return RetrieveNothing(outputs, false);
    }
    kernel_regression::Call operands = CallOf(call, state);
    CallScratch scratch(
        name(), call.scratch,
        OutputsBeforeNorm::ScratchBytes(recipe, call.dims, call.executor.threads()));
    const OutputsBeforeNorm before(recipe, outputs.y, call.dtype, scratch);
    operands.y = before.y();
    operands.status = outputs.status;
    operands.factor = call.needs == Needs::kBoth ? call.auxiliary : TensorView();
    kernel_regression::Forward(OptionsOf(recipe, call.dims), operands, call.executor,
                               scratch.rest());
    before.Normalise(call.executor);
  }

  bool HasGradients() const override { return true; }

  void Backward(const EngineCall& call, const State& initial,
                const BackwardTensors& tensors) const override {
    const Recipe& recipe = call.recipe();
    const kernel_regression::Options options = OptionsOf(recipe, call.dims);
    const kernel_regression::Call operands = CallOf(call, initial);
    BackwardThroughPairs(
        call, tensors, operands,
        [&](const auto& reading) { kernel_regression::Retrieve(options, reading, call.executor); },
        [&](const auto&... of) {
          kernel_regression::Backward(options, operands, of..., call.executor, call.scratch);
        });
  }

  std::size_t BackwardScratchBytes(const Recipe& recipe, const Dims& dims,
                                   int threads) const override {
    return kernel_regression::BackwardScratchBytes(OptionsOf(recipe, dims),
                                                   SizesOf(recipe, dims, DType::kFloat64), threads);
  }

  std::size_t ScratchBytes(const Recipe& recipe, const Dims& dims, int threads) const override {
    return OutputsBeforeNorm::ScratchBytes(recipe, dims, threads) +
           kernel_regression::ScratchBytes(SizesOf(recipe, dims, DType::kFloat64), threads);
  }

  std::int64_t PairAuxiliaryNumbers(const Recipe& recipe, const Dims& dims, DType dtype,
                                    std::int64_t capacity) const override {
    kernel_regression::Sizes sizes = SizesOf(recipe, dims, dtype);
    sizes.held = capacity;
    return kernel_regression::FactorNumbers(sizes);
  }
};

}  // namespace

const Engine& KernelRegressionEngine() {
  static const KernelRegression engine;
  return engine;
}

}  // namespace ttr
