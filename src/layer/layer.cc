#include "ttr/layer.h"

#include <functional>
#include <string>
#include <utility>

#include "src/adapters/registry.h"
#include "src/definition/differentiate.h"
#include "src/definition/sequence.h"
#include "src/layer/check_writes.h"
#include "src/layer/pair_room.h"
#include "src/layer/run_call.h"
#include "src/layer/saved_memory.h"
#include "src/layer/weightless.h"
#include "src/layer/widened_call.h"
#include "src/layer/widened_state.h"
#include "src/recipe/check_sizes.h"
#include "src/recipe/family.h"
#include "src/recipe/pair_entries.h"
#include "ttr/error.h"

namespace ttr {
namespace {

const Recipe& Valid(const Recipe& recipe) {
  Validate(recipe);
  return recipe;
}

void RequireCausal(std::string_view op, const Recipe& recipe) {
  if (recipe.reading.causal) return;
  throw Error("[" + std::string(op) +
              "] a recipe that reads the whole sequence at once (causal: false) has no memory to "
              "go on from; use Forward on the whole sequence");
}

/// Is there a tensor, contiguous in its last axis?
bool HasRows(const TensorView& view) {
  const int last = view.rank() - 1;
  return view.defined() && (view.size(last) <= 1 || view.stride(last) == 1);
}

/// Runs the backward pass on tensors as an engine takes them: rows of dy; gradients of the state
/// contiguous, in the dtype of the call.
void RunBackward(const Engine& engine, const EngineCall& call, const State& initial,
                 const TensorView& dy, const State& dstate, const Inputs& dinputs,
                 State& dinitial) {
  const DType dtype = call.dtype;
  const Tensor rows = HasRows(dy) ? Tensor() : Tensor::Copy(dy);
  State final_gradient, initial_gradient;
  const std::int64_t pairs = PairCapacity(call.requirements, initial);
  for (const StateSpec& spec : call.requirements.state) {
    if (spec.counts()) continue;
    const auto fits = [&](const TensorView& view) {
      return view.defined() && view.dtype() == dtype && view.contiguous();
    };
    if (const TensorView given = dstate.Get(spec.name); fits(given)) {
      final_gradient.Bind(spec.name, given);
    } else if (given.defined()) {
      final_gradient.Set(spec.name, Tensor::Copy(given, dtype));
    }
    const TensorView wanted = dinitial.Get(spec.name);
    if (fits(wanted)) {
      initial_gradient.Bind(spec.name, wanted);
    } else {
      // Start weights of networks may be shared, and then so is their gradient.
      const TensorView start = initial.Get(spec.name);
      initial_gradient.Set(
          spec.name,
          Tensor(dtype, start.defined() ? start.shape()
                                        : StateShape(spec, call.recipe(), call.dims, pairs)));
    }
  }
  engine.Backward(call, initial,
                  {HasRows(dy) ? dy : rows.view(), final_gradient, dinputs, initial_gradient});
  for (const State::Entry& entry : initial_gradient.entries()) {
    const TensorView wanted = dinitial.Get(entry.name);
    if (!wanted.defined()) {
      const TensorView start = initial.Get(entry.name);
      const bool wide =
          start.defined() ? start.dtype() == DType::kFloat64 : dtype == DType::kFloat64;
      dinitial.Set(entry.name, Tensor::Copy(entry.view, wide ? DType::kFloat64 : DType::kFloat32));
    } else if (entry.owned.defined()) {
      CopyInto(entry.view, wanted);
    }
  }
}

}  // namespace

Layer::Layer(const Recipe& recipe)
    : requirements_(Valid(recipe)),
      plan_(MakePlan(recipe)),
      engine_(FindEngine(plan_.engine)),
      recipe_hash_(std::hash<std::string>()(ToString(recipe))),
      prepared_(std::make_shared<Prepared>(recipe)) {}

Layer::Layer(std::string_view text) : Layer(ParseRecipe(text)) {}

Layer::Layer(const Recipe& recipe, std::string_view engine) : Layer(recipe) {
  if (engine == plan_.engine) return;
  if (engine != kDefinition) {
    throw Error("Layer", "engine",
                std::string(plan_.engine) + " (" + plan_.why + ") or " + std::string(kDefinition),
                "'" + std::string(engine) + "'");
  }
  plan_.engine = kDefinition;
  plan_.why = "asked for: the literal regression in double precision";
  engine_ = &DefinitionEngine();
}

State Layer::InitialState(const Inputs& inputs) const {
  const std::string_view op = "InitialState";
  const Dims dims = CheckCall(op, requirements_, inputs, State(), Needs::kWrite);
  CheckFits(op, requirements_, dims, {}, nullptr);
  State state;
  definition::RunSequences(definition::Mode::kStart, {recipe(), dims, inputs}, state, {},
                           SequentialExecutor());
  return state;
}

void Layer::Forward(const Inputs& inputs, State& state, const Outputs& outputs,
                    const CallOptions& options) const {
  RunCall({"Forward", requirements_, *engine_, recipe_hash_, *prepared_}, inputs, state, outputs,
          options);
}

State Layer::StartIn(const State& final, const State& initial, const Inputs& inputs) const {
  const bool complete = initial.entries().size() == requirements_.state.size();
  const State start = complete ? State() : InitialState(inputs);
  State result;
  for (const StateSpec& spec : requirements_.state) {
    const TensorView given = initial.Get(spec.name);
    const TensorView from = given.defined() ? given : start.Get(spec.name);
    if (!from.defined()) continue;
    const TensorView to = final.Get(spec.name);
    if (to.defined() && to.shape() == from.shape() && to.dtype() == from.dtype()) {
      if (to.data() != from.data()) CopyInto(from, to);
      result.Bind(spec.name, to);
    } else {
      result.Set(spec.name, Tensor::Copy(from));
    }
  }
  return result;
}

void Layer::Forward(const Inputs& inputs, const State& initial, State& final,
                    const Outputs& outputs, const CallOptions& options) const {
  const std::string_view op = "Forward";
  const Dims dims = CheckCall(op, requirements_, inputs, initial, Needs::kBoth);
  const Engine& engine = EngineFor(*engine_, recipe(), dims);
  CheckFits(op, requirements_, dims, initial, &engine);
  CheckState(op, requirements_, dims, final);
  CheckOutputs(op, dims, inputs, {final, &initial}, outputs, options, Needs::kBoth);
  CheckSaved(op, options, SavedBytesOf(engine, recipe(), dims, ArithmeticType(inputs, initial)));
  // The state is left in the entries of `final`, where they have room.
  State result = KeepsPairs(recipe()) ? PairsFor(op, requirements_, dims, inputs, initial, final)
                                      : StartIn(final, initial, inputs);
  RunChecked({op, requirements_, *engine_, recipe_hash_, *prepared_}, dims, inputs, result, outputs,
             options);
  for (const State::Entry& entry : result.entries()) {
    if (!entry.owned.defined()) continue;
    const TensorView to = final.Get(entry.name);
    if (to.defined() && to.shape() == entry.view.shape()) {
      CopyInto(entry.view, to);
    } else {
      final.Set(entry.name, Tensor::Copy(entry.view));
    }
  }
}

void Layer::Step(const Inputs& inputs, State& state, const Outputs& outputs,
                 const CallOptions& options) const {
  RequireCausal("Step", recipe());
  RequireOneToken("Step", recipe(), inputs);
  RunCall({"Step", requirements_, *engine_, recipe_hash_, *prepared_}, inputs, state, outputs,
          options);
}

void Layer::Memorize(const Inputs& inputs, State& state, const CallOptions& options) const {
  RequireCausal("Memorize", recipe());
  RunCall({"Memorize", requirements_, *engine_, recipe_hash_, *prepared_, Needs::kWrite}, inputs,
          state, {}, options);
}

void Layer::Retrieve(const Inputs& inputs, const State& state, const Outputs& outputs,
                     const CallOptions& options) const {
  RequireCausal("Retrieve", recipe());
  State read = state.Shared();  // what an engine adds is not the caller's
  RunCall({"Retrieve", requirements_, *engine_, recipe_hash_, *prepared_, Needs::kRead}, inputs,
          read, outputs, options);
}

void Layer::Backward(const Inputs& inputs, const State& initial, const TensorView& dy,
                     const State& dstate, const Inputs& dinputs, State& dinitial,
                     const CallOptions& options) const {
  const std::string_view op = "Backward";
  const Dims dims = CheckCall(op, requirements_, inputs, initial, Needs::kBoth);
  if (IsRounded(requirements_, initial)) {
    throw Error(op, "state", "float32 or float64, as its gradient",
                Name(initial.Get("state").dtype()));
  }
  const Engine& engine = EngineFor(*engine_, recipe(), dims);
  CheckFits(op, requirements_, dims, initial, &engine, true);
  CheckGradients(op, requirements_, dims, inputs, initial, {dy, dstate, dinputs, dinitial},
                 options);
  CheckPairGradients(op, requirements_, dims, inputs, initial, dstate);
  WidenedTensors wide;
  const Inputs given = WidenedInputs(inputs, wide, false);
  const Inputs gradients = WidenedInputs(dinputs, wide, true);
  const TensorView rows = wide.Read(dy);
  const DType dtype = ArithmeticType(given, initial);
  std::span<std::byte> saved = CheckSaved(op, options, SavedBytesOf(engine, recipe(), dims, dtype));
  if (!saved.empty()) saved = RequireHeader(op, {recipe_hash_, dims, given, dtype}, saved);
  WithoutWeightless taken(requirements_, dims, engine.HasGradients() ? given : Inputs());
  const Inputs wanted = taken.GradientsFor(gradients);
  const EngineCall call{.requirements = requirements_,
                        .dims = dims,
                        .inputs = taken.changed() ? taken.inputs() : given,
                        .needs = Needs::kBoth,
                        .dtype = dtype,
                        .prepared = *prepared_,
                        .executor = ExecutorOf(options),
                        // Rows of their own for all memories may need more than the caller has.
                        .scratch = taken.changed() ? std::span<std::byte>() : options.scratch,
                        .saved = saved};
  if (engine.HasGradients()) {
    RunBackward(engine, call, initial, rows, dstate, wanted, dinitial);
  } else {
    definition::Differentiate(recipe(), dims, given, initial, {rows, dstate, gradients, dinitial},
                              call.executor);
  }
  taken.Gather();
  wide.WriteBack();
}

bool Layer::HasGradients() const { return engine_->HasGradients(); }

bool Layer::HasGradients(const Dims& dims) const {
  return EngineFor(*engine_, recipe(), dims).HasGradients();
}

bool Layer::HasBFloat16Products() const { return engine_->HasBFloat16Products(recipe()); }

std::size_t Layer::ScratchBytes(const Dims& dims, int threads) const {
  CheckSizes("ScratchBytes", recipe(), dims);
  return EngineFor(*engine_, recipe(), dims).ScratchBytes(recipe(), dims, std::max(threads, 1));
}

std::size_t Layer::BackwardScratchBytes(const Dims& dims, int threads) const {
  CheckSizes("BackwardScratchBytes", recipe(), dims);
  return EngineFor(*engine_, recipe(), dims)
      .BackwardScratchBytes(recipe(), dims, std::max(threads, 1));
}

std::size_t Layer::SavedBytes(const Dims& dims, DType state) const {
  CheckSizes("SavedBytes", recipe(), dims);
  if (!IsFloating(state)) {
    throw Error("SavedBytes", "state", "float32, float64, bfloat16 or float16", Name(state));
  }
  const DType dtype = state == DType::kFloat64 ? state : DType::kFloat32;
  return SavedBytesOf(EngineFor(*engine_, recipe(), dims), recipe(), dims, dtype);
}

}  // namespace ttr
