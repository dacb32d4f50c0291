// From a recipe to the options of the kernel smoother.

#include "src/engines/kernel_smoother/kernel_smoother.h"

#include <algorithm>
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
    const auto tokens = static_cast<double>(dims.tokens);
    double pairs = recipe.reading.causal ? (tokens + 1) / 2 : tokens;
    const auto window = static_cast<double>(recipe.weights.window);
    if (window > 0) pairs = std::min(pairs, window);
    const double queries =
        std::max(1.0, static_cast<double>(dims.query_heads) / static_cast<double>(dims.heads));
    return pairs * 2 * channels * queries;
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
    }
    operands.saved = call.saved;
    kernel_smoother::Forward(OptionsOf(call.recipe(), call.dims), operands, call.executor,
                             call.scratch);
  }

  bool HasGradients() const override { return true; }

  void Backward(const EngineCall& call, const State& initial,
                const BackwardTensors& tensors) const override {
    const Recipe& recipe = call.recipe();
    const std::vector<double>& factors = call.prepared.For(call.dims, call.dtype).decay_factors;
    kernel_smoother::Call operands{QueriedTensorsOf(call, initial, factors)};
    kernel_smoother::Options options = OptionsOf(recipe, call.dims);
    options.output_norm = kernel_smoother::OutputNorm::kNone;
    const auto retrieve = [&](const TensorView& z) {
      kernel_smoother::Call reading = operands;
      reading.y = z;
      kernel_smoother::Read(options, reading, call.executor);
    };
    const Tensor dz = GradientBeforeNorm(call, call.dtype, tensors.dy, retrieve);
    if (!dz.defined()) operands.saved = call.saved;  // of outputs without a norm
    const PairGradientCopies copies(call, tensors);
    kernel_smoother::Backward(options, operands, dz.defined() ? dz.view() : tensors.dy,
                              FinalPairGradientsOf(tensors.dstate), copies.views(), call.executor,
                              call.scratch);
    copies.WriteBack();
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
