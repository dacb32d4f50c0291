// How much of what the backward pass keeps.

#include "src/engines/fast_weights/backward_rows.h"

#include <algorithm>

namespace ttr::fast_weights {

bool JoinsErasure(const Options& options) {
  return options.erases() && options.erase == Erase::kKey && !options.preconditioned;
}

GradientSizes GradientSizesOf(const Options& options, const Sizes& sizes) {
  GradientSizes result;
  result.tokens = sizes.tokens * options.steps;
  constexpr std::int64_t kUnit = 16;
  result.key_dim = options.rotates() ? 2 * RoundUp(sizes.key_dim, kUnit) : sizes.key_dim;
  result.value_dim = sizes.value_dim + (options.denominator != Denominator::kNone ? 1 : 0);
  result.queries = sizes.queries;
  result.erase = options.erases();
  result.saved = sizes.saved;
  result.together = MostTogetherBackward(options, sizes);
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
  constexpr std::int64_t kBytes = 256 << 10;
  const bool carries =
      options.phase || options.preconditioned || options.bonus || options.step == Step::kLogWeight;
  if (carries || sizes.tokens * options.steps <= kGradientBlock) return 1;
  constexpr std::int64_t kUnit = 16;
  const std::int64_t numbers =
      RoundUp(sizes.key_dim, kUnit) *
      RoundUp(sizes.value_dim + (options.denominator != Denominator::kNone ? 1 : 0), kUnit);
  const auto bytes =
      (options.momentum ? 2 : 1) * numbers * static_cast<std::int64_t>(SizeOf(sizes.state));
  return std::clamp<std::int64_t>(kBytes / bytes, 1, kMostInterleaved);
}

template <class T>
BackwardRows<T>::BackwardRows(const Options& options, const Sizes& sizes, std::byte* memory) {
  const GradientSizes extended = GradientSizesOf(options, sizes);
  constexpr std::int64_t kUnit = 16;
  rows = std::min<std::int64_t>(extended.tokens, kGradientBlock);
  if (!options.causal) rows = RoundUp(rows, kUnit);  // tiles of rows go beyond the last
  queries = sizes.queries;
  value_dim = extended.value_dim;
  key_stride = RoundUp(extended.key_dim, kUnit);
  value_stride = RoundUp(value_dim, kUnit);
  const bool apart = options.separate_value_key();
  const bool own_write = apart || options.preconditioned;
  const bool own_erase = options.erases() && (apart || options.erase != Erase::kKey);
  const bool stabilised = options.step == Step::kLogWeight;
  const bool answers = options.transforms_outputs();
  folds_scale = options.scale != 1 && (!answers || sizes.saved) && !options.bonus;
  const std::int64_t blocks = extended.tokens / kGradientBlock + 1;
  std::int64_t used = 0;
  auto take = [&](bool needed, std::int64_t numbers) {
    T* start = memory == nullptr || !needed ? nullptr : reinterpret_cast<T*>(memory) + used;
    if (needed) used += RoundUp(numbers, kUnit);
    return start;
  };
  const std::int64_t keys = rows * key_stride, values = rows * value_stride;
  key = take(true, keys);
  write = own_write ? take(true, keys) : key;
  erase = own_erase ? take(true, keys) : key;
  query = take(true, queries * keys);
  gates = take(options.by_channel(), keys);
  cosines = take(options.phase, keys);
  sines = take(options.phase, keys);
  if (memory != nullptr) std::fill_n(key, used, T(0));  // what lies behind the last channel stays 0
  value = take(true, values);
  step = take(true, rows);
  decay = take(true, rows);
  erase_decay = take(true, rows);
  momentum = take(options.momentum, rows);
  bonus = take(options.bonus, queries * rows);
  maxima = take(stabilised, rows + 1);
  saved = take(stabilised, rows);
  curvature = take(options.preconditioned, (rows + 1) * key_stride);
  y = take(answers && !sizes.saved, queries * values);
  dy = take(true, queries * values);
  d_write = take(true, keys);
  d_erase = take(options.erases() && !JoinsErasure(options), keys);
  d_second = take(apart, keys);
  d_query = take(true, queries * keys);
  d_value = take(true, values);
  d_log_decay = take(options.by_channel(), keys);
  d_phase = take(options.phase, keys);
  d_step = take(true, rows);
  d_decay = take(true, rows);
  d_erase_decay = take(true, rows);
  d_momentum = take(options.momentum, rows);
  d_bonus = take(options.bonus, queries * rows);

  constexpr std::int64_t kDouble = sizeof(double) / sizeof(T);
  block_maxima = reinterpret_cast<double*>(take(stabilised, (blocks + 1) * kDouble));
  block_curvatures = take(options.preconditioned, (blocks + 1) * key_stride);
  frame = take(options.rotates(), key_stride);
  turned = take(options.rotates(), key_stride / 2);
  turned_before = take(options.rotates(), key_stride / 2);
  const std::int64_t parts = options.phase ? 2 : 1;
  factors = take(!options.causal, blocks * parts * key_stride);
  sums = take(!options.causal, parts * key_stride);
  d_bonus_row = take(options.bonus, key_stride);
  d_curvature = take(options.preconditioned, key_stride);
  state = (options.momentum ? 2 : 1) * key_stride * value_stride;
  initial = take(true, state);
  d_initial = take(true, state);
  d_final = take(true, state);
  const std::int64_t input_stride = RoundUp(sizes.input_dim, kUnit);
  row = take(true, 7 * input_stride + 4 * key_stride + 2 * value_stride);
  bytes = static_cast<std::size_t>(used) * sizeof(T);
  gradient = memory + bytes;
  const auto gradients =
      options.causal ? static_cast<std::int64_t>(GradientScratchBytes<T>(extended)) : 0;
  bytes += static_cast<std::size_t>(RoundUp(gradients, kAlignment));
}

template struct BackwardRows<float>;
template struct BackwardRows<double>;

}  // namespace ttr::fast_weights
