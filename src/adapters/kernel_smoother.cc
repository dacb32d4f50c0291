// From a recipe to the options of the kernel smoother.

#include "src/engines/kernel_smoother/kernel_smoother.h"

#include <vector>

#include "src/adapters/output_norm.h"
#include "src/adapters/pair_gradients.h"
#include "src/adapters/pair_options.h"
#include "src/adapters/registry.h"
#include "src/engines/kernel_smoother/backward.h"
#include "src/recipe/family.h"

namespace ttr {
namespace {

kernel_smoother::Options OptionsOf(const Recipe& recipe, const Dims& dims) {
  kernel_smoother::Options options{QueryOptionsOf(recipe, dims)};
  options.normalised = recipe.function.kind == FunctionClass::kConstant;
  options.eta = recipe.optimizer.eta;
  options.window = recipe.weights.window;
  options.output_norm = OutputNormOf(recipe);
  return options;
}

class KernelSmoother final : public Engine {
 public:
  std::string_view name() const override { return "kernel_smoother"; }

  bool Covers(const Recipe& recipe) const override {
    return FamilyOf(recipe) == Family::kKernelSmoother;
  }
  std::string_view How(const Recipe& recipe) const override {
    return recipe.reading.causal
               ? "weighted sums of the values kept, in blocks of pairs under a running maximum"
               : "weighted sums of all values, in blocks of pairs under a running maximum";
  }
  double FlopsPerToken(const Recipe& recipe, const Dims& dims) const override {
    const auto channels = static_cast<double>(dims.key_dim + dims.value_dim);
    return PairsRead(recipe, dims) * 2 * channels * QueriesOfMemory(dims);
  }

  void Forward(const EngineCall& call, State& state, const Outputs& outputs) const override {
    if (call.needs == Needs::kRead && !state.Get("state.k").defined()) {
      return RetrieveNothing(outputs, call.recipe().function.kind == FunctionClass::kConstant);
    }
    const std::vector<double>& factors = call.prepared.For(call.dims, call.dtype).decay_factors;
    kernel_smoother::Call operands{QueriedTensorsOf(call, state, factors)};
    if (call.needs != Needs::kWrite) {
      operands.y = outputs.y;
      operands.status = outputs.status;
      operands.effective_pairs = outputs.effective_pairs;
    }
    operands.saved = call.saved;
    kernel_smoother::Forward(OptionsOf(call.recipe(), call.dims), operands, call.executor,
                             call.scratch);
  }

  bool HasReport(const ReportField& report) const override {
    return report.view == &Outputs::effective_pairs || Engine::HasReport(report);
  }
  bool HasGradients() const override { return true; }

  void Backward(const EngineCall& call, const State& initial,
                const BackwardTensors& tensors) const override {
    const Recipe& recipe = call.recipe();
    const std::vector<double>& factors = call.prepared.For(call.dims, call.dtype).decay_factors;
    kernel_smoother::Call operands{QueriedTensorsOf(call, initial, factors)};
    kernel_smoother::Options options = OptionsOf(recipe, call.dims);
    options.output_norm = kernel_smoother::OutputNorm::kNone;
    // What is saved is of outputs without a norm.
    if (recipe.reading.output_norm == OutputNorm::kNone) operands.saved = call.saved;
    BackwardThroughPairs(
        call, tensors, operands,
        [&](const auto& reading) { kernel_smoother::Read(options, reading, call.executor); },
        [&](const auto&... of) {
          kernel_smoother::Backward(options, operands, of..., call.executor, call.scratch);
        });
  }

  std::size_t BackwardScratchBytes(const Recipe& recipe, const Dims& dims,
                                   int threads) const override {
    return kernel_smoother::BackwardScratchBytes(QuerySizesOf(recipe, dims, DType::kFloat64),
                                                 threads);
  }

  std::size_t SavedBytes(const Recipe& recipe, const Dims& dims, DType state) const override {
    if (recipe.reading.output_norm != OutputNorm::kNone) return 0;
    if (recipe.similarity.kernel == Kernel::kInverseDistance) return 0;  // hits are not reported
    return kernel_smoother::SavedBytes(QuerySizesOf(recipe, dims, state),
                                       dims.batch * dims.tokens * dims.output_heads());
  }

  std::size_t ScratchBytes(const Recipe& recipe, const Dims& dims, int threads) const override {
    return kernel_smoother::ScratchBytes(QuerySizesOf(recipe, dims, DType::kFloat64), threads);
  }
};

}  // namespace

const Engine& KernelSmootherEngine() {
  static const KernelSmoother engine;
  return engine;
}

}  // namespace ttr
