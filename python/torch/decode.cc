// Token by token, in place: what is mutated is the caller's state, or the memory of a Decoder.
#include <memory>
#include <string>
#include <utility>

#include "arguments.h"
#include "executor.h"
#include "layers.h"
#include "memory.h"
#include "operators.h"
#include "scratch.h"
#include "tensors.h"
#include "ttr/decoder.h"
#include "ttr/error.h"

namespace ttr::pytorch {
namespace {

/// A decoder over a memory of the caller's, and the layer that it needs.
struct BoundDecoder {
  BoundDecoder(std::string_view op, const std::string& recipe, const Tensor& memory,
               const std::string& sizes)
      : cached(FindLayer(recipe)), decoder(Make(op, cached->layer, memory, sizes)) {}

  static Decoder Make(std::string_view op, const Layer& layer, const Tensor& memory,
                      const std::string& sizes) {
    Memory made = MemoryFrom(op, layer.recipe(), sizes);
    made.options.memory = BytesOf(op, "memory", memory);
    return {layer, made.dims, made.options};
  }

  std::shared_ptr<const CachedLayer> cached;
  Decoder decoder;
};

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
  const bool is_float64 = inputs.v.dtype() == DType::kFloat64;
  Decoder decoder(cached->layer, dims, is_float64 ? DType::kFloat64 : DType::kFloat32,
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
  const std::string sizes = stack.TakeText();
  std::vector<Tensor> entries = stack.Take<std::vector<Tensor>>();

  BoundDecoder bound(kOp, recipe, memory, sizes);
  bound.decoder.Start(WholeState(kOp, bound.cached->layer, std::move(entries)));
}

void DecoderState(StableIValue* values) {
  constexpr std::string_view kOp = "decoder_state_";
  Stack stack(values);
  const std::string recipe = stack.TakeText();
  const Tensor memory = stack.Take<Tensor>();
  const std::string sizes = stack.TakeText();

  BoundDecoder bound(kOp, recipe, memory, sizes);
  TorchExecutor executor;
  Return(values, CopiesOf(kOp, bound.decoder.state({.executor = &executor})));
}

void DecoderBytes(StableIValue* values) {
  constexpr std::string_view kOp = "decoder_bytes";
  Stack stack(values);
  const std::string recipe = stack.TakeText();
  const std::string sizes = stack.TakeText();
  const auto cached = FindLayer(recipe);
  const Memory memory = MemoryFrom(kOp, cached->layer.recipe(), sizes);
  const std::size_t bytes = Decoder::Bytes(cached->layer, memory.dims, memory.options);
  Return(values, static_cast<std::int64_t>(bytes));
}

}  // namespace ttr::pytorch
