#include "src/adapters/pair_options.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "src/core/fill.h"

namespace ttr {
namespace {

common::Kernel KernelOf(Kernel kernel) {
  switch (kernel) {
    case Kernel::kNone:
    case Kernel::kExponential: return common::Kernel::kExponential;
    case Kernel::kGaussian: return common::Kernel::kGaussian;
    case Kernel::kLaplace: return common::Kernel::kLaplace;
    case Kernel::kEpanechnikov: return common::Kernel::kEpanechnikov;
    case Kernel::kBiweight: return common::Kernel::kBiweight;
    case Kernel::kTriweight: return common::Kernel::kTriweight;
    case Kernel::kInverseDistance: return common::Kernel::kInverseDistance;
    case Kernel::kLinear: return common::Kernel::kLinear;
  }
  return common::Kernel::kExponential;
}

common::BiasKind BiasOf(PairBias bias) {
  switch (bias) {
    case PairBias::kNone: return common::BiasKind::kNone;
    case PairBias::kInput: return common::BiasKind::kRows;
    case PairBias::kDistance: return common::BiasKind::kDistance;
    case PairBias::kPower: return common::BiasKind::kPower;
    case PairBias::kBlock: return common::BiasKind::kBlock;
    case PairBias::kPrefix: return common::BiasKind::kPrefix;
  }
  return common::BiasKind::kNone;
}

}  // namespace

common::QueryOptions QueryOptionsOf(const Recipe& recipe, const Dims& dims) {
  const Reading& reading = recipe.reading;
  return {
      .kernel = KernelOf(recipe.similarity.kernel),
      .bandwidth = recipe.similarity.bandwidth,
      .scale =
          reading.scale_rsqrt ? 1 / std::sqrt(static_cast<double>(dims.key_dim)) : reading.scale,
      .bias = {BiasOf(recipe.weights.pair_bias), recipe.weights.extent, recipe.weights.exponent},
      .causal = reading.causal,
      .read_before = reading.read == Read::kBefore,
      .normalise_qk = reading.normalise_qk};
}

double QueriesOfMemory(const Dims& dims) {
  return std::max(1.0, static_cast<double>(dims.query_heads) / static_cast<double>(dims.heads));
}

double PairsRead(const Recipe& recipe, const Dims& dims) {
  const auto tokens = static_cast<double>(dims.tokens);
  const double pairs = recipe.reading.causal ? (tokens + 1) / 2 : tokens;
  const auto window = static_cast<double>(recipe.weights.window);
  return window > 0 ? std::min(pairs, window) : pairs;
}

common::QuerySizes QuerySizesOf(const Recipe& recipe, const Dims& dims, DType dtype) {
  const Weights& weights = recipe.weights;
  return {
      .key_dim = dims.key_dim,
      .value_dim = dims.value_dim,
      .heads = dims.heads,
      .queries = std::max<std::int64_t>(1, dims.query_heads / dims.heads),
      .sequences = dims.states(),
      .tokens = dims.tokens,
      .dtype = dtype,
      .weighted = weights.decay != Decay::kNone || weights.importance != Importance::kNone ||
                  weights.pair_bias != PairBias::kNone,
  };
}

common::QueriedTensors QueriedTensorsOf(const EngineCall& call, const State& state,
                                        std::span<const double> decay_factors) {
  const Inputs& inputs = call.inputs;
  common::QueriedTensors tensors;
  tensors.arithmetic = call.dtype;
  if (call.needs != Needs::kWrite) {
    tensors.q = inputs.q;
    tensors.pair_bias = inputs.pair_bias;
    tensors.biased = call.recipe().weights.pair_bias != PairBias::kNone;
  }
  if (call.needs != Needs::kRead) {
    tensors.k = inputs.k;
    tensors.v = inputs.v;
    tensors.log_decay = inputs.log_decay;
    tensors.importance = inputs.importance;
    tensors.log_importance = inputs.log_importance;
    tensors.decay_factors = decay_factors;
  }
  tensors.bandwidth = inputs.bandwidth;
  tensors.cu_seqlens = CuSeqlens(inputs, call.dims);
  tensors.state_k = state.Get("state.k");
  tensors.state_v = state.Get("state.v");
  tensors.state_log_weight = state.Get("state.log_weight");
  tensors.state_length = state.Get("state.length");
  return tensors;
}

void RetrieveNothing(const Outputs& outputs, bool singular) {
  Fill(outputs.y, 0);
  if (singular) Fill(outputs.status, static_cast<double>(Status::kSingular));
}

}  // namespace ttr
