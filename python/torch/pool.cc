// A pool of slots, in a tensor of the caller's.
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "arguments.h"
#include "dims.h"
#include "executor.h"
#include "layers.h"
#include "operators.h"
#include "scratch.h"
#include "tensors.h"
#include "ttr/error.h"
#include "ttr/state_pool.h"

namespace ttr::pytorch {
namespace {

/// The sizes of one stream, and how its memory is kept.
struct Kept {
  Dims dims;
  DecoderOptions options;

  Kept(std::string_view op, const Recipe& recipe, const std::vector<std::int64_t>& sizes,
       const std::vector<std::int64_t>& how)
      : dims(DimsFrom(op, sizes)) {
    if (how.size() != 3) {
      throw Error(op, "options", "three numbers: float64, draft, window",
                  std::to_string(how.size()));
    }
    dims.batch = dims.tokens = 1;
    dims.sequences = 0;
    if (recipe.function.kind == FunctionClass::kNetwork && recipe.function.depth > 1) {
      dims.hidden = recipe.function.expansion * dims.key_dim;
    }
    options.state = how[0] != 0 ? DType::kFloat64 : DType::kFloat32;
    options.draft = how[1];
    options.window = how[2];
  }
};

/// The arguments with which every operator on a pool begins.
struct PoolArguments {
  explicit PoolArguments(Stack& stack)
      : recipe(stack.TakeText()),
        memory(stack.Take<Tensor>()),
        dims(stack.Take<std::vector<std::int64_t>>()),
        options(stack.Take<std::vector<std::int64_t>>()) {}

  std::string recipe;
  Tensor memory;
  std::vector<std::int64_t> dims, options;
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
    Kept kept(op, layer.recipe(), arguments.dims, arguments.options);
    kept.options.memory = BytesOf(op, "memory", arguments.memory);
    const std::int64_t slots = arguments.memory.dim() == 2 ? arguments.memory.size(0) : 0;
    StatePool pool(layer, kept.dims, slots, kept.options);
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
  const auto dims = stack.Take<std::vector<std::int64_t>>();
  const auto options = stack.Take<std::vector<std::int64_t>>();
  const auto slots = stack.Take<std::int64_t>();
  const auto cached = FindLayer(recipe);
  Kept kept(kOp, cached->layer.recipe(), dims, options);
  kept.options.together = slots;
  const std::size_t bytes = StatePool::SlotBytes(cached->layer, kept.dims, kept.options);
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
