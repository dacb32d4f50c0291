#include "src/adapters/pair_gradients.h"

#include "src/core/fill.h"

namespace ttr {
namespace {

/// [H] as sums over the first axis of [N, H].
void SumOverSequences(const Tensor& from, const TensorView& to) {
  if (!from.defined()) return;
  for (std::int64_t h = 0; h < from.shape()[1]; ++h) {
    double sum = 0;
    for (std::int64_t n = 0; n < from.shape()[0]; ++n) sum += from.view().At({n, h});
    to.Set({h}, sum);
  }
}

}  // namespace

PairGradientCopies::PairGradientCopies(const EngineCall& call, const BackwardTensors& tensors)
    : given_bandwidth_(tensors.dinputs.bandwidth), given_ridge_(tensors.dinputs.ridge) {
  const Inputs& d = tensors.dinputs;
  const Dims& dims = call.dims;
  q_ = WorkingCopy::OfHeads(d.q, dims.output_heads(), call.dtype);
  k_ = WorkingCopy::OfHeads(d.k, dims.heads, call.dtype);
  v_ = WorkingCopy::OfHeads(d.v, dims.heads, call.dtype);
  pair_bias_ = WorkingCopy::OfHeads(d.pair_bias, dims.output_heads(), call.dtype);
  const State& start = tensors.dinitial;
  log_weight_ = WorkingCopy::Zeros(start.Get("state.log_weight"), DType::kFloat64);
  const Shape constants{dims.states(), dims.heads};
  if (d.bandwidth.defined()) bandwidth_ = Tensor(DType::kFloat64, constants);
  if (d.ridge.defined()) ridge_ = Tensor(DType::kFloat64, constants);
  views_ = {.q = q_.view(),
            .k = k_.view(),
            .v = v_.view(),
            .pair_bias = pair_bias_.view(),
            .log_decay = d.log_decay,
            .importance = d.importance,
            .log_importance = d.log_importance,
            .bandwidth = bandwidth_.view(),
            .ridge = ridge_.view(),
            .state_k = start.Get("state.k"),
            .state_v = start.Get("state.v"),
            .state_log_weight = log_weight_.view()};
  for (const TensorView* view : {&views_.pair_bias, &views_.state_k, &views_.state_v}) {
    Fill(*view, 0);
  }
}

void PairGradientCopies::WriteBack() const {
  for (const WorkingCopy* copy : {&q_, &k_, &v_, &pair_bias_, &log_weight_}) copy->WriteBack();
  SumOverSequences(bandwidth_, given_bandwidth_);
  SumOverSequences(ridge_, given_ridge_);
}

common::FinalPairGradients FinalPairGradientsOf(const State& dstate) {
  return {dstate.Get("state.k"), dstate.Get("state.v"), dstate.Get("state.log_weight")};
}

}  // namespace ttr
