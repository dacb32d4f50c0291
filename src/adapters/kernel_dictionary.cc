// From a recipe to the options of kernel regression in the span of a dictionary.

#include "src/engines/kernel_dictionary/kernel_dictionary.h"

#include <algorithm>

#include "src/adapters/output_norm.h"
#include "src/adapters/pair_options.h"
#include "src/adapters/registry.h"
#include "src/core/working_copy.h"
#include "src/recipe/family.h"

namespace ttr {
namespace {

kernel_dictionary::Options OptionsOf(const Recipe& recipe, const Dims& dims) {
  kernel_dictionary::Options options{QueryOptionsOf(recipe, dims)};
  options.ridge = recipe.optimizer.ridge;
  options.budget = recipe.optimizer.budget;
  options.tolerance = recipe.optimizer.tolerance;
  return options;
}

kernel_dictionary::Call CallOf(const EngineCall& from, const State& state) {
  kernel_dictionary::Call call{QueriedTensorsOf(from, state)};
  call.heads = from.dims.heads;
  call.ridge = from.inputs.ridge;
  call.e = state.Get("state");
  call.r = state.Get("state.r");
  call.keys = state.Get("state.keys");
  call.l = state.Get("state.l");
  call.count = state.Get("state.count");
  return call;
}

class KernelDictionary final : public Engine {
 public:
  std::string_view name() const override { return "kernel_dictionary"; }

  bool Covers(const Recipe& recipe) const override { return HasBudget(recipe); }
  std::string_view How(const Recipe&) const override {
    return "coordinates of every key in the span of few, and a triangular root of their Gram "
           "matrix that rotations keep: bounded memory, in double precision, SIMD";
  }
  double FlopsPerToken(const Recipe& recipe, const Dims& dims) const override {
    const auto n = static_cast<double>(std::min(recipe.optimizer.budget, dims.tokens));
    const auto dk = static_cast<double>(dims.key_dim), dv = static_cast<double>(dims.value_dim);
    const double queries = QueriesOfMemory(dims);
    return n * (2 * dk + n) + n * (3 * n + 6 * dv) + queries * 2 * n * (dk + n + dv);
  }
  double WorkBytes(const Recipe& recipe, const Dims& dims, std::int64_t, bool) const override {
    const auto n = static_cast<double>(recipe.optimizer.budget);
    return 8 * n * (2 * n + static_cast<double>(dims.key_dim + dims.value_dim));
  }

  void Forward(const EngineCall& call, State& state, const Outputs& outputs) const override {
    const Recipe& recipe = call.recipe();
    if (call.needs != Needs::kRead) {
      AddMissing(recipe, call.requirements.state, call.dims, call.dtype, state);
    }
    kernel_dictionary::Call operands = CallOf(call, state);
    CallScratch scratch(
        name(), call.scratch,
        OutputsBeforeNorm::ScratchBytes(recipe, call.dims, call.executor.threads()));
    const OutputsBeforeNorm before(recipe, outputs.y, DType::kFloat64, scratch);
    operands.y = before.y();
    kernel_dictionary::Forward(OptionsOf(recipe, call.dims), operands, call.executor,
                               scratch.rest());
    before.Normalise(call.executor);
  }

  std::size_t ScratchBytes(const Recipe& recipe, const Dims& dims, int threads) const override {
    return OutputsBeforeNorm::ScratchBytes(recipe, dims, threads) +
           kernel_dictionary::ScratchBytes({recipe.optimizer.budget, dims.key_dim, dims.value_dim},
                                           threads);
  }
};

}  // namespace

const Engine& KernelDictionaryEngine() {
  static const KernelDictionary engine;
  return engine;
}

}  // namespace ttr
