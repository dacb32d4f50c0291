#include "src/layer/run_fast_weights.h"

#include <algorithm>
#include <array>
#include <vector>

#include "src/engines/fast_weights/backward.h"
#include "src/layer/fast_weights_words.h"

namespace ttr {
namespace {

/// A second state of another dtype than the first is worked on in a copy: arithmetic is of one
/// type.
class Second {
 public:
  Second(const TensorView& home, DType dtype) : home_(home) {
    if (home.defined() && home.dtype() != dtype) copy_ = Tensor::Copy(home, dtype);
  }
  TensorView view() const { return copy_.defined() ? copy_.view() : home_; }
  void Return() const {
    if (copy_.defined()) CopyInto(copy_.view(), home_);
  }

 private:
  TensorView home_;
  Tensor copy_;
};

bool IsWide(const Inputs& inputs) {
  const TensorView& typed = inputs.v.defined() ? inputs.v : inputs.q;
  return typed.dtype() == DType::kFloat64;
}

/// Are all rows that are given?
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
  sizes.state = state;
  return sizes;
}

/// The engine's gradient of a parameter: contiguous, of the state's dtype, and then the caller's.
class ParameterGradient {
 public:
  ParameterGradient(const TensorView& wanted, DType dtype) : wanted_(wanted) {
    if (wanted.defined()) sum_ = Tensor(dtype, wanted.shape());
  }
  TensorView view() const { return sum_.defined() ? sum_.view() : TensorView(); }
  void Return() const {
    if (sum_.defined()) CopyInto(sum_.view(), wanted_);
  }

 private:
  TensorView wanted_;
  Tensor sum_;
};

/// What the engine keeps of a recipe from which no state goes on: not causal, the same as if it
/// were, but for a position.
std::vector<StateSpec> MemoriesOf(Recipe recipe) {
  recipe.reading.causal = true;
  std::vector<StateSpec> specs = StateSpecs(recipe);
  std::erase_if(specs, [](const StateSpec& spec) { return spec.name == "state.position"; });
  return specs;
}

/// The state of a call, complete: the caller's, or where the recipe is not causal one of its own.
State& Complete(const Requirements& requirements, const Dims& dims, const Inputs& inputs,
                State& given, State& own) {
  const Recipe& recipe = requirements.recipe;
  const bool wide = IsWide(inputs);
  if (recipe.reading.causal) {
    MakeMissing(recipe, requirements.state, dims, wide, given);
    return given;
  }
  MakeMissing(recipe, MemoriesOf(recipe), dims, wide, own);
  return own;
}

}  // namespace

void RunFastWeights(const Requirements& requirements, const Dims& dims, const Inputs& inputs,
                    State& state, const Outputs& outputs, Needs needs, Executor& executor,
                    const Run& run, bool defers) {
  const Recipe& recipe = requirements.recipe;
  State own;
  FastWeightsCall words(recipe, dims, inputs, Complete(requirements, dims, inputs, state, own),
                        needs);
  fast_weights::Call& call = words.call;
  const Second second(call.second, call.state.dtype());
  call.second = second.view();
  call.saved = run.saved;
  call.bf16_products = run.bfloat16_products && run.saved.empty() && AreBFloat16(inputs);
  if (defers) {
    const std::int64_t numbers =
        fast_weights::DeferredNumbers(SizesOf(recipe, dims, call.state.dtype()));
    call.deferred = state.Companion(call.state.dtype(), {dims.states(), dims.heads, numbers});
  }
  if (needs != Needs::kWrite) {
    call.y = outputs.y;
    if (outputs.status.defined()) {
      CopyInto(Tensor(DType::kInt8, outputs.status.shape()).view(), outputs.status);  // all solved
      call.status = outputs.status;
    }
  }
  fast_weights::Forward(FastWeightsOptions(recipe, dims, inputs), call, executor, run.scratch);
  if (needs != Needs::kRead) second.Return();
}

bool FastWeightsHasBf16Products(const Recipe& recipe) {
  return fast_weights::HasBf16Products(FastWeightsOptions(recipe, Dims(), {}));
}

bool FastWeightsDefers(const Recipe& recipe) {
  return FastWeightsOptions(recipe, Dims(), {}).defers();
}

void SettleFastWeights(State& state, Executor& executor) {
  fast_weights::Call call;
  call.state = state.Get("state");
  call.deferred = state.companion();
  fast_weights::Flush(call, executor);
}

std::size_t FastWeightsSavedBytes(const Recipe& recipe, const Dims& dims, DType state) {
  return fast_weights::SavedBytes(FastWeightsOptions(recipe, dims, {}),
                                  SizesOf(recipe, dims, state), dims.heads, dims.states(),
                                  dims.tokens, dims.sequences > 0);
}

std::size_t FastWeightsScratchBytes(const Recipe& recipe, const Dims& dims, int threads) {
  const fast_weights::Options options = FastWeightsOptions(recipe, dims, {});
  // The dtype is not part of the sizes; small memories of float32 are padded more. Nor is what the
  // call asks for.
  fast_weights::Sizes narrow = SizesOf(recipe, dims, DType::kFloat32);
  narrow.bf16_products = true;
  return std::max(
      fast_weights::ScratchBytes(options, narrow, threads),
      fast_weights::ScratchBytes(options, SizesOf(recipe, dims, DType::kFloat64), threads));
}

void DifferentiateFastWeights(const Requirements& requirements, const Dims& dims,
                              const Inputs& inputs, const State& initial, const TensorView& dy,
                              const State& dstate, const Inputs& dinputs, State& dinitial,
                              Executor& executor, std::span<std::byte> scratch,
                              std::span<std::byte> saved) {
  const Recipe& recipe = requirements.recipe;
  State given = initial, own;
  const State& start = Complete(requirements, dims, inputs, given, own);
  for (const StateSpec& spec : requirements.state) {
    if (dinitial.Get(spec.name).defined()) continue;
    const TensorView from = start.Get(spec.name);
    dinitial.Set(spec.name, Tensor(from.dtype(), from.shape()));
  }
  const FastWeightsCall words(recipe, dims, inputs, start, Needs::kBoth);
  const DType dtype = words.call.state.dtype();
  const Second second(words.call.second, dtype);
  const ParameterGradient features_w(dinputs.features_w, dtype);
  const ParameterGradient features_b(dinputs.features_b, dtype);

  fast_weights::BackwardCall call;
  call.forward = words.call;
  call.forward.second = second.view();
  call.forward.saved = saved;
  call.dy = dy;
  call.final = FastWeightsStates(recipe, dstate);
  call.gradients = {FastWeightsOperands(recipe, dinputs), FastWeightsStates(recipe, dinitial)};
  call.gradients.features_w = features_w.view();
  call.gradients.features_b = features_b.view();
  fast_weights::Backward(FastWeightsOptions(recipe, dims, inputs), call, executor, scratch);
  features_w.Return();
  features_b.Return();
}

std::size_t FastWeightsGradientScratchBytes(const Recipe& recipe, const Dims& dims, int threads) {
  const fast_weights::Options options = FastWeightsOptions(recipe, dims, {});
  return std::max(
      fast_weights::BackwardScratchBytes(options, SizesOf(recipe, dims, DType::kFloat32), threads),
      fast_weights::BackwardScratchBytes(options, SizesOf(recipe, dims, DType::kFloat64), threads));
}

}  // namespace ttr
