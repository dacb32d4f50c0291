// From a recipe's words to those of the kernel smoother.

#include "src/engines/kernel_smoother/kernel_smoother.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "src/adapters/decay_factors.h"
#include "src/adapters/kernel_words.h"
#include "src/adapters/pair_gradients.h"
#include "src/adapters/registry.h"
#include "src/core/working_copy.h"
#include "src/engines/kernel_smoother/backward.h"
#include "src/engines/rows/norm.h"
#include "src/recipe/family.h"

namespace ttr {
namespace {

kernel_smoother::OutputNorm NormOf(OutputNorm norm) {
  switch (norm) {
    case OutputNorm::kNone: return kernel_smoother::OutputNorm::kNone;
    case OutputNorm::kL2: return kernel_smoother::OutputNorm::kL2;
    case OutputNorm::kRms: return kernel_smoother::OutputNorm::kRms;
  }
  return kernel_smoother::OutputNorm::kNone;
}

kernel_smoother::Options OptionsOf(const Recipe& recipe, const Dims& dims) {
  kernel_smoother::Options options;
  options.kernel = KernelOf(recipe.similarity.kernel);
  options.bandwidth = recipe.similarity.bandwidth;
  options.scale = recipe.reading.scale_rsqrt ? 1 / std::sqrt(static_cast<double>(dims.key_dim))
                                             : recipe.reading.scale;
  options.normalised = recipe.function.kind == FunctionClass::kConstant;
  options.eta = recipe.optimizer.eta;
  options.causal = recipe.reading.causal;
  options.read_before = recipe.reading.read == Read::kBefore;
  options.normalise_qk = recipe.reading.normalise_qk;
  options.window = recipe.weights.window;
  options.output_norm = NormOf(recipe.reading.output_norm);
  return options;
}

/// The inputs and the constants of a call, which `factors` outlives.
kernel_smoother::Call CallOf(const EngineCall& from, const State& state,
                             const std::vector<double>& factors) {
  const Inputs& inputs = from.inputs;
  kernel_smoother::Call call;
  if (from.needs != Needs::kWrite) call.q = inputs.q;
  if (from.needs != Needs::kRead) {
    call.k = inputs.k;
    call.v = inputs.v;
    call.log_decay = inputs.log_decay;
    call.importance = inputs.importance;
    call.log_importance = inputs.log_importance;
    call.decay_factors = factors;
  }
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

kernel_smoother::Sizes SizesOf(const Recipe& recipe, const Dims& dims, DType dtype) {
  const Weights& weights = recipe.weights;
  kernel_smoother::Sizes sizes;
  sizes.key_dim = dims.key_dim;
  sizes.value_dim = dims.value_dim;
  sizes.heads = dims.heads;
  sizes.queries = std::max<std::int64_t>(1, dims.query_heads / dims.heads);
  sizes.sequences = dims.states();
  sizes.tokens = dims.tokens;
  sizes.dtype = dtype;
  sizes.weighted = weights.decay != Decay::kNone || weights.importance != Importance::kNone;
  return sizes;
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
      return NothingKept(call.recipe(), outputs);
    }
    const std::vector<double> factors = DecayFactors(call.recipe(), call.dims);
    kernel_smoother::Call words = CallOf(call, state, factors);
    if (call.needs != Needs::kWrite) {
      words.y = outputs.y;
      words.status = outputs.status;
    }
    words.saved = call.saved;
    kernel_smoother::Forward(OptionsOf(call.recipe(), call.dims), words, call.executor,
                             call.scratch);
  }

  bool HasGradients() const override { return true; }

  void Backward(const EngineCall& call, const State& initial,
                const BackwardTensors& tensors) const override {
    const Recipe& recipe = call.recipe();
    const std::vector<double> factors = DecayFactors(recipe, call.dims);
    kernel_smoother::Call words = CallOf(call, initial, factors);
    words.saved = call.saved;
    kernel_smoother::Options options = OptionsOf(recipe, call.dims);
    Tensor dz;
    if (options.output_norm != kernel_smoother::OutputNorm::kNone) {
      const bool l2 = options.output_norm == kernel_smoother::OutputNorm::kL2;
      options.output_norm = kernel_smoother::OutputNorm::kNone;
      words.saved = {};  // of outputs behind their norm
      dz = GradientBeforeNorm(options, words, tensors.dy, l2, call.executor);
    }
    const PairGradientCopies copies(call, initial, tensors);
    kernel_smoother::Backward(options, words, dz.defined() ? dz.view() : tensors.dy,
                              FinalPairGradientsOf(tensors.dstate), copies.views(), call.executor,
                              call.scratch);
    copies.WriteBack();
  }

  std::size_t BackwardScratchBytes(const Recipe& recipe, const Dims& dims,
                                   int threads) const override {
    return kernel_smoother::BackwardScratchBytes(SizesOf(recipe, dims, DType::kFloat64), threads);
  }

  std::size_t SavedBytes(const Recipe& recipe, const Dims& dims, DType state) const override {
    if (recipe.reading.output_norm != OutputNorm::kNone) return 0;
    if (recipe.similarity.kernel == Kernel::kInverseDistance) return 0;  // hits are not told
    return kernel_smoother::SavedBytes(SizesOf(recipe, dims, state),
                                       dims.batch * dims.tokens * dims.output_heads());
  }

  std::size_t ScratchBytes(const Recipe& recipe, const Dims& dims, int threads) const override {
    return kernel_smoother::ScratchBytes(SizesOf(recipe, dims, DType::kFloat64), threads);
  }

 private:
  /// The gradient of what the outputs were before their norm.
  static Tensor GradientBeforeNorm(const kernel_smoother::Options& options,
                                   kernel_smoother::Call words, const TensorView& dy, bool l2,
                                   Executor& executor) {
    const DType dtype = words.v.dtype() == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
    const Tensor z(dtype, dy.shape()), dz(dtype, dy.shape());
    words.y = z.view();
    kernel_smoother::Read(options, words, executor);
    rows::NormaliseGradient({l2 ? rows::NormKind::kL2 : rows::NormKind::kRms, 0, z, {}, {}, {}}, dy,
                            {dz, {}, {}, {}}, executor);
    return dz;
  }

  static void NothingKept(const Recipe& recipe, const Outputs& outputs) {
    CopyInto(Tensor(outputs.y.dtype(), outputs.y.shape()), outputs.y);
    if (!outputs.status.defined() || recipe.function.kind != FunctionClass::kConstant) return;
    Tensor none(DType::kInt8, outputs.status.shape());
    for (std::int8_t& status : none.as<std::int8_t>()) {
      status = static_cast<std::int8_t>(Status::kSingular);
    }
    CopyInto(none, outputs.status);
  }
};

}  // namespace

const Engine& KernelSmootherEngine() {
  static const KernelSmoother engine;
  return engine;
}

}  // namespace ttr
