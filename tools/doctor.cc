// ttr doctor: what this build is, and whether its engines are right on this machine.
#include <fmt/core.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "experiments/report/table.h"
#include "tools/command.h"
#include "tools/doctor_check.h"
#include "ttr/error.h"
#include "ttr/layer.h"
#include "ttr/target.h"
#include "ttr/version.h"
#include "ttr/zoo.h"

namespace ttr::tools {
namespace {

struct Check {
  std::string layer;
  std::string engine;
  Judgement float32;
  Judgement float64;
  bool passed() const { return float32.right() && float64.right(); }
};

std::vector<Check> SelfTest() {
  std::vector<Check> checks;
  for (const ZooEntry& entry : Zoo()) {
    const Recipe recipe = ParseRecipe(entry.recipe);
    const std::string_view engine = MakePlan(recipe).engine;
    if (engine == kDefinition) continue;
    checks.push_back({std::string(entry.name), std::string(engine),
                      Judge(Compare(recipe, DType::kFloat32)),
                      Judge(Compare(recipe, DType::kFloat64))});
  }
  return checks;
}

report::Table Verdicts(const std::vector<Check>& checks) {
  report::Table table("Engines against the definition: errors and bounds, of an output's size");
  table.AddText("layer").AddText("engine");
  for (const char* column : {"condition", "float32", "bound", "float64", "bound64"}) {
    table.AddReal(column, 2, "", report::RealFormat::kSignificant);
  }
  table.AddReal("judged", 0, "%").AddText("verdict");
  for (const Check& check : checks) {
    table.AddRow({check.layer, check.engine, check.float64.condition, check.float32.error,
                  check.float32.bound, check.float64.error, check.float64.bound,
                  100. * static_cast<double>(check.float32.judged) /
                      static_cast<double>(check.float32.outputs),
                  check.passed() ? "right" : "WRONG"});
  }
  return table;
}

std::string Joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

std::string ProductsText(bool has, bool exact) {
  if (!has) {
    return MatrixTilesRefused() ? "products of float32: the system refuses matrix tiles"
                                : "products of float32 only";
  }
  return fmt::format("products by {}, {} of whole numbers", BFloat16Products(),
                     exact ? "right" : "WRONG");
}

void Run(bool as_json) {
  const std::vector<Check> checks = SelfTest();
  bool passed = true;
  for (const Check& check : checks) passed = passed && check.passed();

  const report::Table table = Verdicts(checks);
  const bool bfloat16_products = Layer(ParseRecipe("deltanet")).HasBFloat16Products();
  const bool exact = BFloat16ProductsAreExact();
  passed = passed && exact;
  if (as_json) {
    nlohmann::ordered_json json;
    json["version"] = Version();
    json["compiler"] = __VERSION__;
    json["compiled_targets"] = CompiledTargets();
    json["targets"] = SupportedTargets();
    json["chosen_target"] = ChosenTarget();
    json["bfloat16_products"] = bfloat16_products;
    json["bfloat16_products_by"] = bfloat16_products ? BFloat16Products() : "float32";
    json["bfloat16_products_exact"] = exact;
    json["matrix_tiles_refused"] = MatrixTilesRefused();
    json["threads"] = DefaultExecutor().threads();
    json["layers"] = Zoo().size();
    json["self_test"] = table.ToJson();
    json["passed"] = passed;
    fmt::print("{}\n", report::DumpJson(json));
  } else {
    fmt::print("version    {}\n", Version());
    fmt::print("compiler   {}\n", __VERSION__);
    fmt::print("built for  {}\n", Joined(CompiledTargets()));
    fmt::print("targets    {} (of these, what this processor has)\n", Joined(SupportedTargets()));
    fmt::print("chosen     {} (TTR_TARGET forces another)\n", ChosenTarget());
    fmt::print("bfloat16   {} (ttr apply --bfloat16-products)\n",
               ProductsText(bfloat16_products, exact));
    fmt::print("threads    {} (TTR_THREADS sets another number)\n", DefaultExecutor().threads());
    fmt::print("layers     {}\n\n{}", Zoo().size(), table.ToText());
    fmt::print("{}\n", passed ? "All engines are right on this machine."
                              : "An engine is wrong on this machine.");
  }
  if (!passed) throw SystemError("an engine differs from the definition on this machine");
}

}  // namespace

void AddDoctor(Command ttr) {
  Command command = ttr.AddCommand(
      "doctor", "what this build is, and a self-test of every engine",
      "  ttr doctor\n  TTR_TARGET=AVX2 ttr doctor --json\n"
      "  TTR_BFLOAT16_PRODUCTS=float32 ttr doctor\n"
      "An output may differ from the definition's by 64 eps of its size, of what solves systems "
      "times\ntheir condition. Exit code 1: an engine is wrong on this "
      "machine.");
  const auto json = std::make_shared<bool>(false);
  command.AddFlag("--json", *json, "print JSON");
  command.OnRun([json] { Run(*json); });
}

}  // namespace ttr::tools
