// From a recipe's words to those of kernel regression.

#include "src/engines/kernel_regression/kernel_regression.h"

#include <algorithm>
#include <cmath>

#include "src/adapters/kernel_words.h"
#include "src/adapters/pair_gradients.h"
#include "src/adapters/registry.h"
#include "src/core/working_copy.h"
#include "src/engines/kernel_regression/backward.h"
#include "src/engines/rows/norm.h"
#include "src/recipe/family.h"

namespace ttr {
namespace {

kernel_regression::Options OptionsOf(const Recipe& recipe, const Dims& dims) {
  kernel_regression::Options options;
  options.kernel = KernelOf(recipe.similarity.kernel);
  options.bandwidth = recipe.similarity.bandwidth;
  options.scale = recipe.reading.scale_rsqrt ? 1 / std::sqrt(static_cast<double>(dims.key_dim))
                                             : recipe.reading.scale;
  options.ridge = recipe.optimizer.ridge;
  options.causal = recipe.reading.causal;
  options.read_before = recipe.reading.read == Read::kBefore;
  options.normalise_qk = recipe.reading.normalise_qk;
  return options;
}

kernel_regression::Call CallOf(const EngineCall& from, const State& state) {
  const Inputs& inputs = from.inputs;
  kernel_regression::Call call;
  if (from.needs != Needs::kWrite) call.q = inputs.q;
  if (from.needs != Needs::kRead) {
    call.k = inputs.k;
    call.v = inputs.v;
    call.importance = inputs.importance;
    call.log_importance = inputs.log_importance;
  }
  call.ridge = inputs.ridge;
  call.bandwidth = inputs.bandwidth;
  if (inputs.cu_seqlens.defined()) {
    call.cu_seqlens = {inputs.cu_seqlens.as<std::int64_t>(),
                       static_cast<std::size_t>(from.dims.sequences + 1)};
  }
  call.state_k = state.Get("state.k");
  call.state_v = state.Get("state.v");
  call.state_log_weight = state.Get("state.log_weight");
  call.state_length = state.Get("state.length");
  return call;
}

kernel_regression::Sizes SizesOf(const Recipe& recipe, const Dims& dims, DType dtype) {
  kernel_regression::Sizes sizes;
  sizes.key_dim = dims.key_dim;
  sizes.value_dim = dims.value_dim;
  sizes.heads = dims.heads;
  sizes.queries = std::max<std::int64_t>(1, dims.query_heads / dims.heads);
  sizes.sequences = dims.states();
  sizes.tokens = dims.tokens;
  sizes.dtype = dtype;
  sizes.weighted = recipe.weights.importance != Importance::kNone;
  return sizes;
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
    if (recipe.weights.window > 0) {
      return "under a window the system of every prefix is another, and no factor serves two";
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
    const double queries =
        std::max(1.0, static_cast<double>(dims.query_heads) / static_cast<double>(dims.heads));
    const double answers = recipe.reading.causal ? tokens / 3 : tokens;
    return (tokens * tokens / 3 + tokens * channels) + queries * tokens * (answers + channels);
  }
  double WorkBytes(const Recipe& recipe, const Dims& dims, std::int64_t pairs,
                   bool backward) const override {
    const auto count = static_cast<double>(pairs);
    const double queries =
        std::max(1.0, static_cast<double>(dims.query_heads) / static_cast<double>(dims.heads));
    const double solutions = (recipe.reading.causal ? 1 : 2) * queries;  // two columns a query
    return 4 * count * count * (0.5 + (backward ? solutions : 0));
  }

  void Forward(const EngineCall& call, State& state, const Outputs& outputs) const override {
    const Recipe& recipe = call.recipe();
    if (call.needs == Needs::kRead && !state.Get("state.k").defined()) {
      return CopyInto(Tensor(outputs.y.dtype(), outputs.y.shape()), outputs.y);
    }
    kernel_regression::Call words = CallOf(call, state);
    const OutputNorm norm = recipe.reading.output_norm;
    Tensor plain;  // outputs before their norm
    if (call.needs != Needs::kWrite) {
      if (norm != OutputNorm::kNone) plain = Tensor(words.dtype(), outputs.y.shape());
      words.y = plain.defined() ? plain.view() : outputs.y;
      words.status = outputs.status;
    }
    words.factor = call.needs == Needs::kBoth ? call.auxiliary : TensorView();
    kernel_regression::Forward(OptionsOf(recipe, call.dims), words, call.executor, call.scratch);
    if (plain.defined()) {
      rows::Normalise({NormOf(recipe), 0, plain, {}, {}, {}}, outputs.y, call.executor);
    }
  }

  bool HasGradients() const override { return true; }

  void Backward(const EngineCall& call, const State& initial,
                const BackwardTensors& tensors) const override {
    const Recipe& recipe = call.recipe();
    const kernel_regression::Options options = OptionsOf(recipe, call.dims);
    const kernel_regression::Call words = CallOf(call, initial);
    Tensor dz;
    if (recipe.reading.output_norm != OutputNorm::kNone) {
      dz = GradientBeforeNorm(call, options, words, tensors.dy);
    }
    const PairGradientCopies copies(call, initial, tensors);
    kernel_regression::Backward(options, words, dz.defined() ? dz.view() : tensors.dy,
                                FinalPairGradientsOf(tensors.dstate), copies.views(), call.executor,
                                call.scratch);
    copies.WriteBack();
  }

  std::size_t BackwardScratchBytes(const Recipe& recipe, const Dims& dims,
                                   int threads) const override {
    return kernel_regression::BackwardScratchBytes(OptionsOf(recipe, dims),
                                                   SizesOf(recipe, dims, DType::kFloat64), threads);
  }

  std::size_t ScratchBytes(const Recipe& recipe, const Dims& dims, int threads) const override {
    return kernel_regression::ScratchBytes(SizesOf(recipe, dims, DType::kFloat64), threads);
  }

  std::int64_t PairAuxiliaryNumbers(const Recipe& recipe, const Dims& dims, DType dtype,
                                    std::int64_t capacity) const override {
    kernel_regression::Sizes sizes = SizesOf(recipe, dims, dtype);
    sizes.held = capacity;
    return kernel_regression::FactorNumbers(sizes);
  }

 private:
  static rows::NormKind NormOf(const Recipe& recipe) {
    return recipe.reading.output_norm == OutputNorm::kL2 ? rows::NormKind::kL2
                                                         : rows::NormKind::kRms;
  }

  /// The gradient of what the answers were before their norm. They are read alone: no state is
  /// written.
  static Tensor GradientBeforeNorm(const EngineCall& call,
                                   const kernel_regression::Options& options,
                                   kernel_regression::Call words, const TensorView& dy) {
    const Tensor z(words.dtype(), dy.shape()), dz(words.dtype(), dy.shape());
    words.y = z.view();
    kernel_regression::Retrieve(options, words, call.executor);
    rows::NormaliseGradient({NormOf(call.recipe()), 0, z, {}, {}, {}}, dy, {dz, {}, {}, {}},
                            call.executor);
    return dz;
  }
};

}  // namespace

const Engine& KernelRegressionEngine() {
  static const KernelRegression engine;
  return engine;
}

}  // namespace ttr
