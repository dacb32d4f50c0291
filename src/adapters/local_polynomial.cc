// From a recipe's words to those of local polynomials.

#include "src/engines/local_polynomial/local_polynomial.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "src/adapters/decay_factors.h"
#include "src/adapters/kernel_words.h"
#include "src/adapters/pair_gradients.h"
#include "src/adapters/registry.h"
#include "src/engines/local_polynomial/backward.h"
#include "src/engines/rows/norm.h"
#include "src/recipe/family.h"

namespace ttr {
namespace {

constexpr std::int64_t kMostDegree = 3;

local_polynomial::OutputNorm NormOf(OutputNorm norm) {
  switch (norm) {
    case OutputNorm::kNone: return local_polynomial::OutputNorm::kNone;
    case OutputNorm::kL2: return local_polynomial::OutputNorm::kL2;
    case OutputNorm::kRms: return local_polynomial::OutputNorm::kRms;
  }
  return local_polynomial::OutputNorm::kNone;
}

local_polynomial::Options OptionsOf(const Recipe& recipe, const Dims& dims) {
  local_polynomial::Options options;
  options.kernel = KernelOf(recipe.similarity.kernel);
  options.bandwidth = recipe.similarity.bandwidth;
  options.scale = recipe.reading.scale_rsqrt ? 1 / std::sqrt(static_cast<double>(dims.key_dim))
                                             : recipe.reading.scale;
  options.ridge = recipe.optimizer.ridge;
  options.degree = recipe.function.degree;
  options.causal = recipe.reading.causal;
  options.read_before = recipe.reading.read == Read::kBefore;
  options.normalise_qk = recipe.reading.normalise_qk;
  options.window = recipe.weights.window;
  options.output_norm = NormOf(recipe.reading.output_norm);
  return options;
}

/// The inputs and the constants of a call, which `factors` outlives.
local_polynomial::Call CallOf(const EngineCall& from, const State& state,
                              const std::vector<double>& factors) {
  const Inputs& inputs = from.inputs;
  local_polynomial::Call call;
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
  call.ridge = inputs.ridge;
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

local_polynomial::Sizes SizesOf(const Recipe& recipe, const Dims& dims, DType dtype) {
  const ttr::Weights& weights = recipe.weights;
  local_polynomial::Sizes sizes;
  sizes.key_dim = dims.key_dim;
  sizes.value_dim = dims.value_dim;
  sizes.degree = recipe.function.degree;
  sizes.heads = dims.heads;
  sizes.queries = std::max<std::int64_t>(1, dims.query_heads / dims.heads);
  sizes.sequences = dims.states();
  sizes.tokens = dims.tokens;
  sizes.dtype = dtype;
  sizes.weighted = weights.decay != Decay::kNone || weights.importance != Importance::kNone;
  return sizes;
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
  bool Takes(const Recipe& recipe, const Dims& dims) const override {
    const std::int64_t degree = recipe.function.degree;
    return degree == 1 ||
           local_polynomial::MonomialsOf(dims.key_dim, degree) <= local_polynomial::kMostMonomials;
  }
  std::string_view How(const Recipe& recipe) const override {
    return recipe.function.degree == 1
               ? "a linear fit around every query, several side by side"
               : "a polynomial fit around every query, several side by side; of more than 256 "
                 "monomials on the definition";
  }
  double FlopsPerToken(const Recipe& recipe, const Dims& dims) const override {
    const auto tokens = static_cast<double>(dims.tokens);
    double pairs = recipe.reading.causal ? (tokens + 1) / 2 : tokens;
    const auto window = static_cast<double>(recipe.weights.window);
    if (window > 0) pairs = std::min(pairs, window);
    const double queries =
        std::max(1.0, static_cast<double>(dims.query_heads) / static_cast<double>(dims.heads));
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
    if (call.needs == Needs::kRead && !state.Get("state.k").defined()) return NothingKept(outputs);
    const std::vector<double> factors = DecayFactors(call.recipe(), call.dims);
    local_polynomial::Call words = CallOf(call, state, factors);
    if (call.needs != Needs::kWrite) {
      words.y = outputs.y;
      words.status = outputs.status;
    }
    local_polynomial::Forward(OptionsOf(call.recipe(), call.dims), words, call.executor,
                              call.scratch);
  }

  bool HasGradients() const override { return true; }

  void Backward(const EngineCall& call, const State& initial,
                const BackwardTensors& tensors) const override {
    const Recipe& recipe = call.recipe();
    const std::vector<double> factors = DecayFactors(recipe, call.dims);
    const local_polynomial::Call words = CallOf(call, initial, factors);
    local_polynomial::Options options = OptionsOf(recipe, call.dims);
    Tensor dz;
    if (options.output_norm != local_polynomial::OutputNorm::kNone) {
      const bool l2 = options.output_norm == local_polynomial::OutputNorm::kL2;
      options.output_norm = local_polynomial::OutputNorm::kNone;
      dz = GradientBeforeNorm(options, words, tensors.dy, l2, call.executor);
    }
    const PairGradientCopies copies(call, initial, tensors);
    local_polynomial::Backward(options, words, dz.defined() ? dz.view() : tensors.dy,
                               FinalPairGradientsOf(tensors.dstate), copies.views(), call.executor,
                               call.scratch);
    copies.WriteBack();
  }

  std::size_t BackwardScratchBytes(const Recipe& recipe, const Dims& dims,
                                   int threads) const override {
    return local_polynomial::BackwardScratchBytes(SizesOf(recipe, dims, DType::kFloat64), threads);
  }

  std::size_t ScratchBytes(const Recipe& recipe, const Dims& dims, int threads) const override {
    return local_polynomial::ScratchBytes(SizesOf(recipe, dims, DType::kFloat64), threads);
  }

 private:
  /// The gradient of what the outputs were before their norm.
  static Tensor GradientBeforeNorm(const local_polynomial::Options& options,
                                   local_polynomial::Call words, const TensorView& dy, bool l2,
                                   Executor& executor) {
    const DType dtype = words.v.dtype() == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
    const Tensor z(dtype, dy.shape()), dz(dtype, dy.shape());
    words.y = z.view();
    local_polynomial::Predict(options, words, executor);
    rows::NormaliseGradient({l2 ? rows::NormKind::kL2 : rows::NormKind::kRms, 0, z, {}, {}, {}}, dy,
                            {dz, {}, {}, {}}, executor);
    return dz;
  }

  static void NothingKept(const Outputs& outputs) {
    CopyInto(Tensor(outputs.y.dtype(), outputs.y.shape()), outputs.y);
    if (!outputs.status.defined()) return;
    Tensor none(DType::kInt8, outputs.status.shape());
    for (std::int8_t& status : none.as<std::int8_t>()) {
      status = static_cast<std::int8_t>(Status::kSingular);
    }
    CopyInto(none, outputs.status);
  }
};

}  // namespace

const Engine& LocalPolynomialEngine() {
  static const LocalPolynomial engine;
  return engine;
}

}  // namespace ttr
