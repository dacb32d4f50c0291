#include "src/adapters/network_options.h"

#include <algorithm>
#include <cmath>

#include "src/adapters/output_norm.h"

namespace ttr {
namespace {

simd::Activation ActivationOf(Activation activation) {
  switch (activation) {
    case Activation::kSilu: return simd::Activation::kSilu;
    case Activation::kGelu: return simd::Activation::kGelu;
    case Activation::kRelu: return simd::Activation::kRelu;
    case Activation::kTanh: return simd::Activation::kTanh;
  }
  return simd::Activation::kSilu;
}

network::Decay DecayOf(WeightDecay decay) {
  switch (decay) {
    case WeightDecay::kNone: return network::Decay::kNone;
    case WeightDecay::kCoupled: return network::Decay::kCoupled;
    case WeightDecay::kDecoupled: return network::Decay::kDecoupled;
  }
  return network::Decay::kNone;
}

network::Read ReadOf(Read read) {
  switch (read) {
    case Read::kAfter: return network::Read::kAfter;
    case Read::kBefore: return network::Read::kBefore;
    case Read::kBatchStart: return network::Read::kBatchStart;
    case Read::kBatchEnd: return network::Read::kBatchEnd;
  }
  return network::Read::kAfter;
}

network::Adapt AdaptOf(Adapt adapt) {
  switch (adapt) {
    case Adapt::kNone: return network::Adapt::kNone;
    case Adapt::kAdagrad: return network::Adapt::kAdagrad;
    case Adapt::kAdam: return network::Adapt::kAdam;
  }
  return network::Adapt::kNone;
}

}  // namespace

network::Options NetworkOptions(const Recipe& recipe, const Dims& dims) {
  const Function& function = recipe.function;
  const Optimizer& optimizer = recipe.optimizer;
  network::Options options;
  options.depth = function.depth;
  options.activation = ActivationOf(function.activation);
  options.gated = function.gated;
  options.norm = function.norm;
  options.residual = function.residual;
  options.bias = function.bias;
  options.momentum = optimizer.momentum;
  options.weight_decay = DecayOf(optimizer.weight_decay);
  options.mini_batch = optimizer.mini_batch;
  options.inverse_rows = optimizer.row_factor == RowFactor::kInverse;
  options.adapt = AdaptOf(optimizer.adapt);
  if (optimizer.adapt == Adapt::kAdam) options.keep = optimizer.curvature_decay;
  options.eps = optimizer.eps;
  options.dot_product = optimizer.loss == Loss::kDotProduct;
  options.read = ReadOf(recipe.reading.read);
  options.normalise_qk = recipe.reading.normalise_qk;
  options.scale = recipe.reading.scale_rsqrt ? 1 / std::sqrt(static_cast<double>(dims.key_dim))
                                             : recipe.reading.scale;
  options.output_norm = OutputNormOf(recipe);
  return options;
}

network::Sizes NetworkSizes(const Recipe& recipe, const Dims& dims, DType dtype) {
  network::Sizes sizes;
  sizes.shape = {.depth = recipe.function.depth,
                 .key_dim = dims.key_dim,
                 .hidden = recipe.function.depth > 1 ? dims.hidden : dims.value_dim,
                 .value_dim = dims.value_dim,
                 .bias = recipe.function.bias,
                 .gated = recipe.function.gated};
  sizes.heads = dims.heads;
  sizes.queries = std::max<std::int64_t>(1, dims.query_heads / dims.heads);
  sizes.tokens = dims.tokens;
  sizes.dtype = dtype;
  return sizes;
}

}  // namespace ttr
