// Steps divided by a curvature of low rank: the engine `curvature` turns keys into gains, along
// which fast weights write what they erase along the keys.

#include "src/engines/curvature/curvature.h"

#include <algorithm>
#include <cmath>

#include "src/adapters/fast_weights_options.h"
#include "src/adapters/mapped_keys.h"
#include "src/adapters/registry.h"
#include "src/adapters/spread_rows.h"
#include "src/core/call_scratch.h"
#include "src/core/working_copy.h"
#include "src/engines/fast_weights/backward.h"
#include "src/recipe/family.h"

namespace ttr {
namespace {

constexpr std::string_view kName = "curvature";

curvature::Options OptionsOf(const Recipe& recipe) {
  const Optimizer& optimizer = recipe.optimizer;
  return {optimizer.rank, optimizer.ridge, optimizer.curvature_decay, optimizer.steps};
}

curvature::Sizes SizesOf(const Recipe& recipe, const Dims& dims) {
  return {recipe.optimizer.rank, PhiDim(recipe, dims), dims.tokens * recipe.optimizer.steps};
}

/// The row of a token that reads the memory.
std::int64_t ReadingRow(const Recipe& recipe) {
  return recipe.reading.read == Read::kBefore ? 0 : recipe.optimizer.steps - 1;
}

/// The options of the memory behind the curvature: its keys come mapped and divided, and every step
/// of a token is a token of its own.
fast_weights::Options MemoryOptions(const Recipe& recipe, const Dims& dims, const Inputs& inputs) {
  fast_weights::Options options = FastWeightsOptions(recipe, dims, inputs);
  options.erase = fast_weights::Erase::kEraseKey;
  options.preconditioned = options.intercept = options.normalise_qk = false;
  options.features = {};
  options.steps = 1;
  // Not every row fades what was before.
  const bool several = recipe.optimizer.steps > 1;
  if (several && options.decay == fast_weights::Decay::kConstant) {
    options.decay = fast_weights::Decay::kScalar;
  }
  return options;
}

fast_weights::Sizes MemorySizes(const Recipe& recipe, const Dims& dims, DType state) {
  fast_weights::Sizes sizes;
  sizes.tokens = dims.tokens * recipe.optimizer.steps;
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
    const std::int64_t steps = needs == Needs::kRead ? 1 : from.recipe().optimizer.steps;
    memory.q = SpreadOverRows(keys.q(), steps, ReadingRow(from.recipe()), scratch);
    memory.features_w = memory.features_b = memory.importance = {};
    if (needs == Needs::kRead) return;
    if (steps > 1) SpreadGates(from, steps, scratch);
    const TensorView& k = keys.k();
    memory.erase_key = OfMemories(k, from.dims.heads, scratch);
    memory.k = scratch.Zeros(dtype, memory.erase_key.shape());
    gains = {.heads = from.dims.heads,
             .k = k,
             .importance = from.inputs.importance,
             .cu_seqlens = CuSeqlens(from.inputs, from.dims),
             .slots = memory.slots,
             .u = state.Get("state.u"),
             .w = memory.k};
  }
  Operands(const Operands&) = delete;
  Operands& operator=(const Operands&) = delete;

  /// Bytes that they take of the scratch.
  static std::size_t ScratchBytes(const Recipe& recipe, const Dims& dims, int threads) {
    Dims rows = dims;
    rows.tokens *= recipe.optimizer.steps;
    const Shape keys{rows.batch, rows.tokens, rows.heads, PhiDim(recipe, dims)};
    return MappedKeys::ScratchBytes(recipe, rows, threads) +
           2 * CallScratch::Bytes(DType::kFloat64, keys) + SpreadBytes(recipe, rows) +
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
  /// Decays of the first row of a token, and where sequences of rows begin.
  void SpreadGates(const EngineCall& from, std::int64_t steps, CallScratch& scratch) {
    const Dims& dims = from.dims;
    memory.log_decay = SpreadOverRows(memory.log_decay, steps, 0, scratch);
    if (!memory.decay_factors.empty()) {
      memory.log_decay =
          scratch.Zeros(DType::kFloat64, {dims.batch, dims.tokens * steps, dims.heads});
      const TensorView first = RowOfTokens(memory.log_decay, steps, 0);
      for (std::int64_t b = 0; b < dims.batch; ++b) {
        for (std::int64_t t = 0; t < dims.tokens; ++t) {
          for (std::int64_t h = 0; h < dims.heads; ++h) {
            first.Set({b, t, h}, std::log(memory.decay_factors[static_cast<std::size_t>(h)]));
          }
        }
      }
      memory.decay_factors = {};
    }
    if (memory.cu_seqlens.empty()) return;
    const auto count = static_cast<std::int64_t>(memory.cu_seqlens.size());
    const TensorView bounds = scratch.Zeros(DType::kInt64, {count});
    std::ranges::transform(memory.cu_seqlens, bounds.as<std::int64_t>(),
                           [&](std::int64_t bound) { return bound * steps; });
    memory.cu_seqlens = {bounds.as<std::int64_t>(), static_cast<std::size_t>(count)};
  }

  /// Bytes of queries, decays, bounds and answers of `rows`.
  static std::size_t SpreadBytes(const Recipe& recipe, const Dims& rows) {
    if (recipe.optimizer.steps == 1) return 0;
    const auto bytes = [&](std::int64_t heads, std::int64_t width) {
      return CallScratch::Bytes(DType::kFloat64, {rows.batch, rows.tokens, heads, width});
    };
    return bytes(rows.query_heads, PhiDim(recipe, rows)) +
           bytes(rows.heads, std::max<std::int64_t>(rows.key_dim, 1)) +
           bytes(rows.output_heads(), rows.value_dim) +
           CallScratch::Bytes(DType::kInt64, {rows.sequences + 1});
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
    const double memory = phi * static_cast<double>(dims.value_dim);
    const double gain = rows * (2 * rows * phi + 4 * phi + 11 * rows * rows);
    return 2 * memory + (gain + 4 * memory) * static_cast<double>(recipe.optimizer.steps);
  }

  /// Eigenvectors of some memories, and their rotations; backward those of a block of rows.
  double WorkBytes(const Recipe& recipe, const Dims& dims, std::int64_t,
                   bool backward) const override {
    const auto rows = static_cast<double>(recipe.optimizer.rank + 1);
    const auto phi = static_cast<double>(PhiDim(recipe, dims));
    return 650 * rows * rows + (backward ? 1000 : 0) * rows * (rows + phi);
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
    const std::int64_t steps = call.needs == Needs::kBoth ? recipe.optimizer.steps : 1;
    if (call.needs != Needs::kWrite) {
      operands.memory.y = steps == 1 ? outputs.y : OfRows(call, outputs.y, scratch);
    }
    fast_weights::Forward(MemoryOptions(recipe, call.dims, call.inputs), operands.memory,
                          call.executor, scratch.rest());
    if (steps == 1) return;
    CopyInto(RowOfTokens(operands.memory.y, steps, ReadingRow(recipe)), outputs.y);
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
                                    dims.tokens * recipe.optimizer.steps, dims.sequences > 0);
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
  /// Gradients of keys as memories have them, and of queries unless they are stored.
  static void StoreKeys(const MappedKeys& keys, const Tensor& by_keys, const Tensor& dq,
                        const Inputs& dinputs) {
    Tensor shared;
    if (keys.k().size(2) != by_keys.shape()[2]) {
      shared = Tensor(by_keys.view().dtype(), keys.k().shape());
      SumSharedHeads(by_keys, shared);
    }
    const TensorView dk = shared.defined() ? shared.view() : by_keys.view();
    if (!keys.plain()) return keys.Backward(dk, dq, dinputs);
    if (dinputs.k.defined()) CopyInto(dk, dinputs.k);
    if (dq.defined() && dinputs.q.defined()) CopyInto(dq, dinputs.q);
  }

  /// Answers of all rows, where only some are asked for.
  static TensorView OfRows(const EngineCall& call, const TensorView& y, CallScratch& scratch) {
    return scratch.Zeros(
        call.dtype, {y.size(0), y.size(1) * call.recipe().optimizer.steps, y.size(2), y.size(3)});
  }

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
  const Tensor by_keys(dtype, operands.memory.k.shape());
  const std::int64_t steps = recipe.optimizer.steps, reads = ReadingRow(recipe);
  Tensor dq, by_decays;
  if (!plain || steps > 1) dq = Tensor(dtype, operands.memory.q.shape());
  if (steps > 1 && tensors.dinputs.log_decay.defined()) {
    by_decays = Tensor(tensors.dinputs.log_decay.dtype(), operands.memory.log_decay.shape());
  }
  fast_weights::BackwardCall engine;
  engine.forward = operands.memory;
  engine.forward.saved = call.saved;
  engine.dy = SpreadOverRows(tensors.dy, steps, reads, scratch);
  engine.final = FastWeightsStates(recipe, tensors.dstate);
  engine.gradients = {FastWeightsOperands(recipe, tensors.dinputs),
                      FastWeightsStates(recipe, tensors.dinitial)};
  engine.gradients.features_w = engine.gradients.features_b = engine.gradients.importance = {};
  engine.gradients.k = by_gains;
  engine.gradients.erase_key = by_keys;
  engine.gradients.q = dq.defined() ? dq.view() : tensors.dinputs.q;
  if (by_decays.defined()) engine.gradients.log_decay = by_decays;
  fast_weights::Backward(MemoryOptions(recipe, call.dims, call.inputs), engine, call.executor,
                         call.scratch);

  curvature::Backward(OptionsOf(recipe), operands.gains,
                      {.w = by_gains,
                       .final_u = tensors.dstate.Get("state.u"),
                       .k = by_keys,
                       .importance = tensors.dinputs.importance,
                       .u = tensors.dinitial.Get("state.u")},
                      call.executor, call.scratch);
  if (by_decays.defined()) {
    CopyInto(RowOfTokens(by_decays, steps, 0), tensors.dinputs.log_decay);
  }
  // Rows of queries that answer; contiguous, as maps want them.
  if (steps > 1) dq = Tensor::Copy(RowOfTokens(dq, steps, reads));
  StoreKeys(operands.keys, by_keys, dq, tensors.dinputs);
}

}  // namespace

const Engine& CurvatureEngine() {
  static const Curvature engine;
  return engine;
}

}  // namespace ttr
