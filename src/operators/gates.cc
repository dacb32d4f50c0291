#include "ttr/gates.h"

#include <array>
#include <string>

#include "src/engines/rows/gates.h"
#include "src/operators/check.h"
#include "ttr/error.h"

namespace ttr {
namespace {

using operators::CheckApart;
using operators::CheckTensor;
using operators::Named;

/// [B, T, H] as [B, T, 1, H].
TensorView AsRows(const TensorView& view) {
  if (view.rank() != 3) return view;
  const std::array<std::int64_t, 4> strides = {view.stride(0), view.stride(1), 0, view.stride(2)};
  return {view.data(), view.dtype(), Shape{view.size(0), view.size(1), 1, view.size(2)}, strides};
}

/// A parameter as what goes with those rows: [H] of [B, T, H] as [1, H].
TensorView BesideRows(const TensorView& parameter, const TensorView& x) {
  if (x.rank() != 3 || !parameter.defined()) return parameter;
  const std::array<std::int64_t, 2> strides = {0, parameter.stride(0)};
  return {parameter.data(), parameter.dtype(), Shape{1, parameter.size(0)}, strides};
}

void CheckProjection(std::string_view op, const TensorView& x) {
  constexpr std::string_view kAxes = "[B,T,H] or [B,T,H,D]";
  if (x.defined() && x.rank() == 3 && x.size(2) > 0) {
    CheckTensor(op, {"x", x}, kAxes, x.shape());
  } else {
    operators::CheckRows(op, {"x", x}, kAxes);
  }
}

/// [H], or [H, D] beside [B, T, H, D].
void CheckParameter(std::string_view op, const Named& parameter, const TensorView& x) {
  if (x.rank() == 3) {
    CheckTensor(op, parameter, "[H]", {x.size(2)});
  } else if (parameter.view.defined() && parameter.view.rank() == 1) {
    CheckTensor(op, parameter, "[H]", {x.size(2)});
  } else {
    CheckTensor(op, parameter, "[H] or [H,D]", {x.size(2), x.size(3)});
  }
}

void CheckOutput(std::string_view op, const Named& output, const Named& input,
                 std::initializer_list<Named> others) {
  CheckTensor(op, output, "as " + std::string(input.name), input.view.shape());
  CheckApart(op, output, others);
  if (!operators::Same(output.view, input.view)) CheckApart(op, output, {input});
}

rows::SoftplusCall Check(std::string_view op, const DecayGate& gate, const TensorView& x) {
  CheckProjection(op, x);
  CheckParameter(op, {"a", gate.a}, x);
  if (gate.bias.defined()) CheckParameter(op, {"bias", gate.bias}, x);
  rows::SoftplusCall call;
  call.x = AsRows(x);
  call.a = BesideRows(gate.a, x);
  call.bias = BesideRows(gate.bias, x);
  return call;
}

rows::SoftplusCall Check(std::string_view op, const StepGate& gate, const TensorView& x) {
  CheckProjection(op, x);
  if (gate.bias.defined()) CheckParameter(op, {"bias", gate.bias}, x);
  if (!(gate.low <= gate.high)) {
    throw Error(op, "low", "a number up to high = " + std::to_string(gate.high),
                std::to_string(gate.low));
  }
  return {AsRows(x), {}, BesideRows(gate.bias, x), gate.low, gate.high};
}

rows::SkipCall Check(std::string_view op, const SkipGate& gate, const SkipGateInputs& in) {
  operators::CheckRows(op, {"y", in.y}, "[B,T,H,D]");
  if (in.x.defined() || gate.d.defined()) {
    CheckTensor(op, {"x", in.x}, "beside d, [B,T,H,D]", in.y.shape());
    CheckParameter(op, {"d", gate.d}, in.y);
  }
  if (in.z.defined()) CheckTensor(op, {"z", in.z}, "[B,T,H,D]", in.y.shape());
  return {in.y, in.x, in.z, gate.d};
}

}  // namespace

void ApplyDecayGate(const DecayGate& gate, const TensorView& x, const TensorView& log_decay,
                    Executor& executor) {
  constexpr std::string_view kOp = "decay_gate";
  const rows::SoftplusCall call = Check(kOp, gate, x);
  CheckOutput(kOp, {"log_decay", log_decay}, {"x", x}, {{"a", gate.a}, {"bias", gate.bias}});
  rows::Softplus(call, AsRows(log_decay), executor);
}

void ApplyDecayGateGradient(const DecayGate& gate, const TensorView& x,
                            const TensorView& dlog_decay, const DecayGateGradients& gradients,
                            Executor& executor) {
  constexpr std::string_view kOp = "decay_gate_gradient";
  const rows::SoftplusCall call = Check(kOp, gate, x);
  CheckTensor(kOp, {"dlog_decay", dlog_decay}, "as x", x.shape());
  operators::CheckGradients(
      kOp,
      {{{"dx", gradients.dx}, x},
       {{"da", gradients.da}, gate.a},
       {{"dbias", gradients.dbias}, gate.bias}},
      {{"x", x}, {"a", gate.a}, {"bias", gate.bias}, {"dlog_decay", dlog_decay}});
  rows::SoftplusGradient(
      call, AsRows(dlog_decay),
      {AsRows(gradients.dx), BesideRows(gradients.da, x), BesideRows(gradients.dbias, x)},
      executor);
}

void ApplyStepGate(const StepGate& gate, const TensorView& x, const TensorView& step,
                   Executor& executor) {
  constexpr std::string_view kOp = "step_gate";
  const rows::SoftplusCall call = Check(kOp, gate, x);
  CheckOutput(kOp, {"step", step}, {"x", x}, {{"bias", gate.bias}});
  rows::Softplus(call, AsRows(step), executor);
}

void ApplyStepGateGradient(const StepGate& gate, const TensorView& x, const TensorView& dstep,
                           const StepGateGradients& gradients, Executor& executor) {
  constexpr std::string_view kOp = "step_gate_gradient";
  const rows::SoftplusCall call = Check(kOp, gate, x);
  CheckTensor(kOp, {"dstep", dstep}, "as x", x.shape());
  operators::CheckGradients(kOp,
                            {{{"dx", gradients.dx}, x}, {{"dbias", gradients.dbias}, gate.bias}},
                            {{"x", x}, {"bias", gate.bias}, {"dstep", dstep}});
  rows::SoftplusGradient(call, AsRows(dstep),
                         {AsRows(gradients.dx), {}, BesideRows(gradients.dbias, x)}, executor);
}

void ApplySkipGate(const SkipGate& gate, const SkipGateInputs& inputs, const TensorView& out,
                   Executor& executor) {
  constexpr std::string_view kOp = "skip_gate";
  const rows::SkipCall call = Check(kOp, gate, inputs);
  CheckOutput(kOp, {"out", out}, {"y", inputs.y},
              {{"x", inputs.x}, {"z", inputs.z}, {"d", gate.d}});
  rows::Skip(call, out, executor);
}

void ApplySkipGateGradient(const SkipGate& gate, const SkipGateInputs& inputs,
                           const TensorView& dout, const SkipGateGradients& gradients,
                           Executor& executor) {
  constexpr std::string_view kOp = "skip_gate_gradient";
  const rows::SkipCall call = Check(kOp, gate, inputs);
  CheckTensor(kOp, {"dout", dout}, "as y", inputs.y.shape());
  operators::CheckGradients(
      kOp,
      {{{"dy", gradients.dy}, inputs.y},
       {{"dx", gradients.dx}, inputs.x},
       {{"dz", gradients.dz}, inputs.z},
       {{"dd", gradients.dd}, gate.d}},
      {{"y", inputs.y}, {"x", inputs.x}, {"z", inputs.z}, {"d", gate.d}, {"dout", dout}});
  rows::SkipGradient(call, dout, {gradients.dy, gradients.dx, gradients.dz, gradients.dd},
                     executor);
}

}  // namespace ttr
