// ttr::decay_gate, ttr::step_gate, ttr::skip_gate: gates from what a projection gives, and their
// gradients.
#include "ttr/gates.h"

#include "arguments.h"
#include "executor.h"
#include "gradients.h"
#include "operators.h"
#include "tensors.h"

namespace ttr::pytorch {
namespace {

/// A log decay or a step is summed over tokens: it is wider than a bfloat16 that it comes from.
Tensor WideAs(const TensorView& x) {
  return Empty(x.dtype() == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32, x.shape());
}

}  // namespace

void DecayGateForward(StableIValue* values) {
  constexpr std::string_view kOp = "decay_gate";
  Stack stack(values);
  OptionalTensor x = stack.Take<Tensor>(), a = stack.Take<Tensor>();
  OptionalTensor bias = stack.Take<OptionalTensor>();

  const TensorView input = RowsOf(kOp, "x", x);
  const Tensor log_decay = WideAs(input);
  TorchExecutor executor;
  ApplyDecayGate({.a = RowsOf(kOp, "a", a), .bias = RowsOf(kOp, "bias", bias)}, input,
                 ViewOf(kOp, "log_decay", log_decay), executor);
  Return(values, log_decay);
}

void DecayGateBackward(StableIValue* values) {
  constexpr std::string_view kOp = "decay_gate_backward";
  Stack stack(values);
  OptionalTensor dlog_decay = stack.Take<Tensor>();
  OptionalTensor x = stack.Take<Tensor>(), a = stack.Take<Tensor>();
  OptionalTensor bias = stack.Take<OptionalTensor>();
  Gradients gradients(kOp, stack.Take<std::int64_t>());

  const DecayGate gate{.a = RowsOf(kOp, "a", a), .bias = RowsOf(kOp, "bias", bias)};
  const TensorView input = RowsOf(kOp, "x", x);
  const DecayGateGradients written{.dx = gradients.Next("x", input),
                                   .da = gradients.Next("a", gate.a),
                                   .dbias = gradients.Next("bias", gate.bias)};
  TorchExecutor executor;
  ApplyDecayGateGradient(gate, input, RowsOf(kOp, "dlog_decay", dlog_decay), written, executor);
  Return(values, gradients.tensors());
}

void StepGateForward(StableIValue* values) {
  constexpr std::string_view kOp = "step_gate";
  Stack stack(values);
  OptionalTensor x = stack.Take<Tensor>(), bias = stack.Take<OptionalTensor>();
  const double low = stack.Take<double>(), high = stack.Take<double>();

  const TensorView input = RowsOf(kOp, "x", x);
  const Tensor step = WideAs(input);
  TorchExecutor executor;
  ApplyStepGate({.bias = RowsOf(kOp, "bias", bias), .low = low, .high = high}, input,
                ViewOf(kOp, "step", step), executor);
  Return(values, step);
}

void StepGateBackward(StableIValue* values) {
  constexpr std::string_view kOp = "step_gate_backward";
  Stack stack(values);
  OptionalTensor dstep = stack.Take<Tensor>();
  OptionalTensor x = stack.Take<Tensor>(), bias = stack.Take<OptionalTensor>();
  const double low = stack.Take<double>(), high = stack.Take<double>();
  Gradients gradients(kOp, stack.Take<std::int64_t>());

  const StepGate gate{.bias = RowsOf(kOp, "bias", bias), .low = low, .high = high};
  const TensorView input = RowsOf(kOp, "x", x);
  const StepGateGradients written{.dx = gradients.Next("x", input),
                                  .dbias = gradients.Next("bias", gate.bias)};
  TorchExecutor executor;
  ApplyStepGateGradient(gate, input, RowsOf(kOp, "dstep", dstep), written, executor);
  Return(values, gradients.tensors());
}

void SkipGateForward(StableIValue* values) {
  constexpr std::string_view kOp = "skip_gate";
  Stack stack(values);
  OptionalTensor y = stack.Take<Tensor>(), x = stack.Take<OptionalTensor>();
  OptionalTensor d = stack.Take<OptionalTensor>(), z = stack.Take<OptionalTensor>();

  const SkipGateInputs inputs{
      .y = RowsOf(kOp, "y", y), .x = RowsOf(kOp, "x", x), .z = RowsOf(kOp, "z", z)};
  const Tensor out = Empty(inputs.y.dtype(), inputs.y.shape());
  TorchExecutor executor;
  ApplySkipGate({.d = RowsOf(kOp, "d", d)}, inputs, ViewOf(kOp, "out", out), executor);
  Return(values, out);
}

void SkipGateBackward(StableIValue* values) {
  constexpr std::string_view kOp = "skip_gate_backward";
  Stack stack(values);
  OptionalTensor dout = stack.Take<Tensor>();
  OptionalTensor y = stack.Take<Tensor>(), x = stack.Take<OptionalTensor>();
  OptionalTensor d = stack.Take<OptionalTensor>(), z = stack.Take<OptionalTensor>();
  Gradients gradients(kOp, stack.Take<std::int64_t>());

  const SkipGate gate{.d = RowsOf(kOp, "d", d)};
  const SkipGateInputs inputs{
      .y = RowsOf(kOp, "y", y), .x = RowsOf(kOp, "x", x), .z = RowsOf(kOp, "z", z)};
  SkipGateGradients written;
  written.dy = gradients.Next("y", inputs.y);
  written.dx = gradients.Next("x", inputs.x);
  written.dd = gradients.Next("d", gate.d);
  written.dz = gradients.Next("z", inputs.z);
  TorchExecutor executor;
  ApplySkipGateGradient(gate, inputs, RowsOf(kOp, "dout", dout), written, executor);
  Return(values, gradients.tensors());
}

}  // namespace ttr::pytorch
