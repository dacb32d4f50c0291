// ttr::short_conv: short causal convolution, its gradients, and tokens in place.
#include "ttr/short_conv.h"

#include <algorithm>

#include "arguments.h"
#include "executor.h"
#include "gradients.h"
#include "operators.h"
#include "tensors.h"

namespace ttr::pytorch {
namespace {

/// What the operator and its gradients are given, in the schema's order.
struct Arguments {
  OptionalTensor x, weight, bias, state, cu_seqlens;
  bool silu = false;

  explicit Arguments(Stack& stack)
      : x(stack.Take<Tensor>()),
        weight(stack.Take<Tensor>()),
        bias(stack.Take<OptionalTensor>()),
        state(stack.Take<OptionalTensor>()),
        cu_seqlens(stack.Take<OptionalTensor>()),
        silu(stack.Take<bool>()) {}
};

ShortConv ConvOf(std::string_view op, const OptionalTensor& weight, OptionalTensor& bias,
                 bool silu) {
  return {.weight = ViewOf(op, "weight", weight), .bias = RowsOf(op, "bias", bias), .silu = silu};
}

/// The state after the last token: at first that before the first one, W - 1 zeros where there is
/// none. Sizes that do not fit are left to the convolution, which refuses them.
Tensor FinalOf(std::string_view op, const ShortConv& conv, const ShortConvInputs& in,
               const OptionalTensor& state) {
  if (state) {
    const TensorView initial = ViewOf(op, "state", *state);
    const Tensor final_state = Empty(initial.dtype(), initial.shape());
    CopyInto(initial, ViewOf(op, "state", final_state));
    return final_state;
  }
  if (in.x.rank() != 4 || conv.weight.rank() != 3) return Empty(in.x.dtype(), Shape{0});
  const TensorView& bounds = in.cu_seqlens;
  const std::int64_t sequences =
      bounds.defined() && bounds.rank() == 1 ? bounds.size(0) - 1 : in.x.size(0);
  const std::int64_t rows = conv.weight.size(2) - 1;
  return Zeros(in.x.dtype(), {std::max<std::int64_t>(sequences, 0), std::max<std::int64_t>(rows, 0),
                              in.x.size(2), in.x.size(3)});
}

}  // namespace

void ShortConvForward(StableIValue* values) {
  constexpr std::string_view kOp = "short_conv";
  Stack stack(values);
  Arguments given(stack);

  const ShortConv conv = ConvOf(kOp, given.weight, given.bias, given.silu);
  const ShortConvInputs inputs{.x = RowsOf(kOp, "x", given.x),
                               .cu_seqlens = SequencesOf(kOp, given.cu_seqlens)};
  const Tensor final_state = FinalOf(kOp, conv, inputs, given.state);
  const Tensor y = Empty(inputs.x.dtype(), inputs.x.shape());
  TorchExecutor executor;
  ApplyShortConv(conv, inputs, ViewOf(kOp, "state", final_state), ViewOf(kOp, "y", y), executor);
  Return(values, y, final_state);
}

void ShortConvBackward(StableIValue* values) {
  constexpr std::string_view kOp = "short_conv_backward";
  Stack stack(values);
  OptionalTensor dy = stack.Take<OptionalTensor>();
  const OptionalTensor dfinal = stack.Take<OptionalTensor>();
  Arguments given(stack);
  Gradients gradients(kOp, stack.Take<std::int64_t>());

  const ShortConv conv = ConvOf(kOp, given.weight, given.bias, given.silu);
  const ShortConvInputs inputs{.x = RowsOf(kOp, "x", given.x),
                               .cu_seqlens = SequencesOf(kOp, given.cu_seqlens)};
  const TensorView initial = ViewOf(kOp, "state", given.state);
  const ShortConvGradients written{.dx = gradients.Next("x", inputs.x),
                                   .dweight = gradients.Next("weight", conv.weight),
                                   .dbias = gradients.Next("bias", conv.bias),
                                   .dinitial = gradients.Next("state", initial)};
  // The loss may hang on the final state alone.
  if (!dy) dy = Zeros(inputs.x.dtype(), inputs.x.shape());
  TorchExecutor executor;
  ApplyShortConvGradient(conv, inputs, initial, RowsOf(kOp, "dy", dy),
                         ViewOf(kOp, "dfinal", dfinal), written, executor);
  Return(values, gradients.tensors());
}

void ShortConvStep(StableIValue* values) {
  constexpr std::string_view kOp = "short_conv_";
  Stack stack(values);
  const Tensor state = stack.Take<Tensor>();
  OptionalTensor x = stack.Take<Tensor>();
  const OptionalTensor weight = stack.Take<Tensor>();
  OptionalTensor bias = stack.Take<OptionalTensor>();
  const bool silu = stack.Take<bool>();

  const ShortConvInputs inputs{.x = RowsOf(kOp, "x", x)};
  const Tensor y = Empty(inputs.x.dtype(), inputs.x.shape());
  TorchExecutor executor;
  ApplyShortConv(ConvOf(kOp, weight, bias, silu), inputs, ViewOf(kOp, "state", state),
                 ViewOf(kOp, "y", y), executor);
  Return(values, y);
}

}  // namespace ttr::pytorch
