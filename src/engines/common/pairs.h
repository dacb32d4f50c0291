/// Pairs that a memory keeps: their rows, which of them a query sees, what they weigh.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>

#include "src/core/pair_rows.h"
#include "src/engines/common/row_views.h"
#include "src/engines/common/scratch_layout.h"
#include "src/engines/common/sequences.h"
#include "ttr/tensor.h"

namespace ttr::common {

/// Pairs first .. end.
struct Range {
  std::int64_t first, end;
};

/// What a query of token t sees, of pairs counted from the first row of the state.
struct VisibleRange {
  std::int64_t held = 0;    ///< pairs of the state
  std::int64_t tokens = 0;  ///< pairs of the call
  std::int64_t window = 0;
  bool causal = true;  ///< else, or where nothing is written: all
  bool before = false;

  std::int64_t End(std::int64_t t) const {
    return causal && tokens > 0 ? held + t + (before ? 0 : 1) : held + tokens;
  }
  std::int64_t First(std::int64_t t) const {
    return window > 0 ? std::max<std::int64_t>(End(t) - window, 0) : 0;
  }
  /// The last token of the call that is written before token t is read.
  std::int64_t Written(std::int64_t t) const { return causal ? t - (before ? 1 : 0) : tokens - 1; }
};

/// The weights of a memory's pairs: log w_i at token t = offset_i + total_t, for i >= forgotten_t.
/// The offset of a pair of the state is the logarithm that is kept with it. Every query counts from
/// a reference of its own, which is no pair's that comes later, so that neither the digits nor the
/// bits of a query's weights depend on what is written after it.
struct PairWeights {
  double* offsets = nullptr;  ///< [tokens], of the call's pairs; null: all weights are 1
  double* totals = nullptr;   ///< [tokens]
  /// [tokens]: the greatest finite offset of the pairs that queries of token t see, else 0.
  double* references = nullptr;
  /// [tokens]: pairs before this one are forgotten after token t.
  std::int64_t* forgotten = nullptr;

  PairWeights() = default;
  PairWeights(std::int64_t tokens, ScratchLayout& layout) {
    layout.Take(tokens, {&offsets, &totals, &references});
    forgotten = layout.Take<std::int64_t>(tokens);
  }
};

/// The pairs of one memory: those of the state, then those of the call.
struct KeptPairs {
  Rows k, v;
  Rows log_decay, importance, log_importance;
  double log_factor = 0;  // constant decay
  Rows state_k, state_v, state_log_weight;
  std::int64_t* length = nullptr;
  PairRows place;
  VisibleRange visible;
  std::int64_t key_dim = 1, value_dim = 1;
  bool normalises = false;  // keys of the call: x / sqrt(|x|^2 + 1e-6)
  bool weighted = false;
  PairWeights weights;

  std::int64_t all() const { return visible.held + visible.tokens; }

  /// The first pair that token t has not forgotten.
  std::int64_t ForgottenAt(std::int64_t t) const {
    if (weights.forgotten == nullptr || visible.tokens == 0) return 0;
    const std::int64_t written = visible.Written(t);
    return written < 0 ? 0 : weights.forgotten[written];
  }
  /// What queries of token t see.
  Range SeenAt(std::int64_t t) const {
    const std::int64_t end = visible.End(t);
    return {std::min(std::max(visible.First(t), ForgottenAt(t)), end), end};
  }
};

/// The tensors that hold the pairs of all memories; views may be absent.
struct PairTensors {
  TensorView k, v;  ///< [B, T, Hk or Hv, D]
  TensorView log_decay, importance, log_importance;
  TensorView pair_bias;  ///< [B, T, Hq, S], of pairs 0 .. S from the first row of the state
  bool biased = false;   ///< queries have weights of their own, given or by their places
  std::span<const double> decay_factors;  ///< [H], in (0, 1]: constant decay; empty: none
  /// [N, S, H, D] and [N, H], with room for the call's pairs (PairRows::Needed).
  TensorView state_k, state_v, state_log_weight, state_length;

  bool weighted() const {
    return log_decay.defined() || importance.defined() || log_importance.defined() || biased ||
           state_log_weight.defined() || !decay_factors.empty();
  }
};

/// Row s of memory `head` of sequence `n` in [N, S, H, ...].
inline Rows PairsOf(const TensorView& view, std::int64_t n, std::int64_t head) {
  if (!view.defined()) return {};
  return {ElementOf(view, n * view.stride(0) + head * view.stride(2)), view.dtype(),
          view.stride(1)};
}

/// The pairs of memory `head` of sequence `n`; who asks adds sizes, weights and how they are read.
inline KeptPairs KeptPairsOf(const PairTensors& tensors, const Heads& heads,
                             const Sequence& sequence, std::int64_t n, std::int64_t head) {
  KeptPairs pairs;
  if (tensors.k.defined()) {
    pairs.k = RowsOf(tensors.k, sequence, heads.Of(head, tensors.k));
    pairs.v = RowsOf(tensors.v, sequence, heads.Of(head, tensors.v));
    pairs.log_decay = RowsOf(tensors.log_decay, sequence, head);
    pairs.importance = RowsOf(tensors.importance, sequence, head);
    pairs.log_importance = RowsOf(tensors.log_importance, sequence, head);
    if (!tensors.decay_factors.empty()) {
      pairs.log_factor = std::log(tensors.decay_factors[static_cast<std::size_t>(head)]);
    }
    pairs.visible.tokens = sequence.tokens;
  }
  if (tensors.state_k.defined()) {
    pairs.state_k = PairsOf(tensors.state_k, n, head);
    pairs.state_v = PairsOf(tensors.state_v, n, head);
    pairs.state_log_weight = PairsOf(tensors.state_log_weight, n, head);
    pairs.place.capacity = tensors.state_k.size(1);
    pairs.visible.held = pairs.place.capacity;
    if (tensors.state_length.defined()) {
      pairs.length = tensors.state_length.as<std::int64_t>() + n * tensors.state_length.stride(0) +
                     head * tensors.state_length.stride(1);
      pairs.visible.held = *pairs.length;
    }
  }
  pairs.weighted = tensors.weighted();
  return pairs;
}

}  // namespace ttr::common
