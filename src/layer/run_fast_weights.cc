#include "src/layer/run_fast_weights.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "src/engines/fast_weights/fast_weights.h"
#include "src/recipe/family.h"

namespace ttr {
namespace {

fast_weights::Step StepOf(StepRule rule) {
  switch (rule) {
    case StepRule::kInput: return fast_weights::Step::kInput;
    case StepRule::kNlms: return fast_weights::Step::kNlms;
    case StepRule::kLonghorn: return fast_weights::Step::kLonghorn;
    case StepRule::kEfla: return fast_weights::Step::kEfla;
    case StepRule::kOne: return fast_weights::Step::kOne;
  }
  return fast_weights::Step::kOne;
}

fast_weights::OutputNorm NormOf(OutputNorm norm) {
  switch (norm) {
    case OutputNorm::kNone: return fast_weights::OutputNorm::kNone;
    case OutputNorm::kL2: return fast_weights::OutputNorm::kL2;
    case OutputNorm::kRms: return fast_weights::OutputNorm::kRms;
  }
  return fast_weights::OutputNorm::kNone;
}

fast_weights::Options OptionsOf(const Recipe& recipe, const Dims& dims) {
  fast_weights::Options options;
  options.read_before = recipe.reading.read == Read::kBefore;
  options.normalise_qk = recipe.reading.normalise_qk;
  options.output_norm = NormOf(recipe.reading.output_norm);
  options.scale = recipe.reading.scale_rsqrt ? 1 / std::sqrt(static_cast<double>(dims.key_dim))
                                             : recipe.reading.scale;
  if (FamilyOf(recipe) == Family::kHebbian) {
    options.write = fast_weights::Write::kHebbian;
    options.step = fast_weights::Step::kOne;
    // One gradient step of size eta from 0: the memory is eta times the sum, so the sum is kept and
    // eta multiplies what is read.
    options.scale *= recipe.optimizer.eta;
  } else {
    options.write = fast_weights::Write::kDelta;
    options.step = StepOf(recipe.optimizer.step);
    options.eta = recipe.optimizer.eta;
    options.eps = recipe.optimizer.eps;
  }
  return options;
}

/// Constant factors of the decay, one a memory; empty where it comes from the inputs or is none.
std::vector<double> DecayFactors(const Recipe& recipe, const Dims& dims) {
  std::vector<double> factors;
  for (std::int64_t h = 0; h < dims.heads; ++h) {
    switch (recipe.weights.decay) {
      case Decay::kConstant: factors.push_back(recipe.weights.decay_factor); break;
      case Decay::kRetention:
        factors.push_back(1 - std::exp2(-5.0 - static_cast<double>(h)));
        break;
      default: return {};
    }
  }
  return factors;
}

}  // namespace

void RunFastWeights(const Recipe& recipe, const Dims& dims, const Inputs& inputs, State& state,
                    const Outputs& outputs, Needs needs, Executor& executor,
                    std::span<std::byte> scratch) {
  constexpr std::string_view kState = "state";
  if (!state.Get(kState).defined()) {
    const TensorView& typed = inputs.v.defined() ? inputs.v : inputs.q;
    const bool wide = typed.dtype() == DType::kFloat64;
    state.Set(kState, Tensor(wide ? DType::kFloat64 : DType::kFloat32,
                             {dims.states(), dims.heads, dims.key_dim, dims.value_dim}));
  }
  fast_weights::Call call;
  call.state = state.Get(kState);
  if (needs != Needs::kWrite) {
    call.q = inputs.q;
    call.y = outputs.y;
  }
  if (needs != Needs::kRead) {
    call.k = inputs.k;
    call.v = inputs.v;
    call.log_decay = inputs.log_decay;
    call.step = inputs.step;
  }
  const std::vector<double> factors = DecayFactors(recipe, dims);
  call.decay_factors = factors;
  if (inputs.cu_seqlens.defined()) {
    call.cu_seqlens = {inputs.cu_seqlens.as<std::int64_t>(),
                       static_cast<std::size_t>(dims.sequences + 1)};
  }
  fast_weights::Forward(OptionsOf(recipe, dims), call, executor, scratch);
  if (outputs.status.defined()) {
    CopyInto(Tensor(DType::kInt8, outputs.status.shape()).view(), outputs.status);  // all solved
  }
}

std::size_t FastWeightsScratchBytes(const Dims& dims, int threads) {
  fast_weights::Sizes sizes;
  sizes.tokens = dims.tokens;
  sizes.key_dim = dims.key_dim;
  sizes.value_dim = dims.value_dim;
  sizes.queries = std::max<std::int64_t>(1, dims.query_heads / dims.heads);
  sizes.state = DType::kFloat64;  // the wider one, as the dtype is not part of the sizes
  return fast_weights::ScratchBytes(sizes, threads);
}

}  // namespace ttr
