// How much of what the backward pass has from block to block.

#include "src/engines/fast_weights/backward/rows.h"

#include <algorithm>
#include <cstring>

#include "src/simd/caches.h"

namespace ttr::fast_weights {
namespace {

constexpr std::int64_t kUnit = 16;

bool HasSum(const Options& options) { return options.denominator != Denominator::kNone; }

std::int64_t BlocksOf(const Options& options, const Sizes& sizes) {
  return sizes.tokens * options.steps / kGradientBlock + 1;
}

}  // namespace

bool JoinsErasure(const Options& options) {
  return options.erases() && options.erase == Erase::kKey && !options.preconditioned;
}

bool NeedsValues(const Options& options) {
  return !options.erases() || options.separate_value_key();
}

GradientSizes GradientSizesOf(const Options& options, const Sizes& sizes) {
  GradientSizes result;
  result.key_dim = options.rotates() ? 2 * RoundUp(sizes.key_dim, kUnit) : sizes.key_dim;
  result.value_dim = sizes.value_dim + (HasSum(options) ? 1 : 0);
  result.queries = sizes.queries;
  result.erase = options.erases();
  result.interleaved = MostTogetherBackward(options, sizes);
  result.second_write = options.separate_value_key();
  result.momentum = options.momentum;
  const bool fades = options.decay != Decay::kNone || options.shrink != Shrink::kNone ||
                     options.step == Step::kLogWeight || options.momentum;
  result.decay = options.by_channel() ? GradientDecay::kChannel
                 : fades              ? GradientDecay::kScalar
                                      : GradientDecay::kNone;
  return result;
}

std::int64_t MostTogetherBackward(const Options& options, const Sizes& sizes) {
  // Half of what the forward pass takes: the arrays of a block share the cache.
  const bool carries =
      options.phase || options.preconditioned || options.bonus || options.step == Step::kLogWeight;
  if (carries || !sizes.saved || sizes.tokens * options.steps <= kGradientBlock) return 1;
  const std::int64_t numbers =
      RoundUp(sizes.key_dim, kUnit) * RoundUp(sizes.value_dim + (HasSum(options) ? 1 : 0), kUnit);
  const auto bytes =
      (options.momentum ? 2 : 1) * numbers * static_cast<std::int64_t>(SizeOf(sizes.state));
  return std::clamp<std::int64_t>(simd::TheCaches().in_turn / 2 / bytes, 1, kMostInterleaved);
}

BlockShape::BlockShape(const Options& options, const Sizes& sizes) {
  const GradientSizes extended = GradientSizesOf(options, sizes);
  rows = std::min<std::int64_t>(sizes.tokens * options.steps, kGradientBlock);
  if (!options.causal) rows = RoundUp(rows, kUnit);  // tiles of rows go beyond the last
  queries = sizes.queries;
  value_dim = extended.value_dim;
  key_stride = RoundUp(extended.key_dim, kUnit);
  value_stride = RoundUp(value_dim, kUnit);
  state = (options.momentum ? 2 : 1) * key_stride * value_stride;
}

template <class T>
WholeArrays<T>::WholeArrays(const Options& options, const BlockShape& shape, std::int64_t blocks,
                            ScratchLayout& layout) {
  const auto take = [&](std::int64_t numbers) {
    return layout.Take<T>(options.causal ? 0 : numbers);
  };
  const std::int64_t planes = options.phase ? 2 : 1;
  memory = take(shape.state);
  y = take(options.transforms_outputs() ? shape.queries * shape.rows * shape.value_stride : 0);
  factors = take(blocks * planes * shape.key_stride);
  sums = take(planes * shape.key_stride);
}

template <class T>
BackwardRows<T>::BackwardRows(const Options& options, const Sizes& sizes, ScratchLayout& layout)
    : BlockShape(options, sizes), whole(options, *this, BlocksOf(options, sizes), layout) {
  const bool separate = options.separate_value_key();
  const bool own_write = separate || options.preconditioned;
  const bool own_erase = options.erases() && (separate || options.erase != Erase::kKey);
  folds_scale =
      options.scale != 1 && (!options.transforms_outputs() || options.causal) && !options.bonus;
  const auto take = [&](bool needed, std::int64_t numbers) {
    return layout.Take<T>(needed ? numbers : 0);
  };
  const std::int64_t keys = rows * key_stride, values = rows * value_stride;
  auto take_numbers = [&](RowArrays<T>& of) {
    of.step = take(true, rows);
    of.decay = take(true, rows);
    of.erase_decay = take(true, rows);
    of.momentum = take(options.momentum, rows);
    of.bonus = take(options.bonus, queries * rows);
  };
  const std::size_t before = layout.bytes();
  this->key = take(true, keys);
  this->write = own_write ? take(true, keys) : this->key;
  this->erase = own_erase ? take(true, keys) : this->key;
  this->query = take(true, queries * keys);
  this->gates = take(options.by_channel(), keys);
  rotation.cosines = take(options.phase, keys);
  rotation.sines = take(options.phase, keys);
  // What lies behind the last channel stays 0.
  if (this->key != nullptr) std::memset(this->key, 0, layout.bytes() - before);
  this->value = take(true, values);
  take_numbers(*this);
  dy = take(true, queries * values);
  d.write = take(true, keys);
  d.erase = take(options.erases() && !JoinsErasure(options), keys);
  d.key = take(separate, keys);
  d.query = take(true, queries * keys);
  d.value = take(true, values);
  d.gates = take(options.by_channel(), keys);
  d_phase = take(options.phase, keys);
  take_numbers(d);

  const bool stabilised = options.step == Step::kLogWeight;
  const std::int64_t blocks = BlocksOf(options, sizes);
  running.maxima = take(stabilised, rows + 1);
  running.from_past = take(stabilised, rows);
  running.curvature = take(options.preconditioned, (rows + 1) * key_stride);
  running.block_maxima = layout.Take<double>(stabilised ? blocks + 1 : 0);
  running.block_curvatures = take(options.preconditioned, (blocks + 1) * key_stride);
  running.d_curvature = take(options.preconditioned, key_stride);
  rotation.frame = take(options.rotates(), key_stride);
  rotation.d_angle = take(options.rotates(), key_stride / 2);
  rotation.d_angle_before = take(options.rotates(), key_stride / 2);
  d_bonus_row = take(options.bonus, key_stride);
  d_initial = take(true, state);
  d_final = take(true, state);
  row = take(true, 7 * RoundUp(sizes.input_dim, kUnit) + 4 * key_stride + 2 * value_stride);
  gradient = nullptr;
  if (!options.causal) return;
  const auto more = GradientScratchBytes<T>(GradientSizesOf(options, sizes));
  gradient = layout.TakeBytes(static_cast<std::int64_t>(more));
}

template struct BackwardRows<float>;
template struct BackwardRows<double>;

}  // namespace ttr::fast_weights
