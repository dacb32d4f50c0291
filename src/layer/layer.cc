#include "ttr/layer.h"

#include <string>
#include <utility>

#include "src/definition/differentiate.h"
#include "src/definition/sequence.h"
#include "src/layer/check_outputs.h"
#include "src/layer/run_fast_weights.h"
#include "src/layer/run_least_squares.h"
#include "src/layer/run_scan.h"
#include "src/recipe/family.h"
#include "ttr/error.h"

namespace ttr {
namespace {

Dims Check(std::string_view op, const Requirements& requirements, const Inputs& inputs,
           const State& state, Needs needs, const TensorView& y = {}) {
  Dims dims = CheckInputs(op, requirements, inputs, needs, &state);
  if (needs == Needs::kRead && y.rank() == 4) {
    // Nothing memorized yet: only the answer tells how long a value is.
    if (state.empty()) dims.value_dim = y.size(3);
    // No queries: only the answer tells how many are asked for.
    if (!ReadsQueries(requirements.recipe)) {
      dims.batch = y.size(0);
      dims.tokens = y.size(1);
      if (state.empty())
        dims.query_heads = dims.key_heads = dims.value_heads = dims.heads = y.size(2);
      dims.key_dim = dims.value_dim;
    }
  }
  CheckRanges(op, requirements, inputs);
  CheckState(op, requirements, dims, state);
  return dims;
}

const Recipe& Valid(const Recipe& recipe) {
  Validate(recipe);
  return recipe;
}

Executor& ExecutorOf(const Run& run) { return run.executor ? *run.executor : DefaultExecutor(); }

void RequireCausal(std::string_view op, const Recipe& recipe) {
  if (recipe.reading.causal) return;
  throw Error("[" + std::string(op) +
              "] a recipe that reads the whole sequence at once (causal: false) has no memory to "
              "go on from; use Forward on the whole sequence");
}

/// The dtype of the state that a call has or will make.
DType StateType(const Inputs& inputs, const State& state) {
  const TensorView given = state.Get("state");
  if (given.defined()) return given.dtype();
  return inputs.v.dtype() == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
}

/// What is kept, if anything, has room for this call.
void CheckSaved(std::string_view op, const Layer& layer, const Dims& dims, const Inputs& inputs,
                const State& state, const Run& run) {
  if (run.saved.empty()) return;
  const std::size_t needed = layer.SavedBytes(dims, StateType(inputs, state));
  if (run.saved.size() >= needed) return;
  throw Error(op, "kept", "at least " + std::to_string(needed) + " bytes",
              std::to_string(run.saved.size()));
}

/// Only a call that writes and reads has a backward pass.
void RequireNothingSaved(std::string_view op, const Run& run) {
  if (run.saved.empty()) return;
  throw Error(op, "kept", "empty", std::to_string(run.saved.size()) + " bytes");
}

definition::Mode ModeOf(Needs needs) {
  switch (needs) {
    case Needs::kBoth: return definition::Mode::kForward;
    case Needs::kWrite: return definition::Mode::kMemorize;
    case Needs::kRead: return definition::Mode::kRetrieve;
  }
  return definition::Mode::kForward;
}

/// Runs a call that has been checked on the engine of the plan.
void RunOn(Engine engine, const Requirements& requirements, const Dims& dims, const Inputs& inputs,
           State& state, const Outputs& outputs, Needs needs, const Run& run, bool defers = false) {
  Executor& executor = ExecutorOf(run);
  for (const TensorView& report : {outputs.iterations, outputs.residual}) {
    // Few engines have any to tell of.
    if (report.defined()) CopyInto(Tensor(report.dtype(), report.shape()).view(), report);
  }
  switch (engine) {
    case Engine::kFastWeights:
      return RunFastWeights(requirements, dims, inputs, state, outputs, needs, executor, run,
                            defers);
    case Engine::kScan:
      return RunScan(requirements.recipe, dims, inputs, state, outputs, needs, executor,
                     run.scratch, run.saved);
    case Engine::kLeastSquares:
      return RunLeastSquares(requirements, dims, inputs, state, outputs, needs, executor,
                             run.scratch, defers);
    case Engine::kDefinition:
      return definition::RunSequences(ModeOf(needs), requirements.recipe, dims, inputs, state,
                                      outputs, executor);
  }
}

}  // namespace

Layer::Layer(const Recipe& recipe) : requirements_(Valid(recipe)), plan_(MakePlan(recipe)) {}

Layer::Layer(const Recipe& recipe, Engine engine) : Layer(recipe) {
  if (engine == plan_.engine) return;
  if (engine != Engine::kDefinition) {
    throw Error("Layer", "engine", std::string(Name(plan_.engine)) + " (" + plan_.why + ")",
                std::string(Name(engine)));
  }
  plan_.engine = engine;
  plan_.why = "asked for: the literal regression in double precision";
}

State Layer::InitialState(const Inputs& inputs) const {
  const Dims dims = Check("InitialState", requirements_, inputs, State(), Needs::kWrite);
  State state;
  definition::RunSequences(definition::Mode::kStart, recipe(), dims, inputs, state, {},
                           SequentialExecutor());
  return state;
}

void Layer::Forward(const Inputs& inputs, State& state, const Outputs& outputs,
                    const Run& run) const {
  Settle(state, run);
  const Dims dims = Check("Forward", requirements_, inputs, state, Needs::kBoth);
  CheckOutputs("Forward", dims, inputs, state, outputs);
  CheckSaved("Forward", *this, dims, inputs, state, run);
  RunOn(plan_.engine, requirements_, dims, inputs, state, outputs, Needs::kBoth, run);
}

void Layer::Step(const Inputs& inputs, State& state, const Outputs& outputs, const Run& run) const {
  RequireCausal("Step", recipe());
  const std::int64_t tokens = inputs.v.defined() && inputs.v.rank() == 4 ? inputs.v.size(1) : 0;
  const Optimizer& optimizer = recipe().optimizer;
  const std::int64_t rows = optimizer.solver == Solver::kSgd ? optimizer.steps : 1;
  if (tokens != rows) {
    throw Error("Step", "v", "one token (T = " + std::to_string(rows) + ")",
                "T = " + std::to_string(tokens));
  }
  if (!run.defers || !Defers()) {
    Forward(inputs, state, outputs, run);
    return;
  }
  const auto settler =
      plan_.engine == Engine::kFastWeights ? SettleFastWeights : SettleLeastSquares;
  if (state.settler_ != settler) {
    Settle(state, run);
    if (plan_.engine == Engine::kFastWeights) state.companion_ = Tensor();  // none of this engine's
  }
  // Who goes ahead sees the tensors that are behind.
  struct Opened {
    explicit Opened(State& s) : state(s), settler(std::exchange(s.settler_, nullptr)) {}
    ~Opened() { state.settler_ = settler; }
    State& state;
    decltype(State::settler_) settler;
  };
  {
    Opened opened(state);
    if (plan_.engine == Engine::kFastWeights || LeastSquaresDefersFrom(state)) {
      const Dims dims = Check("Step", requirements_, inputs, state, Needs::kBoth);
      CheckOutputs("Step", dims, inputs, state, outputs);
      CheckSaved("Step", *this, dims, inputs, state, run);
      RunOn(plan_.engine, requirements_, dims, inputs, state, outputs, Needs::kBoth, run, true);
      opened.settler = settler;
      return;
    }
  }
  Forward(inputs, state, outputs, run);
}

bool Layer::HasBFloat16Products() const {
  return plan_.engine == Engine::kFastWeights && FastWeightsHasBf16Products(recipe());
}

bool Layer::Defers() const {
  switch (plan_.engine) {
    case Engine::kFastWeights: return FastWeightsDefers(recipe());
    case Engine::kLeastSquares: return LeastSquaresDefers(recipe());
    case Engine::kScan:
    case Engine::kDefinition: break;
  }
  return false;
}

void Layer::Settle(State& state, const Run& run) {
  if (!state.behind()) return;
  const auto settle = std::exchange(state.settler_, nullptr);
  try {
    settle(state, ExecutorOf(run));
  } catch (...) {  // no memory: what is not written is still behind
    state.settler_ = settle;
    throw;
  }
  state.companion_ = Tensor();
}

void Layer::Memorize(const Inputs& inputs, State& state, const Run& run) const {
  RequireCausal("Memorize", recipe());
  Settle(state, run);
  const Dims dims = Check("Memorize", requirements_, inputs, state, Needs::kWrite);
  RequireNothingSaved("Memorize", run);
  RunOn(plan_.engine, requirements_, dims, inputs, state, {}, Needs::kWrite, run);
}

void Layer::Retrieve(const Inputs& inputs, const State& state, const Outputs& outputs,
                     const Run& run) const {
  RequireCausal("Retrieve", recipe());
  const Dims dims = Check("Retrieve", requirements_, inputs, state, Needs::kRead, outputs.y);
  CheckOutputs("Retrieve", dims, inputs, state, outputs);
  RequireNothingSaved("Retrieve", run);
  // Reading changes nothing: a state without entries stays without.
  State start;
  auto& read = state.empty() ? start : const_cast<State&>(state);
  RunOn(plan_.engine, requirements_, dims, inputs, read, outputs, Needs::kRead, run);
}

void Layer::Backward(const Inputs& inputs, const State& initial, const TensorView& dy,
                     const State& dstate, const Inputs& dinputs, State& dinitial,
                     const Run& run) const {
  const Dims dims = Check("Backward", requirements_, inputs, initial, Needs::kBoth);
  CheckGradients("Backward", dims, inputs, dy, dinputs);
  CheckSaved("Backward", *this, dims, inputs, initial, run);
  Executor& executor = ExecutorOf(run);
  switch (plan_.engine) {
    case Engine::kScan:
      return DifferentiateScan(recipe(), dims, inputs, initial, dy, dstate, dinputs, dinitial,
                               executor, run.scratch, run.saved);
    case Engine::kFastWeights:
      return DifferentiateFastWeights(requirements_, dims, inputs, initial, dy, dstate, dinputs,
                                      dinitial, executor, run.scratch, run.saved);
    case Engine::kLeastSquares:
      return DifferentiateLeastSquares(requirements_, dims, inputs, initial, dy, dstate, dinputs,
                                       dinitial, executor, run.scratch);
    case Engine::kDefinition: break;
  }
  definition::Differentiate(recipe(), dims, inputs, initial, dy, dstate, dinputs, dinitial,
                            executor);
}

std::size_t Layer::BackwardScratchBytes(const Dims& dims, int threads) const {
  switch (plan_.engine) {
    case Engine::kFastWeights: return FastWeightsGradientScratchBytes(recipe(), dims, threads);
    case Engine::kLeastSquares: return LeastSquaresGradientScratchBytes(recipe(), dims, threads);
    case Engine::kScan: return ScanGradientScratchBytes(recipe(), dims, threads);
    case Engine::kDefinition: break;
  }
  return 0;
}

std::size_t Layer::SavedBytes(const Dims& dims, DType state) const {
  switch (plan_.engine) {
    case Engine::kFastWeights: return FastWeightsSavedBytes(recipe(), dims, state);
    case Engine::kScan: return ScanSavedBytes(recipe(), dims, state);
    case Engine::kLeastSquares:
    case Engine::kDefinition: break;
  }
  return 0;
}

std::size_t Layer::ScratchBytes(const Dims& dims, int threads) const {
  switch (plan_.engine) {
    case Engine::kFastWeights: return FastWeightsScratchBytes(recipe(), dims, threads);
    case Engine::kScan: return ScanScratchBytes(recipe(), dims, threads);
    case Engine::kLeastSquares: return LeastSquaresScratchBytes(recipe(), dims, threads);
    case Engine::kDefinition: break;
  }
  return 0;
}

}  // namespace ttr
