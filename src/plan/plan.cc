#include "ttr/plan.h"

#include "src/adapters/registry.h"
#include "src/recipe/family.h"

namespace ttr {
namespace {

/// Numbers of one memory.
double StateNumbers(const Recipe& recipe, const Dims& dims) {
  const std::int64_t window = recipe.weights.window;
  const bool bounded = window > 0 && window < dims.tokens;
  const std::int64_t pairs = bounded ? window : dims.tokens;
  double sum = 0;
  for (const StateSpec& spec : StateSpecs(recipe)) {
    double size = 1;
    for (const Axis axis : spec.shape) {
      if (axis == Axis::kStates || axis == Axis::kHeads) continue;
      size *= static_cast<double>(SizeOf(axis, recipe, dims, pairs));
    }
    sum += size;
  }
  return sum;
}

constexpr const char* kByDefinition =
    "): the definition runs it in double precision, right but slow";

}  // namespace

std::vector<std::string_view> Engines() {
  std::vector<std::string_view> names;
  for (const Engine* engine : AllEngines()) names.push_back(engine->name());
  return names;
}

Plan MakePlan(const Recipe& recipe) {
  const Engine& engine = CoveringEngine(recipe);
  const bool exact = recipe.optimizer.solver == Solver::kExact;
  if (const char* const obstacle = engine.Obstacle(recipe); obstacle != nullptr) {
    return {kDefinition, exact,
            "no fast engine takes it yet (" + std::string(obstacle) + kByDefinition};
  }
  return {engine.name(), exact, std::string(engine.How(recipe))};
}

Plan MakePlan(const Recipe& recipe, const Dims& dims) {
  Plan plan = MakePlan(recipe);
  const Engine* const engine = FindEngine(plan.engine);
  if (const char* const obstacle = engine->SizeObstacle(recipe, dims); obstacle != nullptr) {
    plan.engine = kDefinition;
    plan.why = "no fast engine takes these sizes (" + std::string(obstacle) + kByDefinition;
  }
  return plan;
}

Cost EstimateCost(const Recipe& recipe, const Plan& plan, const Dims& dims) {
  CheckDims("EstimateCost", dims);
  const Engine* const engine = FindEngine(plan.engine);
  const double bytes = engine != nullptr ? engine->NumberBytes() : 8;
  Cost cost;
  cost.flops_per_token = CoveringEngine(recipe).FlopsPerToken(recipe, dims);
  cost.state_bytes = bytes * StateNumbers(recipe, dims);
  const double streamed = 2 * static_cast<double>(dims.key_dim + dims.value_dim);  // q, k, v, y
  // A memory of fixed size is read and written once a token when decoding; kept pairs are read.
  cost.bytes_per_token = bytes * streamed + (KeepsPairs(recipe) ? 1 : 2) * cost.state_bytes;
  return cost;
}

}  // namespace ttr
