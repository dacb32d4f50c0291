// A pool of slots, in a tensor of the caller's.
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "arguments.h"
#include "executor.h"
#include "layers.h"
#include "memory.h"
#include "operators.h"
#include "scratch.h"
#include "tensors.h"
#include "ttr/error.h"
#include "ttr/state_pool.h"

namespace ttr::pytorch {
namespace {

/// The memory of one stream, whatever is said of rows and tokens.
Memory StreamFrom(std::string_view op, const Recipe& recipe, const std::string& sizes) {
  Memory memory = MemoryFrom(op, recipe, sizes);
  memory.dims.batch = memory.dims.tokens = 1;
  memory.dims.sequences = 0;
  return memory;
}

/// The arguments with which every operator on a pool begins.
struct PoolArguments {
  explicit PoolArguments(Stack& stack)
      : recipe(stack.TakeText()), memory(stack.Take<Tensor>()), sizes(stack.TakeText()) {}

  std::string recipe;
  Tensor memory;
  std::string sizes;
};

/// A pool over a tensor [slots, bytes of a slot].
class BoundPool {
 public:
  BoundPool(std::string_view op, const PoolArguments& arguments)
      : cached_(FindLayer(arguments.recipe)), pool_(Make(op, arguments, cached_->layer)) {}

  const Layer& layer() const { return cached_->layer; }
  StatePool& pool() { return pool_; }

 private:
  static StatePool Make(std::string_view op, const PoolArguments& arguments, const Layer& layer) {
    Memory stream = StreamFrom(op, layer.recipe(), arguments.sizes);
    stream.options.memory = BytesOf(op, "memory", arguments.memory);
    const std::int64_t slots = arguments.memory.dim() == 2 ? arguments.memory.size(0) : 0;
    StatePool pool(layer, stream.dims, slots, stream.options);
    if (static_cast<std::int64_t>(pool.slot_bytes()) != arguments.memory.size(1)) {
      throw Error(op, "memory", std::to_string(pool.slot_bytes()) + " bytes a slot",
                  std::to_string(arguments.memory.size(1)));
    }
    return pool;
  }

  std::shared_ptr<const CachedLayer> cached_;
  StatePool pool_;
};

}  // namespace

void PoolBytes(StableIValue* values) {
  constexpr std::string_view kOp = "pool_bytes";
  Stack stack(values);
  const std::string recipe = stack.TakeText();
  const std::string sizes = stack.TakeText();
  const auto slots = stack.Take<std::int64_t>();
  const auto cached = FindLayer(recipe);
  Memory stream = StreamFrom(kOp, cached->layer.recipe(), sizes);
  stream.options.together = slots;
  const std::size_t bytes = StatePool::SlotBytes(cached->layer, stream.dims, stream.options);
  Return(values, static_cast<std::int64_t>(bytes));
}

void PoolStep(StableIValue* values) {
  constexpr std::string_view kOp = "pool_step_";
  Stack stack(values);
  const PoolArguments arguments(stack);
  OptionalTensor slots(stack.Take<Tensor>());
  ByBits tensors = TakeByBits(stack);

  BoundPool bound(kOp, arguments);
  const TensorView taken = IntegersOf(kOp, "slots", slots);
  if (taken.dtype() != DType::kInt64 || taken.rank() != 1) {
    throw Error(kOp, "slots", "int32 or int64 [sequences]",
                std::string(Name(taken.dtype())) + " " + taken.shape().ToString());
  }
  const Inputs inputs = InputViews(kOp, tensors);
  const Dims dims = InferDims(kOp, bound.layer().requirements(), inputs);
  TorchExecutor executor;
  const Tensor y = Empty(inputs.v.dtype(), OutputShape(dims));
  const CallScratch scratch(bound.layer().ScratchBytes(dims, executor.threads()));
  bound.pool().Step(
      std::span(taken.as<const std::int64_t>(), static_cast<std::size_t>(taken.size(0))), inputs,
      {.y = ViewOf(kOp, "y", y)}, {.executor = &executor, .scratch = scratch.bytes()});
  Return(values, y);
}

void PoolStart(StableIValue* values) {
  constexpr std::string_view kOp = "pool_start_";
  Stack stack(values);
  const PoolArguments arguments(stack);
  const auto slot = stack.Take<std::int64_t>();
  std::vector<Tensor> entries = stack.Take<std::vector<Tensor>>();
  BoundPool bound(kOp, arguments);
  bound.pool().At(slot).Start(WholeState(kOp, bound.layer(), std::move(entries)));
}

void PoolState(StableIValue* values) {
  constexpr std::string_view kOp = "pool_state_";
  Stack stack(values);
  const PoolArguments arguments(stack);
  const auto slot = stack.Take<std::int64_t>();
  BoundPool bound(kOp, arguments);
  TorchExecutor executor;
  Decoder decoder = bound.pool().At(slot);
  Return(values, CopiesOf(kOp, decoder.state({.executor = &executor})));
}

void PoolPending(StableIValue* values) {
  constexpr std::string_view kOp = "pool_pending";
  Stack stack(values);
  const PoolArguments arguments(stack);
  const auto slot = stack.Take<std::int64_t>();
  Return(values, BoundPool(kOp, arguments).pool().At(slot).pending());
}

void PoolRollBack(StableIValue* values) {
  constexpr std::string_view kOp = "pool_roll_back_";
  Stack stack(values);
  const PoolArguments arguments(stack);
  const auto slot = stack.Take<std::int64_t>();
  const auto tokens = stack.Take<std::int64_t>();
  BoundPool(kOp, arguments).pool().At(slot).RollBack(tokens);
}

}  // namespace ttr::pytorch
