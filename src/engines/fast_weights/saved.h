/// What a forward pass saves for the backward pass of the same call, and where: the memory at the
/// beginning of every block of kGradientBlock rows, as the gradient's kernels hold it; the error of
/// every row that an erasing memory steps along, v - r M~; and outputs that are divided or
/// normalised, before they are normalised.
///
///     states   [head][block][keys / W][values][W]     with momentum, the last update after each;
///                                                     imaginary parts as more keys
///     errors   [head][row][values]
///     outputs  [head][row][query][values]
///     sums     [head][row][query]            of weights, by which outputs are divided
///
/// `keys` and `values` are padded to 16 numbers; a sum of weights is one more value of a state. W
/// is twice the lanes of the target, so that only the target that saved it can read it.
#pragma once

#include <cstdint>

#include "src/engines/fast_weights/layout.h"

namespace ttr::fast_weights {

/// Offsets in numbers from its beginning.
struct SavedLayout {
  static constexpr std::int64_t kUnit = 16;  // of padding

  std::int64_t keys, values, planes, state;  // planes: matrices of a state
  std::int64_t steps, sequences;
  std::int64_t more;           // memories of a sequence beside those of its blocks: the final one
  std::int64_t blocks, rows;   // of one head, all sequences
  std::int64_t outputs, sums;  // a row
  bool packed, errors;

  /// `tokens` of a sequence; of all together where they are packed.
  SavedLayout(const Options& options, const Sizes& sizes, std::int64_t sequence_count,
              std::int64_t tokens, bool are_packed)
      : steps(options.steps), sequences(sequence_count), packed(are_packed) {
    const bool sum = options.denominator != Denominator::kNone;
    keys = (options.phase ? 2 : 1) * RoundUp(sizes.key_dim, kUnit);
    values = RoundUp(sizes.value_dim + (sum ? 1 : 0), kUnit);
    planes = options.momentum ? 2 : 1;
    state = planes * keys * values;
    more = KeepsLast(options) ? 1 : 0;
    errors = options.erases();
    outputs = options.transforms_outputs() ? sizes.queries : 0;
    sums = sum ? sizes.queries : 0;
    rows = (packed ? 1 : sequences) * tokens * steps;
    blocks = packed ? BlockOf(sequences, tokens) : BlockOf(sequences, sequences * tokens);
  }

  /// The first memory of sequence n, which begins with token `first` of all.
  std::int64_t BlockOf(std::int64_t n, std::int64_t first) const {
    if (packed) return first * steps / kGradientBlock + n * (1 + more);
    // Sequences that are not packed are of one length.
    const std::int64_t length = n == 0 ? 0 : first / n * steps;
    return n * (RoundUp(length, kGradientBlock) / kGradientBlock + more);
  }

  /// Is the last state saved, too? Maxima and phases have gradients that need the final memory.
  static bool KeepsLast(const Options& options) {
    return options.step == Step::kLogWeight || options.phase;
  }

  std::int64_t StatesOf(std::int64_t head, std::int64_t n, std::int64_t first) const {
    return (head * blocks + BlockOf(n, first)) * state;
  }
  std::int64_t ErrorsOf(std::int64_t heads, std::int64_t head, std::int64_t first) const {
    return heads * blocks * state + (head * rows + first * steps) * values;
  }
  std::int64_t OutputsOf(std::int64_t heads, std::int64_t head, std::int64_t first) const {
    return ErrorsOf(heads, errors ? heads : 0, 0) +
           (head * rows + first * steps) * outputs * values;
  }
  std::int64_t SumsOf(std::int64_t heads, std::int64_t head, std::int64_t first) const {
    return OutputsOf(heads, heads, 0) + (head * rows + first * steps) * sums;
  }
  std::int64_t Numbers(std::int64_t heads) const { return SumsOf(heads, heads, 0); }
};

}  // namespace ttr::fast_weights
