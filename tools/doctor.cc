// ttr doctor: what this build is, and whether its engines are right on this machine.
#include <fmt/core.h>

#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "experiments/data/random_inputs.h"
#include "experiments/report/table.h"
#include "tools/command.h"
#include "ttr/error.h"
#include "ttr/layer.h"
#include "ttr/target.h"
#include "ttr/version.h"
#include "ttr/zoo.h"

namespace ttr::tools {
namespace {

// The greatest difference that rounding may leave between an engine and the definition here: some
// hundred roundings of numbers of size 1.
constexpr double kFloatBound = 2e-5;
constexpr double kDoubleBound = 1e-12;

struct Check {
  std::string layer;
  std::string engine;
  double float_error = 0;
  double double_error = 0;
  bool passed() const { return float_error < kFloatBound && double_error < kDoubleBound; }
};

Tensor Answers(const Layer& layer, const Inputs& inputs, const Dims& dims) {
  Tensor y(DType::kFloat64, {dims.batch, dims.tokens, dims.output_heads(), dims.value_dim});
  State state;
  layer.Forward(inputs, state, {.y = y.view(), .status = {}});
  return y;
}

double Difference(const Recipe& recipe, DType dtype) {
  Dims dims;
  dims.batch = 2;
  dims.tokens = 67;  // fills no chunk
  dims.heads = dims.query_heads = dims.key_heads = dims.value_heads = 2;
  dims.key_dim = 24;
  dims.value_dim = 40;
  const experiments::RandomInputs random =
      experiments::MakeRandomInputs(recipe, dims, dtype, /*seed=*/1);
  const Tensor engine = Answers(Layer(recipe), random.inputs, dims);
  const Tensor definition = Answers(Layer(recipe, kDefinition), random.inputs, dims);
  double largest = 0;
  for (std::size_t i = 0; i < engine.as<double>().size(); ++i) {
    const double error = std::abs(engine.as<double>()[i] - definition.as<double>()[i]);
    largest = error <= largest ? largest : error;  // a NaN stays
  }
  return largest;
}

std::vector<Check> SelfTest() {
  std::vector<Check> checks;
  for (const ZooEntry& entry : Zoo()) {
    const Recipe recipe = ParseRecipe(entry.recipe);
    const std::string_view engine = MakePlan(recipe).engine;
    if (engine == kDefinition) continue;
    checks.push_back({std::string(entry.name), std::string(engine),
                      Difference(recipe, DType::kFloat32), Difference(recipe, DType::kFloat64)});
  }
  return checks;
}

std::string Joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

void Run(bool as_json) {
  const std::vector<Check> checks = SelfTest();
  bool passed = true;
  for (const Check& check : checks) passed = passed && check.passed();

  report::Table table("Engines against the definition, greatest difference");
  table.AddText("layer").AddText("engine");
  table.AddReal("float32", 2, "", report::RealFormat::kSignificant);
  table.AddReal("float64", 2, "", report::RealFormat::kSignificant);
  table.AddText("verdict");
  for (const Check& check : checks) {
    table.AddRow({check.layer, check.engine, check.float_error, check.double_error,
                  check.passed() ? "right" : "WRONG"});
  }
  const bool bfloat16_products = Layer(ParseRecipe("deltanet")).HasBFloat16Products();
  if (as_json) {
    nlohmann::ordered_json json;
    json["version"] = Version();
    json["compiler"] = __VERSION__;
    json["targets"] = SupportedTargets();
    json["chosen_target"] = ChosenTarget();
    json["bfloat16_products"] = bfloat16_products;
    json["threads"] = DefaultExecutor().threads();
    json["layers"] = Zoo().size();
    json["self_test"] = table.ToJson();
    json["passed"] = passed;
    fmt::print("{}\n", report::DumpJson(json));
  } else {
    fmt::print("version    {}\n", Version());
    fmt::print("compiler   {}\n", __VERSION__);
    fmt::print("targets    {} (compiled in, and supported here)\n", Joined(SupportedTargets()));
    fmt::print("chosen     {} (TTR_TARGET forces another)\n", ChosenTarget());
    fmt::print("bfloat16   products {} (ttr apply --bfloat16-products)\n",
               bfloat16_products ? "in pairs" : "of float32 only");
    fmt::print("threads    {} (TTR_THREADS sets another number)\n", DefaultExecutor().threads());
    fmt::print("layers     {}\n\n{}", Zoo().size(), table.ToText());
    fmt::print("{}\n", passed ? "All engines are right on this machine."
                              : "An engine is wrong on this machine.");
  }
  if (!passed) throw SystemError("an engine differs from the definition on this machine");
}

}  // namespace

void AddDoctor(CLI::App& app) {
  CLI::App* command =
      AddCommand(app, "doctor", "what this build is, and a self-test of every engine",
                 "  ttr doctor\n  TTR_TARGET=AVX2 ttr doctor --json");
  const auto json = std::make_shared<bool>(false);
  command->add_flag("--json", *json, "print JSON");
  command->callback([json] { Run(*json); });
}

}  // namespace ttr::tools
