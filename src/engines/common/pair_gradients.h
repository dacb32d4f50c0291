/// Gradients of kept pairs and of the queries that read them.
#pragma once

#include "src/core/pair_rows.h"
#include "src/engines/common/pairs.h"
#include "src/engines/common/row_views.h"
#include "src/engines/common/sequences.h"
#include "ttr/tensor.h"

namespace ttr::common {

/// The gradients that are wanted: absent views are not. Those of k and v have as many heads as
/// there are memories, that of q as many as y, in the type of the arithmetic. Those of weights,
/// `bandwidth` and `ridge` ([N, H]) are in float64. All that are there are overwritten.
struct PairGradientTensors {
  TensorView q, k, v;
  TensorView pair_bias;  ///< [B, T, heads of y, S], zeros at first
  TensorView log_decay, importance, log_importance, bandwidth, ridge;
  TensorView state_k, state_v, state_log_weight;
  /// The slope by the weight itself, where a pair of the state has weight 0: that on the side of
  /// larger weights. Zeros at first; only kernel_regression writes it.
  TensorView state_weight{};
};

/// Gradients of the final state, as large as it is; views may be absent.
struct FinalPairGradients {
  TensorView k, v, log_weight;
};

/// Gradients of one memory.
struct PairGradients {
  HeadRows dy{}, dq{}, dbias{};
  Rows dk{}, dv{}, dstate_k{}, dstate_v{}, dstate_log_weight{}, dstate_weight{};
  Rows dlog_decay{}, dimportance{}, dlog_importance{};
  double* dbandwidth = nullptr;
  double* dridge = nullptr;
  Rows final_k{}, final_v{}, final_log_weight{};
  PairRows final_place{};
};

/// Memory `head` of sequence `n`; `item` is its place among all.
inline PairGradients PairGradientsOf(const TensorView& dy, const FinalPairGradients& final,
                                     const PairGradientTensors& to, const Heads& heads,
                                     const Sequence& sequence, std::int64_t item) {
  const std::int64_t n = item / heads.memories, h = item % heads.memories;
  const auto rows = [&](const TensorView& view) { return RowsOf(view, sequence, h); };
  const std::int64_t output = heads.OutputOf(h);
  PairGradients g;
  g.dy = HeadRowsOf(dy, sequence, output);
  g.dq = HeadRowsOf(to.q, sequence, output);
  g.dbias = HeadRowsOf(to.pair_bias, sequence, output);
  g.dk = rows(to.k);
  g.dv = rows(to.v);
  g.dlog_decay = rows(to.log_decay);
  g.dimportance = rows(to.importance);
  g.dlog_importance = rows(to.log_importance);
  if (to.bandwidth.defined()) g.dbandwidth = to.bandwidth.as<double>() + item;
  if (to.ridge.defined()) g.dridge = to.ridge.as<double>() + item;
  g.dstate_k = PairsOf(to.state_k, n, h);
  g.dstate_v = PairsOf(to.state_v, n, h);
  g.dstate_log_weight = PairsOf(to.state_log_weight, n, h);
  g.dstate_weight = PairsOf(to.state_weight, n, h);
  g.final_k = PairsOf(final.k, n, h);
  g.final_v = PairsOf(final.v, n, h);
  g.final_log_weight = PairsOf(final.log_weight, n, h);
  for (const TensorView* view : {&final.k, &final.v, &final.log_weight}) {
    if (view->defined()) g.final_place.capacity = view->size(1);
  }
  return g;
}

}  // namespace ttr::common
