#include "src/layer/run_call.h"

#include <string>

#include "src/adapters/registry.h"
#include "src/core/fill.h"
#include "src/layer/check_writes.h"
#include "src/layer/pair_room.h"
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

/// Numbers that go from call to call with the pairs of a state, as many as it has room for; new
/// ones are zeros.
TensorView PairAuxiliary(const Engine& engine, const Requirements& requirements, const Dims& dims,
                         DType dtype, const State& state, Tensor& kept) {
  const std::int64_t capacity = PairCapacity(requirements, state);
  const Shape shape{dims.states(), dims.heads,
                    engine.PairAuxiliaryNumbers(requirements.recipe, dims, dtype, capacity)};
  if (shape[2] == 0) return {};
  if (!kept.defined() || !(kept.shape() == shape) || kept.dtype() != dtype) {
    kept = Tensor(dtype, shape);
  }
  return kept.view();
}

/// Does the planned engine have all that is asked for? Throws where nobody does, or where the
/// definition could not go on with what an engine keeps beside the state.
bool CheckReports(const Operator& op, const Outputs& outputs, const CallOptions& options,
                  const Auxiliary& auxiliary) {
  const Recipe& recipe = op.requirements.recipe;
  bool all = true;
  for (const ReportField& report : kReports) {
    if (!(outputs.*report.view).defined()) continue;
    if (!HasReport(recipe, report)) {
      throw Error(op.name, report.name, "absent, for " + ToString(recipe) + " has none",
                  "a tensor");
    }
    if (op.engine.HasReport(report)) continue;
    all = false;
    const bool decodes = auxiliary.numbers.defined() || auxiliary.pendency != nullptr ||
                         auxiliary.of_pairs != nullptr;
    if (decodes) {
      throw Error(op.name, report.name, "absent in a step of a pool (At(slot).Step has it)",
                  "a tensor");
    }
    if (!options.saved.empty()) {
      throw Error(op.name, report.name, "absent where a backward pass is saved for", "a tensor");
    }
  }
  return all;
}

}  // namespace

void RequireOneToken(std::string_view op, const Recipe& recipe, const Inputs& inputs) {
  const std::int64_t rows = RowsPerToken(recipe);
  const std::int64_t given = inputs.v.defined() && inputs.v.rank() == 4 ? inputs.v.size(1) : 0;
  if (given == rows) return;
  throw Error(op, "v", "one token (T = " + std::to_string(rows) + ")",
              "T = " + std::to_string(given));
}

Dims CheckCall(std::string_view op, const Requirements& requirements, const Inputs& inputs,
               const State& state, Needs needs, const TensorView& y) {
  Dims dims = InferDims(op, requirements, inputs, needs, &state);
  if (needs == Needs::kRead && y.rank() == 4) {
    // Nothing memorized yet: only the output has the length of a value.
    if (state.empty()) dims.value_dim = y.size(3);
    // No queries: only the output has the number that is asked for.
    if (!ReadsQueries(requirements.recipe)) {
      dims.batch = y.size(0);
      dims.tokens = y.size(1);
      if (state.empty())
        dims.query_heads = dims.key_heads = dims.value_heads = dims.heads = y.size(2);
      dims.key_dim = dims.value_dim;
    }
  }
  CheckCallOf(op, requirements, dims, inputs, state);
  CheckPairBias(op, requirements, dims, inputs, needs, state);
  return dims;
}

void CheckCallOf(std::string_view op, const Requirements& requirements, const Dims& dims,
                 const Inputs& inputs, const State& state) {
  Dims together = dims;  // sequences that are packed share their tokens
  together.sequences = 0;
  CheckSizes(op, requirements.recipe, together);
  CheckSequences(op, dims, inputs);
  CheckRanges(op, requirements, inputs);
  CheckState(op, requirements, dims, state);
}

void RunCall(const Operator& op, const Inputs& inputs, State& state, const Outputs& outputs,
             const CallOptions& options, const Auxiliary& auxiliary) {
  const Requirements& requirements = op.requirements;
  const Needs needs = op.needs;
  const Dims dims = CheckCall(op.name, requirements, inputs, state, needs, outputs.y);
  const Engine& engine = EngineFor(op.engine, requirements.recipe, dims);
  CheckFits(op.name, requirements, dims, state, &engine);
  CheckOutputs(op.name, dims, inputs, {state, nullptr, auxiliary.before, auxiliary.behind}, outputs,
               options, needs);
  if (!options.saved.empty() && needs != Needs::kBoth) {  // without a backward pass
    throw Error(op.name, "saved", "empty", std::to_string(options.saved.size()) + " bytes");
  }
  RunChecked(op, dims, inputs, state, outputs, options, auxiliary);
}

void RunChecked(const Operator& op, const Dims& dims, const Inputs& inputs, State& state,
                const Outputs& outputs, const CallOptions& options, const Auxiliary& auxiliary) {
  if (HasFloat16(inputs, outputs.y)) {
    WidenedTensors wide;
    const Inputs widened = WidenedInputs(inputs, wide, false);
    Outputs answers = outputs;
    answers.y = wide.Write(outputs.y);
    RunChecked(op, dims, widened, state, answers, options, auxiliary);
    return wide.WriteBack();
  }
  const Requirements& requirements = op.requirements;
  const Needs needs = op.needs;
  // Where writes wait, the engine rounds what it writes itself.
  if (auxiliary.pendency == nullptr && IsRounded(requirements, state)) {
    State wide = Widened(state, auxiliary.slots);
    Auxiliary alone = auxiliary;
    alone.slots = {};
    RunChecked(op, dims, inputs, wide, outputs, options, alone);
    if (needs != Needs::kRead) Round(wide, state, auxiliary.slots);
    return;
  }
  const Engine& engine = CheckReports(op, outputs, options, auxiliary)
                             ? EngineFor(op.engine, requirements.recipe, dims)
                             : DefinitionEngine();
  const DType dtype = ArithmeticType(inputs, state);
  std::span<std::byte> saved;
  if (!options.saved.empty()) {
    saved = CheckSaved(op.name, options, SavedBytesOf(engine, requirements.recipe, dims, dtype));
  }
  if (needs != Needs::kRead) MakePairRoom(op.name, requirements, dims, inputs, state);
  for (const ReportField& report : kReports) Fill(outputs.*report.view, 0);
  if (!saved.empty()) saved = WriteHeader({op.recipe_hash, dims, inputs, dtype}, saved);
  const bool cleans = needs != Needs::kRead && &engine != &DefinitionEngine();
  const WithoutWeightless taken(requirements, dims, cleans ? inputs : Inputs());
  engine.Forward({.requirements = requirements,
                  .dims = dims,
                  .inputs = taken.changed() ? taken.inputs() : inputs,
                  .needs = needs,
                  .dtype = dtype,
                  .prepared = op.prepared,
                  .executor = ExecutorOf(options),
                  .scratch = options.scratch,
                  .saved = saved,
                  .bfloat16_products = options.bfloat16_products,
                  .auxiliary = auxiliary.of_pairs == nullptr || needs != Needs::kBoth
                                   ? auxiliary.numbers
                                   : PairAuxiliary(engine, requirements, dims, dtype, state,
                                                   *auxiliary.of_pairs),
                  .pendency = auxiliary.pendency,
                  .slots = auxiliary.slots},
                 state, outputs);
}

}  // namespace ttr
