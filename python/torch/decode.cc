// Token by token, in place: what is mutated is the caller's state, or the memory of a Decoder.
#include <array>
#include <string>
#include <utility>

#include "arguments.h"
#include "dims.h"
#include "executor.h"
#include "layers.h"
#include "operators.h"
#include "scratch.h"
#include "tensors.h"
#include "ttr/decoder.h"
#include "ttr/error.h"

namespace ttr::pytorch {
namespace {

DType StateType(bool is_float64) { return is_float64 ? DType::kFloat64 : DType::kFloat32; }

}  // namespace

void Step(StableIValue* values) {
  constexpr std::string_view kOp = "step_";
  Stack stack(values);
  const std::string recipe = stack.TakeText();
  const Tensor memory = stack.Take<Tensor>();
  ByBits tensors = TakeByBits(stack);

  const auto cached = FindLayer(recipe);
  const Inputs inputs = InputViews(kOp, tensors);
  const Dims dims = InferDims(kOp, cached->layer.requirements(), inputs);
  if (dims.tokens != 1) {
    throw Error(kOp, "v", "one token (T = 1)", "T = " + std::to_string(dims.tokens));
  }
  Decoder decoder(cached->layer, dims, StateType(inputs.v.dtype() == DType::kFloat64),
                  BytesOf(kOp, "memory", memory));
  TorchExecutor executor;
  const Tensor y = Empty(inputs.v.dtype(), OutputShape(dims));
  const CallScratch scratch(cached->layer.ScratchBytes(dims, executor.threads()));
  decoder.Step(inputs, {.y = ViewOf(kOp, "y", y)},
               {.executor = &executor, .scratch = scratch.bytes()});
  Return(values, y);
}

void StepState(StableIValue* values) {
  constexpr std::string_view kOp = "step_state_";
  Stack stack(values);
  const std::string recipe = stack.TakeText();
  std::vector<Tensor> entries = stack.Take<std::vector<Tensor>>();
  ByBits tensors = TakeByBits(stack);

  const auto cached = FindLayer(recipe);
  const Layer& layer = cached->layer;
  const Inputs inputs = InputViews(kOp, tensors);
  State state = WholeState(kOp, layer, std::move(entries));
  const Dims dims = InferDims(kOp, layer.requirements(), inputs);
  TorchExecutor executor;
  const Tensor y = Empty(inputs.v.dtype(), OutputShape(dims));
  const CallScratch scratch(layer.ScratchBytes(dims, executor.threads()));
  layer.Step(inputs, state, {.y = ViewOf(kOp, "y", y)},
             {.executor = &executor, .scratch = scratch.bytes()});
  Return(values, y);
}

void DecoderStart(StableIValue* values) {
  constexpr std::string_view kOp = "decoder_start_";
  Stack stack(values);
  const std::string recipe = stack.TakeText();
  const Tensor memory = stack.Take<Tensor>();
  const auto sizes = stack.Take<std::vector<std::int64_t>>();
  const bool is_float64 = stack.Take<bool>();
  std::vector<Tensor> entries = stack.Take<std::vector<Tensor>>();

  const auto cached = FindLayer(recipe);
  Decoder decoder(cached->layer, DimsFrom(kOp, sizes), StateType(is_float64),
                  BytesOf(kOp, "memory", memory));
  decoder.Start(WholeState(kOp, cached->layer, std::move(entries)));
}

void DecoderState(StableIValue* values) {
  constexpr std::string_view kOp = "decoder_state_";
  Stack stack(values);
  const std::string recipe = stack.TakeText();
  const Tensor memory = stack.Take<Tensor>();
  const auto sizes = stack.Take<std::vector<std::int64_t>>();
  const bool is_float64 = stack.Take<bool>();

  const auto cached = FindLayer(recipe);
  Decoder decoder(cached->layer, DimsFrom(kOp, sizes), StateType(is_float64),
                  BytesOf(kOp, "memory", memory));
  TorchExecutor executor;
  Return(values, CopiesOf(kOp, decoder.state({.executor = &executor})));
}

void DecoderBytes(StableIValue* values) {
  constexpr std::string_view kOp = "decoder_bytes";
  Stack stack(values);
  const std::string recipe = stack.TakeText();
  const auto sizes = stack.Take<std::vector<std::int64_t>>();
  const bool is_float64 = stack.Take<bool>();
  const auto cached = FindLayer(recipe);
  const std::size_t bytes =
      Decoder::Bytes(cached->layer, DimsFrom(kOp, sizes), StateType(is_float64));
  Return(values, static_cast<std::int64_t>(bytes));
}

}  // namespace ttr::pytorch
