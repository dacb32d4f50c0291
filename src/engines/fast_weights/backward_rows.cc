// How much of what the backward pass keeps, and what the rows are as a memory of their own.

#include "src/engines/fast_weights/backward_rows.h"

namespace ttr::fast_weights {

bool NeedsAnswers(const Options& options) {
  return options.denominator != Denominator::kNone || options.output_norm != OutputNorm::kNone ||
         options.step == Step::kLogWeight;
}

Options PlainOptions(const Options& options) {
  Options plain = options;
  plain.step = Step::kInput;
  plain.key = Key::kInput;
  plain.features = {};
  plain.normalise_qk = false;
  plain.correction = 0;
  plain.scale = plain.gain = 1;
  plain.denominator = Denominator::kNone;
  plain.output_norm = OutputNorm::kNone;
  plain.preconditioned = false;
  if (options.preconditioned || options.erase == Erase::kGatedKey) plain.erase = Erase::kEraseKey;
  if (options.shrink != Shrink::kNone) plain.shrink = Shrink::kDecoupled;
  if (options.step == Step::kLogWeight) plain.decay = Decay::kScalar;
  return plain;
}

GradientSizes GradientSizesOf(const Options& options, const Sizes& sizes) {
  GradientSizes result;
  result.tokens = sizes.tokens * options.steps;
  result.key_dim = sizes.key_dim;
  result.value_dim = sizes.value_dim + (options.denominator != Denominator::kNone ? 1 : 0);
  result.queries = sizes.queries;
  result.erase = options.erases();
  result.second_write = options.apart();
  const bool fades = options.decay != Decay::kNone || options.shrink != Shrink::kNone ||
                     options.step == Step::kLogWeight;
  result.decay = options.by_channel() ? GradientDecay::kChannel
                 : fades              ? GradientDecay::kScalar
                                      : GradientDecay::kNone;
  return result;
}

PairedSizes PairedSizesOf(const Options& options, const Sizes& sizes) {
  return {sizes.tokens, sizes.key_dim, sizes.value_dim, sizes.queries, options.phase};
}

template <class T>
BackwardRows<T>::BackwardRows(const Options& options, const Sizes& sizes, std::byte* memory) {
  const GradientSizes extended = GradientSizesOf(options, sizes);
  constexpr std::int64_t kUnit = 16;
  rows = extended.tokens;
  queries = sizes.queries;
  value_dim = extended.value_dim;
  key_stride = RoundUp(sizes.key_dim, kUnit);
  value_stride = RoundUp(value_dim, kUnit);
  const bool apart = options.apart();
  const bool own_write = apart || options.preconditioned;
  const bool own_erase = options.erases() && (apart || options.erase != Erase::kKey);
  std::int64_t used = 0;
  auto take = [&](bool needed, std::int64_t count) {
    T* start = memory == nullptr || !needed ? nullptr : reinterpret_cast<T*>(memory) + used;
    if (needed) used += RoundUp(count, kUnit);
    return start;
  };
  const std::int64_t keys = rows * key_stride, values = rows * value_stride;
  key = take(true, keys);
  write = own_write ? take(true, keys) : key;
  erase = own_erase ? take(true, keys) : key;
  query = take(true, queries * keys);
  value = take(true, values);
  log_decay = take(options.by_channel(), keys);
  phase = take(options.phase, keys);
  step = take(true, rows);
  decay = take(true, rows);
  erase_decay = take(true, rows);
  momentum = take(options.momentum, rows);
  shrinkage = take(options.shrink != Shrink::kNone, rows);
  bonus = take(options.bonus, queries * rows);
  const bool stabilised = options.step == Step::kLogWeight;
  log_weight_decay = take(stabilised, rows);
  maxima = take(stabilised, rows + 1);
  kept = reinterpret_cast<bool*>(take(stabilised, rows));
  curvature = take(options.preconditioned, (rows + 1) * key_stride);
  y = take(NeedsAnswers(options), queries * values);
  dy = take(true, queries * values);
  d_write = take(true, keys);
  d_erase = take(options.erases(), keys);
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
  d_bonus_row = take(options.bonus, key_stride);
  d_curvature = take(options.preconditioned, key_stride);
  const std::int64_t state = key_stride * value_stride;
  initial = take(true, state);
  last = take(NeedsAnswers(options), state);
  d_initial = take(true, state);
  d_final = take(true, state);
  const bool paired = options.paired();
  initial_second = take(paired, state);
  last_second = take(paired && NeedsAnswers(options), state);
  d_initial_second = take(paired, state);
  d_final_second = take(paired, state);
  const std::int64_t input_stride = RoundUp(sizes.input_dim, kUnit);
  row = take(true, 7 * input_stride + 4 * key_stride + 2 * value_stride);
  bytes = static_cast<std::size_t>(used) * sizeof(T);
  gradient = memory + bytes;
  const std::size_t gradients = paired ? PairedScratchBytes<T>(PairedSizesOf(options, sizes))
                                       : GradientScratchBytes<T>(extended);
  bytes += static_cast<std::size_t>(RoundUp(static_cast<std::int64_t>(gradients), kAlignment));
  forward = memory + bytes;
  if (NeedsAnswers(options)) {
    Sizes wide = sizes;
    wide.value_dim = value_dim;
    wide.input_dim = sizes.key_dim;
    bytes += Scratch<T>(PlainOptions(options), wide, nullptr).bytes;
  }
}

template struct BackwardRows<float>;
template struct BackwardRows<double>;

}  // namespace ttr::fast_weights
