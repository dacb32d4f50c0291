#include "ttr/short_conv.h"

#include <string>

#include "src/core/view_checks.h"
#include "src/engines/rows/short_conv.h"
#include "src/operators/check.h"
#include "ttr/error.h"

namespace ttr {
namespace {

using operators::CheckApart;
using operators::CheckTensor;
using operators::Named;

struct Checked {
  rows::ConvCall call;
  std::int64_t sequences = 0;
};

Checked Check(std::string_view op, const ShortConv& conv, const ShortConvInputs& in) {
  operators::CheckRows(op, {"x", in.x}, "[B,T,H,D]");
  const std::int64_t batch = in.x.size(0), tokens = in.x.size(1);
  const std::int64_t heads = in.x.size(2), dim = in.x.size(3);
  const TensorView& weight = conv.weight;
  const bool fits = weight.defined() && operators::HasKernels(weight.dtype()) &&
                    weight.rank() == 3 && weight.size(0) == heads && weight.size(1) == dim &&
                    weight.size(2) >= 1 && weight.size(2) <= rows::kMaxConvWidth;
  if (!fits) {
    throw Error(op, "weight",
                "float32, float64 or bfloat16 [H,D,W] = " + Shape{heads, dim}.ToString() +
                    " and W from 1 to " + std::to_string(rows::kMaxConvWidth),
                weight.defined() ? weight.shape().ToString() : "absent");
  }
  CheckAligned(op, "weight", weight);
  Checked checked;
  checked.call.x = in.x;
  checked.call.weight = weight;
  checked.call.silu = conv.silu;
  if (conv.bias.defined()) {
    CheckTensor(op, {"bias", conv.bias}, "[H,D]", {heads, dim});
    checked.call.bias = conv.bias;
  }
  checked.call.cu_seqlens = operators::CheckSequences(op, in.cu_seqlens, batch, tokens);
  checked.sequences = in.cu_seqlens.defined() ? in.cu_seqlens.size(0) - 1 : batch;
  return checked;
}

/// Any strides, and as many rows as `like` where that is defined.
void CheckState(std::string_view op, const Named& state, const Checked& checked,
                const Named& like = {}) {
  const TensorView& view = state.view;
  if (!view.defined()) return;
  const std::int64_t least = checked.call.weight.size(2) - 1;
  const Shape shape{checked.sequences, least, checked.call.x.size(2), checked.call.x.size(3)};
  const bool fits = operators::HasKernels(view.dtype()) && view.rank() == 4 &&
                    view.size(0) == shape[0] && view.size(1) >= least && view.size(2) == shape[2] &&
                    view.size(3) == shape[3];
  if (!fits) {
    throw Error(op, state.name,
                "float32, float64 or bfloat16 [B or N,R,H,D] = " + shape.ToString() +
                    " with R = W-1 or more",
                std::string(Name(view.dtype())) + " " + view.shape().ToString());
  }
  if (like.view.defined() && view.size(1) != like.view.size(1)) {
    throw Error(
        op, state.name,
        "of as many rows as " + std::string(like.name) + ", " + std::to_string(like.view.size(1)),
        "of " + std::to_string(view.size(1)));
  }
  CheckAligned(op, state.name, view);
}

}  // namespace

void ApplyShortConv(const ShortConv& conv, const ShortConvInputs& inputs, const TensorView& state,
                    const TensorView& y, Executor& executor) {
  constexpr std::string_view kOp = "short_conv";
  const Checked checked = Check(kOp, conv, inputs);
  CheckState(kOp, {"state", state}, checked);
  CheckTensor(kOp, {"y", y}, "[B,T,H,D]", inputs.x.shape());
  const Named x{"x", inputs.x}, weight{"weight", conv.weight}, bias{"bias", conv.bias};
  CheckApart(kOp, {"y", y}, {x, weight, bias, {"state", state}});
  CheckApart(kOp, {"state", state}, {x, weight, bias});
  rows::Convolve(checked.call, state, y, executor);
}

void ApplyShortConvGradient(const ShortConv& conv, const ShortConvInputs& inputs,
                            const TensorView& initial, const TensorView& dy,
                            const TensorView& dfinal, const ShortConvGradients& gradients,
                            Executor& executor) {
  constexpr std::string_view kOp = "short_conv_gradient";
  const Checked checked = Check(kOp, conv, inputs);
  CheckState(kOp, {"initial", initial}, checked);
  CheckState(kOp, {"dfinal", dfinal}, checked, {"initial", initial});
  CheckState(kOp, {"dinitial", gradients.dinitial}, checked, {"initial", initial});
  CheckState(kOp, {"dinitial", gradients.dinitial}, checked, {"dfinal", dfinal});
  CheckTensor(kOp, {"dy", dy}, "[B,T,H,D]", inputs.x.shape());
  if (gradients.dx.defined()) {
    CheckTensor(kOp, {"dx", gradients.dx}, "[B,T,H,D]", inputs.x.shape());
  }
  if (gradients.dbias.defined()) {
    if (!conv.bias.defined()) {
      operators::CheckAbsent(kOp, {"dbias", gradients.dbias}, "there is no bias");
    }
    CheckTensor(kOp, {"dbias", gradients.dbias}, "[H,D]", conv.bias.shape());
  }
  if (gradients.dweight.defined() && !(operators::HasKernels(gradients.dweight.dtype()) &&
                                       gradients.dweight.shape() == conv.weight.shape())) {
    throw Error(kOp, "dweight", "[H,D,W] = " + conv.weight.shape().ToString(),
                gradients.dweight.shape().ToString());
  }
  CheckAligned(kOp, "dweight", gradients.dweight);
  const Named written[] = {{"dx", gradients.dx},
                           {"dweight", gradients.dweight},
                           {"dbias", gradients.dbias},
                           {"dinitial", gradients.dinitial}};
  for (const Named& one : written) {
    CheckApart(kOp, one,
               {{"x", inputs.x},
                {"weight", conv.weight},
                {"bias", conv.bias},
                {"initial", initial},
                {"dy", dy},
                {"dfinal", dfinal}});
    for (const Named& other : written) {
      if (&other != &one) CheckApart(kOp, one, {other});
    }
  }
  rows::ConvolveGradient(checked.call, initial, dy, dfinal,
                         {gradients.dx, gradients.dweight, gradients.dbias, gradients.dinitial},
                         executor);
}

}  // namespace ttr
