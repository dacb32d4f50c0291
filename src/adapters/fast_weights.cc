// From a recipe to the options of the fast-weights engine.

#include <algorithm>
#include <array>
#include <vector>

#include "src/adapters/fast_weights_options.h"
#include "src/adapters/registry.h"
#include "src/core/call_scratch.h"
#include "src/core/fill.h"
#include "src/core/working_copy.h"
#include "src/engines/fast_weights/backward.h"
#include "src/recipe/family.h"
#include "src/simd/caches.h"

namespace ttr {
namespace {

/// Are all rows that are given bfloat16?
bool AreBFloat16(const Inputs& inputs) {
  return std::ranges::all_of(std::array{inputs.q, inputs.k, inputs.v}, [](const TensorView& rows) {
    return !rows.defined() || rows.dtype() == DType::kBFloat16;
  });
}

fast_weights::Sizes SizesOf(const Recipe& recipe, const Dims& dims, DType state) {
  fast_weights::Sizes sizes;
  sizes.tokens = dims.tokens;
  sizes.input_dim = dims.key_dim;
  sizes.key_dim = PhiDim(recipe, dims);
  sizes.value_dim = dims.value_dim;
  sizes.queries = std::max<std::int64_t>(1, dims.query_heads / dims.heads);
  sizes.state = WideOf(state);
  sizes.rounded = IsNarrow(state);
  return sizes;
}

/// The state of a call, complete: the caller's, or where the recipe is not causal one that begins
/// with the call and ends with it.
fast_weights::StateOperands<TensorView> StatesOf(const EngineCall& call, State& state,
                                                 CallScratch& scratch) {
  const Recipe& recipe = call.recipe();
  if (recipe.reading.causal) {
    AddMissing(recipe, call.requirements.state, call.dims, call.dtype, state);
    return FastWeightsStates(recipe, state);
  }
  return FastWeightsStates(recipe, [&](std::string_view name) {
    const auto& specs = call.prepared.memory();
    const auto spec = std::ranges::find(specs, name, &StateSpec::name);
    if (spec == specs.end() || spec->counts()) return TensorView();
    const TensorView entry = scratch.Zeros(call.dtype, StateShape(*spec, recipe, call.dims));
    if (StartOf(*spec) != 0) Fill(entry, StartOf(*spec));
    return entry;
  });
}

/// Bytes of scratch beside the engine's: parameters of maps in another dtype, a position as a
/// number of the engine's, and what StatesOf() takes. `memory` as Prepared has it.
std::size_t OwnBytes(const std::vector<StateSpec>& memory, const Recipe& recipe, const Dims& dims) {
  const auto bytes = [](const Shape& shape) { return CallScratch::Bytes(DType::kFloat64, shape); };
  std::size_t all =
      bytes({dims.heads, dims.features, dims.key_dim}) + bytes({dims.heads, dims.features});
  for (const StateSpec& spec : memory) {
    if (spec.counts() || !recipe.reading.causal) all += bytes(StateShape(spec, recipe, dims));
  }
  return all;
}

/// The most bytes that either dtype of the state needs, as the sizes of a call do not say which it
/// is.
template <class BytesOf>
std::size_t MostBytes(const Recipe& recipe, const Dims& dims, const BytesOf& bytes_of) {
  return std::max(bytes_of(SizesOf(recipe, dims, DType::kFloat32)),
                  bytes_of(SizesOf(recipe, dims, DType::kFloat64)));
}

class FastWeights final : public Engine {
 public:
  std::string_view name() const override { return "fast_weights"; }

  bool Covers(const Recipe& recipe) const override {
    const Family family = FamilyOf(recipe);
    return family == Family::kSgd ||
           (family == Family::kHebbian && recipe.weights.decay != Decay::kMatrix);
  }
  const char* Obstacle(const Recipe& recipe) const override;
  std::string_view How(const Recipe&) const override {
    return "a linear memory written by rank-one steps: in chunks, SIMD";
  }
  double FlopsPerToken(const Recipe& recipe, const Dims& dims) const override {
    const double memory =
        static_cast<double>(PhiDim(recipe, dims)) * static_cast<double>(dims.value_dim);
    if (FamilyOf(recipe) == Family::kHebbian) return 4 * memory;
    return 2 * memory + 4 * memory * static_cast<double>(recipe.optimizer.steps);
  }

  void Forward(const EngineCall& call, State& state, const Outputs& outputs) const override {
    const Recipe& recipe = call.recipe();
    // ScratchBytes() does not count what pairs need that wait.
    const bool counted = call.pendency == nullptr || !call.pendency->asked();
    CallScratch scratch(name(), counted ? call.scratch : std::span<std::byte>(),
                        OwnBytes(call.prepared.memory(), recipe, call.dims));
    fast_weights::Call engine =
        FastWeightsCall(call, StatesOf(call, state, scratch), call.needs, scratch);
    const WorkingCopy second(engine.second, engine.state.dtype(), scratch);
    const WorkingCopy position(engine.position, DType::kFloat64, scratch);
    engine.second = second.view();
    engine.position = position.view();
    engine.saved = call.saved;
    engine.bf16_products = call.bfloat16_products && call.saved.empty() &&
                           HasBFloat16Products(recipe) && AreBFloat16(call.inputs);
    if (call.pendency != nullptr) PointToWaiting(recipe, call.auxiliary, *call.pendency, engine);
    if (call.needs != Needs::kWrite) {
      engine.y = outputs.y;
      engine.status = outputs.status;
    }
    fast_weights::Forward(FastWeightsOptions(recipe, call.dims, call.inputs), engine, call.executor,
                          scratch.rest());
    if (call.needs == Needs::kRead) return;
    second.WriteBack();
    position.WriteBack();
  }

  std::size_t ScratchBytes(const Recipe& recipe, const Dims& dims, int threads) const override {
    const fast_weights::Options options = FastWeightsOptions(recipe, dims, {});
    const std::size_t own = OwnBytes(Prepared(recipe).memory(), recipe, dims);
    return own + MostBytes(recipe, dims, [&](fast_weights::Sizes sizes) {
             // Whatever the call asks for, and the system then allows.
             const std::size_t bytes = fast_weights::ScratchBytes(options, sizes, threads);
             if (sizes.state != DType::kFloat32) return bytes;
             sizes.products = simd::Bf16Products::kTiles;
             return std::max(bytes, fast_weights::ScratchBytes(options, sizes, threads));
           });
  }

  bool HasBFloat16Products(const Recipe& recipe) const override {
    return fast_weights::ProductsOfBf16(FastWeightsOptions(recipe, Dims(), {})) !=
           simd::Bf16Products::kFloat32;
  }

  std::size_t SavedBytes(const Recipe& recipe, const Dims& dims, DType state) const override {
    return fast_weights::SavedBytes(FastWeightsOptions(recipe, dims, {}),
                                    SizesOf(recipe, dims, state), dims.heads, dims.states(),
                                    dims.tokens, dims.sequences > 0);
  }

  bool HasGradients() const override { return true; }
  void Backward(const EngineCall& call, const State& initial,
                const BackwardTensors& tensors) const override;

  std::size_t BackwardScratchBytes(const Recipe& recipe, const Dims& dims,
                                   int threads) const override {
    const fast_weights::Options options = FastWeightsOptions(recipe, dims, {});
    return MostBytes(recipe, dims, [&](const fast_weights::Sizes& sizes) {
      return fast_weights::BackwardScratchBytes(options, sizes, threads);
    });
  }

  std::int64_t AuxiliaryNumbers(const Recipe& recipe, const Dims& dims, DType state,
                                const Pendency* pendency) const override {
    if (pendency == nullptr) return 0;
    if (!pendency->asked()) return fast_weights::DeferredNumbers(SizesOf(recipe, dims, state));
    return fast_weights::PendingNumbers(FastWeightsOptions(recipe, dims, {}),
                                        SizesOf(recipe, dims, state), RoomOf(recipe, *pendency));
  }

  /// A deferred write saves one of two passes over the state, and moves about 3 (Dk + Dv) numbers
  /// more. In the cache that is a gain at any size that was measured; out of main memory the passes
  /// are one anyway (the second finds the state in the first level) until a state outgrows that: at
  /// d = 64 deferring cost 10 to 20 % there, at d = 128 it won as much. Pairs that wait longer are
  /// no faster (a read takes as long as an update in place), and are for drafts.
  bool Defers(const Recipe& recipe, const Dims& dims, DType state) const override {
    if (!FastWeightsOptions(recipe, Dims(), {}).defers()) return false;
    const std::int64_t bytes =
        PhiDim(recipe, dims) * dims.value_dim * static_cast<std::int64_t>(ttr::SizeOf(state));
    const simd::Caches& caches = simd::TheCaches();
    return bytes > caches.first_level || bytes * dims.states() * dims.heads <= caches.kept_states;
  }
  /// A position is converted on its way, row by row.
  bool TakesSlots(const Recipe& recipe) const override {
    return recipe.function.features != FeatureMap::kCosformer;
  }
  bool RollsBack(const Recipe& recipe) const override {
    return FastWeightsOptions(recipe, Dims(), {}).can_pend();
  }

  void Flush(const Recipe& recipe, State& state, const TensorView& auxiliary,
             const Pendency& pendency, Executor& executor) const override {
    fast_weights::Flush(FastWeightsOptions(recipe, Dims(), {}),
                        Waiting(recipe, state, auxiliary, pendency), executor);
  }

  std::int64_t PendingTokens(const Recipe& recipe, State& state, const TensorView& auxiliary,
                             const Pendency& pendency) const override {
    return fast_weights::PendingRows(FastWeightsOptions(recipe, Dims(), {}),
                                     Waiting(recipe, state, auxiliary, pendency)) /
           RowsPerToken(recipe);
  }

  void RollBack(const Recipe& recipe, State& state, const TensorView& auxiliary,
                const Pendency& pendency, std::int64_t tokens) const override {
    fast_weights::RollBack(FastWeightsOptions(recipe, Dims(), {}),
                           Waiting(recipe, state, auxiliary, pendency),
                           tokens * RowsPerToken(recipe));
    const TensorView position = state.Get("state.position");
    if (!position.defined()) return;
    std::int64_t* const counts = position.as<std::int64_t>();
    for (std::int64_t i = 0; i < position.shape().elements(); ++i) counts[i] -= tokens;
  }

 private:
  static fast_weights::PendingRoom RoomOf(const Recipe& recipe, const Pendency& pendency) {
    const std::int64_t rows = RowsPerToken(recipe);
    // Longer, and products with keys that wait cost more than the writes that are saved.
    const std::int64_t window = pendency.window > 0 ? pendency.window : 2;
    return {.window = (window + pendency.draft) * rows,
            .kept = pendency.draft * rows,
            .rows = std::max<std::int64_t>(1, pendency.draft) * rows};
  }

  static void PointToWaiting(const Recipe& recipe, const TensorView& auxiliary,
                             const Pendency& pendency, fast_weights::Call& call) {
    (pendency.asked() ? call.pending : call.deferred) = auxiliary;
    call.room = RoomOf(recipe, pendency);
  }

  static fast_weights::Call Waiting(const Recipe& recipe, State& state, const TensorView& auxiliary,
                                    const Pendency& pendency) {
    fast_weights::Call call;
    static_cast<fast_weights::StateOperands<TensorView>&>(call) = FastWeightsStates(recipe, state);
    call.position = {};
    PointToWaiting(recipe, auxiliary, pendency, call);
    return call;
  }
};

const char* FastWeights::Obstacle(const Recipe& recipe) const {
  const Optimizer& optimizer = recipe.optimizer;
  const bool sgd = FamilyOf(recipe) == Family::kSgd;
  const bool by_channel = recipe.weights.decay == Decay::kChannel;
  const bool divides = recipe.reading.normalise_sum != NormaliseSum::kNone;
  const struct {
    bool present;
    const char* what;
  } obstacles[] = {
      {recipe.weights.decay == Decay::kMatrix, "a decay for every entry of the memory"},
      {by_channel && recipe.weights.importance == Importance::kLog,
       "logarithmic weights beside a decay for each channel"},
      {by_channel && optimizer.momentum, "momentum beside a decay for each channel"},
      {by_channel && optimizer.weight_decay != WeightDecay::kNone,
       "weight decay beside a decay for each channel"},
      {recipe.reading.bonus && sgd, "a bonus of what a memory already erases"},
      {recipe.reading.bonus && recipe.weights.importance != Importance::kNone,
       "a bonus beside importance weights"},
      {recipe.reading.bonus && divides && optimizer.eta != 1,
       "a bonus under a denominator and a step size"},
  };
  for (const auto& obstacle : obstacles) {
    if (obstacle.present) return obstacle.what;
  }
  return nullptr;
}

void FastWeights::Backward(const EngineCall& call, const State& initial,
                           const BackwardTensors& tensors) const {
  const Recipe& recipe = call.recipe();
  State start = initial.Shared();
  CallScratch scratch;
  const fast_weights::Call forward =
      FastWeightsCall(call, StatesOf(call, start, scratch), Needs::kBoth, scratch);
  const DType dtype = forward.state.dtype();
  const WorkingCopy second(forward.second, dtype, scratch);
  const WorkingCopy position(forward.position, DType::kFloat64, scratch);
  const WorkingCopy features_w = WorkingCopy::Zeros(tensors.dinputs.features_w, dtype);
  const WorkingCopy features_b = WorkingCopy::Zeros(tensors.dinputs.features_b, dtype);

  fast_weights::BackwardCall engine;
  engine.forward = forward;
  engine.forward.second = second.view();
  engine.forward.position = position.view();
  engine.forward.saved = call.saved;
  engine.dy = tensors.dy;
  engine.final = FastWeightsStates(recipe, tensors.dstate);
  engine.gradients = {FastWeightsOperands(recipe, tensors.dinputs),
                      FastWeightsStates(recipe, tensors.dinitial)};
  engine.gradients.features_w = features_w.view();
  engine.gradients.features_b = features_b.view();
  fast_weights::Backward(FastWeightsOptions(recipe, call.dims, call.inputs), engine, call.executor,
                         call.scratch);
  features_w.WriteBack();
  features_b.WriteBack();
}

}  // namespace

const Engine& FastWeightsEngine() {
  static const FastWeights engine;
  return engine;
}

}  // namespace ttr
