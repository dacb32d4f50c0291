// Steps divided by a curvature of low rank: the engine `curvature` turns keys into gains, along
// which fast weights write what they erase along the keys.

#include "src/engines/curvature/curvature.h"

#include <algorithm>

#include "src/adapters/fast_weights_options.h"
#include "src/adapters/mapped_keys.h"
#include "src/adapters/registry.h"
#include "src/core/call_scratch.h"
#include "src/core/working_copy.h"
#include "src/engines/fast_weights/backward.h"
#include "src/recipe/family.h"

namespace ttr {
namespace {

constexpr std::string_view kName = "curvature";

curvature::Options OptionsOf(const Recipe& recipe) {
  const Optimizer& optimizer = recipe.optimizer;
  return {optimizer.rank, optimizer.ridge, optimizer.curvature_decay};
}

curvature::Sizes SizesOf(const Recipe& recipe, const Dims& dims) {
  return {recipe.optimizer.rank, PhiDim(recipe, dims), dims.tokens};
}

/// Of keys that are mapped and divided.
fast_weights::Options MemoryOptions(const Recipe& recipe, const Dims& dims, const Inputs& inputs) {
  fast_weights::Options options = FastWeightsOptions(recipe, dims, inputs);
  options.erase = fast_weights::Erase::kEraseKey;
  options.preconditioned = options.intercept = options.normalise_qk = false;
  options.features = {};
  return options;
}

fast_weights::Sizes MemorySizes(const Recipe& recipe, const Dims& dims, DType state) {
  fast_weights::Sizes sizes;
  sizes.tokens = dims.tokens;
  sizes.input_dim = sizes.key_dim = PhiDim(recipe, dims);
  sizes.value_dim = dims.value_dim;
  sizes.queries = std::max<std::int64_t>(1, dims.query_heads / dims.heads);
  sizes.state = state;
  return sizes;
}

Inputs Used(const Inputs& inputs, Needs needs) {
  Inputs used = inputs;
  if (needs == Needs::kWrite) used.q = {};
  if (needs == Needs::kRead) used.k = {};
  return used;
}

/// Operands of both engines, from a call that has been checked; `state` is complete.
struct Operands {
  Operands(const EngineCall& from, const State& state, Needs needs, CallScratch& scratch)
      : dtype(state.Get("state").dtype()),
        keys(from.recipe(), from.dims, Used(from.inputs, needs),
             from.prepared.For(from.dims, dtype).directions.view(), dtype, from.executor, scratch) {
    memory = FastWeightsCall(from, FastWeightsStates(from.recipe(), state), needs, scratch);
    memory.q = keys.q();
    memory.features_w = memory.features_b = memory.importance = {};
    if (needs == Needs::kRead) return;
    const std::int64_t heads = from.dims.heads;
    memory.erase_key = OfMemories(keys.k(), heads, scratch);
    const Shape& shape = memory.erase_key.shape();
    memory.k = scratch.Zeros(dtype, {shape[0], shape[1], heads, shape[3]});
    gains = {.heads = heads,
             .k = memory.erase_key,
             .importance = from.inputs.importance,
             .cu_seqlens = memory.cu_seqlens,
             .slots = memory.slots,
             .u = state.Get("state.u"),
             .w = memory.k};
  }
  Operands(const Operands&) = delete;
  Operands& operator=(const Operands&) = delete;

  /// Bytes that they take of the scratch.
  static std::size_t ScratchBytes(const Recipe& recipe, const Dims& dims, int threads) {
    const Shape rows{dims.batch, dims.tokens, dims.heads, PhiDim(recipe, dims)};
    return MappedKeys::ScratchBytes(recipe, dims, threads) +
           2 * CallScratch::Bytes(DType::kFloat64, rows) +
           CallScratch::Bytes(DType::kFloat64, {dims.heads, dims.features, dims.key_dim}) +
           CallScratch::Bytes(DType::kFloat64, {dims.heads, dims.features});
  }

  DType dtype;
  MappedKeys keys;
  fast_weights::Call memory;
  curvature::Call gains;

 private:
  /// Rows of every memory, where several share those of a key.
  static TensorView OfMemories(const TensorView& keys, std::int64_t heads, CallScratch& scratch) {
    if (keys.size(2) == heads) return keys;
    const TensorView all =
        scratch.Zeros(keys.dtype(), {keys.size(0), keys.size(1), heads, keys.size(3)});
    for (std::int64_t h = 0; h < heads; ++h) {
      CopyInto(keys.Slice(2, h * keys.size(2) / heads, 1), all.Slice(2, h, 1));
    }
    return all;
  }
};

class Curvature final : public Engine {
 public:
  std::string_view name() const override { return kName; }

  bool Covers(const Recipe& recipe) const override { return HasLowRankCurvature(recipe); }
  const char* Obstacle(const Recipe& recipe) const override {
    if (recipe.function.features == FeatureMap::kCosformer) {
      return "a map by position before a curvature of low rank";
    }
    return FastWeightsEngine().Obstacle(recipe);
  }
  std::string_view How(const Recipe&) const override {
    return "keys divided by their largest directions, in double precision; a linear memory written "
           "by rank-one steps, in chunks, SIMD";
  }
  double FlopsPerToken(const Recipe& recipe, const Dims& dims) const override {
    const auto rows = static_cast<double>(recipe.optimizer.rank + 1);
    const auto phi = static_cast<double>(PhiDim(recipe, dims));
    return rows * (2 * rows * phi + 4 * phi + 11 * rows * rows) +
           6 * phi * static_cast<double>(dims.value_dim);
  }

  void Forward(const EngineCall& call, State& state, const Outputs& outputs) const override {
    const Recipe& recipe = call.recipe();
    AddMissing(recipe, call.requirements.state, call.dims, call.dtype, state);
    CallScratch scratch(kName, call.scratch,
                        Operands::ScratchBytes(recipe, call.dims, call.executor.threads()));
    Operands operands(call, state, call.needs, scratch);
    if (call.needs != Needs::kRead) {
      curvature::Forward(OptionsOf(recipe), operands.gains, call.executor, scratch.rest());
    }
    operands.memory.saved = call.saved;
    if (call.needs != Needs::kWrite) {
      operands.memory.y = outputs.y;
      operands.memory.status = outputs.status;
    }
    fast_weights::Forward(MemoryOptions(recipe, call.dims, call.inputs), operands.memory,
                          call.executor, scratch.rest());
  }

  std::size_t ScratchBytes(const Recipe& recipe, const Dims& dims, int threads) const override {
    return Operands::ScratchBytes(recipe, dims, threads) +
           Most(recipe, dims, [&](const auto& options, const auto& sizes) {
             return std::max(curvature::ScratchBytes(SizesOf(recipe, dims), threads),
                             fast_weights::ScratchBytes(options, sizes, threads));
           });
  }

  std::size_t SavedBytes(const Recipe& recipe, const Dims& dims, DType state) const override {
    return fast_weights::SavedBytes(MemoryOptions(recipe, dims, {}),
                                    MemorySizes(recipe, dims, state), dims.heads, dims.states(),
                                    dims.tokens, dims.sequences > 0);
  }

  bool TakesSlots(const Recipe&) const override { return true; }

  bool HasGradients() const override { return true; }
  void Backward(const EngineCall& call, const State& initial,
                const BackwardTensors& tensors) const override;

  std::size_t BackwardScratchBytes(const Recipe& recipe, const Dims& dims,
                                   int threads) const override {
    return Most(recipe, dims, [&](const auto& options, const auto& sizes) {
      return std::max(curvature::BackwardScratchBytes(SizesOf(recipe, dims), threads),
                      fast_weights::BackwardScratchBytes(options, sizes, threads));
    });
  }

 private:
  /// The most bytes that either dtype of the state needs.
  template <class BytesOf>
  static std::size_t Most(const Recipe& recipe, const Dims& dims, const BytesOf& bytes_of) {
    const fast_weights::Options options = MemoryOptions(recipe, dims, {});
    return std::max(bytes_of(options, MemorySizes(recipe, dims, DType::kFloat32)),
                    bytes_of(options, MemorySizes(recipe, dims, DType::kFloat64)));
  }
};

void Curvature::Backward(const EngineCall& call, const State& initial,
                         const BackwardTensors& tensors) const {
  const Recipe& recipe = call.recipe();
  State start = initial.Shared();
  AddMissing(recipe, call.requirements.state, call.dims, call.dtype, start);
  CallScratch scratch;
  const Operands operands(call, start, Needs::kBoth, scratch);
  curvature::Call gains = operands.gains;
  const Tensor moving = Tensor::Copy(gains.u);
  gains.u = moving;
  curvature::Forward(OptionsOf(recipe), gains, call.executor, call.scratch);

  const DType dtype = operands.dtype;
  const bool plain = operands.keys.plain();
  const Tensor by_gains(dtype, operands.memory.k.shape());
  const Tensor by_keys(dtype, operands.memory.erase_key.shape());
  Tensor dq;
  if (!plain) dq = Tensor(dtype, operands.memory.q.shape());
  fast_weights::BackwardCall engine;
  engine.forward = operands.memory;
  engine.forward.saved = call.saved;
  engine.dy = tensors.dy;
  engine.final = FastWeightsStates(recipe, tensors.dstate);
  engine.gradients = {FastWeightsOperands(recipe, tensors.dinputs),
                      FastWeightsStates(recipe, tensors.dinitial)};
  engine.gradients.features_w = engine.gradients.features_b = engine.gradients.importance = {};
  engine.gradients.k = by_gains;
  engine.gradients.erase_key = by_keys;
  engine.gradients.q = plain ? tensors.dinputs.q : dq.view();
  fast_weights::Backward(MemoryOptions(recipe, call.dims, call.inputs), engine, call.executor,
                         call.scratch);

  curvature::Backward(OptionsOf(recipe), operands.gains,
                      {.w = by_gains,
                       .final_u = tensors.dstate.Get("state.u"),
                       .k = by_keys,
                       .importance = tensors.dinputs.importance,
                       .u = tensors.dinitial.Get("state.u")},
                      call.executor, call.scratch);
  const std::int64_t key_heads = operands.keys.k().size(2);
  Tensor dk;
  if (key_heads != call.dims.heads) {
    dk = Tensor(dtype, operands.keys.k().shape());
    SumSharedHeads(by_keys, dk);
  }
  const TensorView all = dk.defined() ? dk.view() : by_keys.view();
  if (!plain) return operands.keys.Backward(all, dq, tensors.dinputs);
  if (tensors.dinputs.k.defined()) CopyInto(all, tensors.dinputs.k);
}

}  // namespace

const Engine& CurvatureEngine() {
  static const Curvature engine;
  return engine;
}

}  // namespace ttr
