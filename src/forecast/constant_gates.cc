#include "src/forecast/constant_gates.h"

#include <cmath>
#include <optional>
#include <string>

#include "src/recipe/text.h"
#include "ttr/error.h"

namespace ttr::forecasting {
namespace {

void CheckConstants(const GateConstants& constants) {
  const auto check = [](const char* name, double value, bool holds, const char* required) {
    if (!holds) throw Error("gates", name, required, FormatNumber(value));
  };
  // Written so that NaN fails.
  check("step", constants.step, constants.step >= 0 && std::isfinite(constants.step), "0 or more");
  check("decay", constants.decay, constants.decay > 0 && constants.decay <= 1,
        "above 0 and at most 1");
  check("momentum", constants.momentum, constants.momentum >= 0 && constants.momentum < 1,
        "0 or more and below 1");
  check("weight decay", constants.weight_decay,
        constants.weight_decay >= 0 && constants.weight_decay <= 1, "from 0 to 1");
}

std::optional<double> ValueOf(const InputSpec& spec, const GateConstants& constants) {
  if (spec.name == "step") return constants.step;
  if (spec.name == "log_decay" || spec.name == "a") return std::log(constants.decay);
  if (spec.name == "momentum") return constants.momentum;
  if (spec.name == "weight_decay") return constants.weight_decay;
  return spec.neutral;
}

}  // namespace

std::vector<ConstantGate> ConstantInputs(const Recipe& recipe, const GateConstants& constants) {
  CheckConstants(constants);
  if (!recipe.reading.causal) {
    throw Error(
        "[gates] a recipe that reads the whole sequence at once (causal: false) would see "
        "what it is to predict");
  }
  if (recipe.optimizer.solver == Solver::kSgd && recipe.optimizer.steps > 1) {
    throw Error("gates", "steps", "1: a token of real input is one pair",
                std::to_string(recipe.optimizer.steps));
  }
  if (recipe.optimizer.eta_kind == EtaKind::kInput) {
    throw Error("gates", "eta_kind", "constant or relative, as nothing gives each step its size",
                "input");
  }
  std::vector<ConstantGate> gates;
  bool reads_queries = false;
  for (const InputSpec& spec : InputSpecs(recipe)) {
    reads_queries = reads_queries || spec.name == "q";
    if (!spec.required || spec.name == "q" || spec.name == "k" || spec.name == "v") continue;
    ConstantGate gate{.name = spec.name, .view = spec.view, .shape = spec.shapes.front()};
    gate.is_key = spec.name == "erase_key";
    const std::optional<double> value = ValueOf(spec, constants);
    if (!value && !gate.is_key) {
      throw Error(
          "gates", "the recipe", "one whose inputs have a constant value",
          "one that takes " + std::string(spec.name) + " (" + std::string(spec.meaning) + ")");
    }
    gate.value = value.value_or(0);
    gates.push_back(std::move(gate));
  }
  if (!reads_queries) {
    throw Error("gates", "the recipe", "one that reads with queries",
                "a gated vector, which has nothing to be asked");
  }
  return gates;
}

double ConstantDecay(const Recipe& recipe, const GateConstants& constants) {
  switch (recipe.weights.decay) {
    case Decay::kNone: return 1;
    case Decay::kConstant: return recipe.weights.decay_factor;
    case Decay::kRetention: return 1 - 1. / 32;
    case Decay::kScalar:
    case Decay::kChannel:
    case Decay::kMatrix: return constants.decay;
  }
  return 1;
}

}  // namespace ttr::forecasting
