#include "ttr/norm.h"

#include <array>
#include <cmath>
#include <string>

#include "src/engines/rows/norm.h"
#include "src/operators/check.h"
#include "ttr/error.h"

namespace ttr {
namespace {

using operators::CheckApart;
using operators::CheckTensor;
using operators::Named;

rows::NormKind KindOf(RowNorm kind) {
  switch (kind) {
    case RowNorm::kL2: return rows::NormKind::kL2;
    case RowNorm::kRms: return rows::NormKind::kRms;
    case RowNorm::kLayer: return rows::NormKind::kLayer;
  }
  return rows::NormKind::kRms;
}

rows::GateKind KindOf(Gate kind) {
  switch (kind) {
    case Gate::kSilu: return rows::GateKind::kSilu;
    case Gate::kSigmoid: return rows::GateKind::kSigmoid;
  }
  return rows::GateKind::kSilu;
}

/// [D] as [1, D].
TensorView PerHead(const TensorView& view) {
  if (!view.defined() || view.rank() != 1) return view;
  const std::array<std::int64_t, 2> strides = {view.size(0), view.stride(0)};
  return {view.data(), view.dtype(), Shape{1, view.size(0)}, strides};
}

void CheckWeights(std::string_view op, const Named& argument, const TensorView& x) {
  if (!argument.view.defined()) return;
  if (argument.view.rank() == 1) {
    CheckTensor(op, argument, "[D]", {x.size(3)});
  } else {
    CheckTensor(op, argument, "[D] or [H,D]", {x.size(2), x.size(3)});
  }
}

rows::NormCall Check(std::string_view op, const Norm& norm, const NormInputs& in) {
  operators::CheckRows(op, {"x", in.x}, "[B,T,H,D]");
  if (!(norm.eps >= 0) || !std::isfinite(norm.eps)) {
    throw Error(op, "eps", "a finite number, 0 or more", std::to_string(norm.eps));
  }
  CheckWeights(op, {"weight", norm.weight}, in.x);
  CheckWeights(op, {"bias", norm.bias}, in.x);
  if (in.gate.defined()) CheckTensor(op, {"gate", in.gate}, "[B,T,H,D]", in.x.shape());
  return {KindOf(norm.kind),      norm.eps,           in.x,
          PerHead(norm.weight),   PerHead(norm.bias), in.gate,
          KindOf(norm.gate_kind), norm.gate_first};
}

}  // namespace

void ApplyNorm(const Norm& norm, const NormInputs& inputs, const TensorView& y,
               Executor& executor) {
  constexpr std::string_view kOp = "norm";
  const rows::NormCall call = Check(kOp, norm, inputs);
  CheckTensor(kOp, {"y", y}, "[B,T,H,D]", inputs.x.shape());
  CheckApart(kOp, {"y", y}, {{"weight", norm.weight}, {"bias", norm.bias}, {"gate", inputs.gate}});
  if (!operators::Same(y, inputs.x)) CheckApart(kOp, {"y", y}, {{"x", inputs.x}});
  rows::Normalise(call, y, executor);
}

void ApplyNormGradient(const Norm& norm, const NormInputs& inputs, const TensorView& dy,
                       const NormGradients& gradients, Executor& executor) {
  constexpr std::string_view kOp = "norm_gradient";
  const rows::NormCall call = Check(kOp, norm, inputs);
  CheckTensor(kOp, {"dy", dy}, "[B,T,H,D]", inputs.x.shape());
  operators::CheckGradients(kOp,
                            {{{"dx", gradients.dx}, inputs.x},
                             {{"dweight", gradients.dweight}, norm.weight},
                             {{"dbias", gradients.dbias}, norm.bias},
                             {{"dgate", gradients.dgate}, inputs.gate}},
                            {{"x", inputs.x},
                             {"weight", norm.weight},
                             {"bias", norm.bias},
                             {"gate", inputs.gate},
                             {"dy", dy}});
  rows::NormaliseGradient(
      call, dy,
      {gradients.dx, PerHead(gradients.dweight), PerHead(gradients.dbias), gradients.dgate},
      executor);
}

}  // namespace ttr
