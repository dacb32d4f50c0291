// ttr::norm: norms of rows with scale, shift and gate, and their gradients.
#include "ttr/norm.h"

#include <string>

#include "arguments.h"
#include "executor.h"
#include "gradients.h"
#include "operators.h"
#include "tensors.h"
#include "ttr/error.h"

namespace ttr::pytorch {
namespace {

RowNorm KindOf(std::string_view op, const std::string& name) {
  if (name == "l2") return RowNorm::kL2;
  if (name == "rms") return RowNorm::kRms;
  if (name == "layer") return RowNorm::kLayer;
  throw Error(op, "kind", "l2, rms or layer", name);
}

Gate GateOf(std::string_view op, const std::string& name) {
  if (name == "silu") return Gate::kSilu;
  if (name == "sigmoid") return Gate::kSigmoid;
  throw Error(op, "gate_kind", "silu or sigmoid", name);
}

/// What the operator and its gradients are given, in the schema's order.
struct Arguments {
  OptionalTensor x, weight, bias, gate;
  std::string kind;
  double eps = 0;
  std::string gate_kind;
  bool gate_first = false;

  explicit Arguments(Stack& stack)
      : x(stack.Take<Tensor>()),
        weight(stack.Take<OptionalTensor>()),
        bias(stack.Take<OptionalTensor>()),
        gate(stack.Take<OptionalTensor>()),
        kind(stack.TakeText()),
        eps(stack.Take<double>()),
        gate_kind(stack.TakeText()),
        gate_first(stack.Take<bool>()) {}
};

Norm NormOf(std::string_view op, Arguments& given) {
  return {.kind = KindOf(op, given.kind),
          .eps = given.eps,
          .weight = RowsOf(op, "weight", given.weight),
          .bias = RowsOf(op, "bias", given.bias),
          .gate_kind = GateOf(op, given.gate_kind),
          .gate_first = given.gate_first};
}

}  // namespace

void NormForward(StableIValue* values) {
  constexpr std::string_view kOp = "norm";
  Stack stack(values);
  Arguments given(stack);

  const NormInputs inputs{.x = RowsOf(kOp, "x", given.x), .gate = RowsOf(kOp, "gate", given.gate)};
  const Tensor y = Empty(inputs.x.dtype(), inputs.x.shape());
  TorchExecutor executor;
  ApplyNorm(NormOf(kOp, given), inputs, ViewOf(kOp, "y", y), executor);
  Return(values, y);
}

void NormBackward(StableIValue* values) {
  constexpr std::string_view kOp = "norm_backward";
  Stack stack(values);
  OptionalTensor dy = stack.Take<Tensor>();
  Arguments given(stack);
  Gradients gradients(kOp, stack.Take<std::int64_t>());

  const Norm norm = NormOf(kOp, given);
  const NormInputs inputs{.x = RowsOf(kOp, "x", given.x), .gate = RowsOf(kOp, "gate", given.gate)};
  const NormGradients written{.dx = gradients.Next("x", inputs.x),
                              .dweight = gradients.Next("weight", norm.weight),
                              .dbias = gradients.Next("bias", norm.bias),
                              .dgate = gradients.Next("gate", inputs.gate)};
  TorchExecutor executor;
  ApplyNormGradient(norm, inputs, RowsOf(kOp, "dy", dy), written, executor);
  Return(values, gradients.tensors());
}

}  // namespace ttr::pytorch
