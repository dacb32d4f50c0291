// ttr plan: which engine runs a recipe, what it costs, how long it takes, and why.
#include "ttr/plan.h"

#include <fmt/core.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "experiments/report/table.h"
#include "tools/bench_estimate.h"
#include "tools/command.h"
#include "tools/long_work.h"

namespace ttr::tools {
namespace {

struct PlanArguments {
  std::string recipe;
  Dims dims;
  bool json = false;
};

// "0.13 ms", "2.4 s", "3 min"
std::string ShowSeconds(double seconds) {
  if (seconds < 1) return fmt::format("{:.2g} ms", 1e3 * seconds);
  return seconds < 10 ? fmt::format("{:.1f} s", seconds) : AboutHowLong(seconds);
}

std::string ShowTime(const std::optional<EstimatedTime>& time, std::int64_t tokens) {
  if (tokens == 0) return "none: no token";
  if (!time) return "not tried: a token alone takes seconds, or gigabytes";
  return fmt::format("about {} on one thread: {} token{} timed here", ShowSeconds(time->seconds),
                     time->timed, time->timed == 1 ? "" : "s");
}

void Run(const PlanArguments& arguments) {
  const Recipe recipe = RecipeArgument(arguments.recipe);
  Dims dims = arguments.dims;
  dims.features = dims.features == 0 ? dims.key_dim : dims.features;
  dims.hidden = recipe.function.expansion * dims.key_dim;
  const Plan plan = MakePlan(recipe, dims);
  const Cost cost = EstimateCost(recipe, plan, dims);
  const std::optional<EstimatedTime> time = EstimateTime(recipe, plan, dims);
  if (arguments.json) {
    nlohmann::ordered_json json;
    json["recipe"] = ToString(recipe);
    json["engine"] = plan.engine;
    json["why"] = plan.why;
    json["exact"] = plan.exact;
    json["dk"] = dims.key_dim;
    json["dv"] = dims.value_dim;
    json["tokens"] = dims.tokens;
    json["flops_per_token"] = cost.flops_per_token;
    json["bytes_per_token"] = cost.bytes_per_token;
    json["state_bytes"] = cost.state_bytes;
    json["seconds"] = time ? nlohmann::ordered_json(time->seconds) : nullptr;
    json["tokens_timed"] = time ? time->timed : 0;
    fmt::print("{}\n", report::DumpJson(json));
    return;
  }
  fmt::print("recipe           {}\n", ToString(recipe));
  fmt::print("engine           {}\n", plan.engine);
  fmt::print("why              {}\n", plan.why);
  fmt::print("exact            {}\n", plan.exact
                                          ? "yes: the minimiser of its regression, up to rounding"
                                          : "no: steps towards the minimiser");
  fmt::print("\nfor Dk = {}, Dv = {}, T = {}, one memory:\n", dims.key_dim, dims.value_dim,
             dims.tokens);
  fmt::print("flops a token    {:.0f}\n", cost.flops_per_token);
  fmt::print("bytes a token    {:.0f}\n", cost.bytes_per_token);
  fmt::print("state            {:.0f} bytes\n", cost.state_bytes);
  fmt::print("time             {}\n", ShowTime(time, dims.tokens));
}

}  // namespace

void AddPlan(Command ttr) {
  Command command =
      ttr.AddCommand("plan", "which engine runs a recipe, its cost, its time here, and why",
                     "  ttr plan gated_deltanet --dk 128 --dv 128\n"
                     "  ttr plan 'uniform | linear | exact(ridge: 0.01)' --json");
  const auto arguments = std::make_shared<PlanArguments>();
  arguments->dims.key_dim = 64;
  arguments->dims.value_dim = 64;
  arguments->dims.tokens = 1024;
  command.AddOption("RECIPE", arguments->recipe, "a zoo name, name{changes}, a recipe line, @FILE")
      .Required();
  command.AddOption("--dk", arguments->dims.key_dim, "length of keys and queries")
      .ShowDefault()
      .Within(1, std::int64_t{1} << 20);
  command.AddOption("--dv", arguments->dims.value_dim, "length of values")
      .ShowDefault()
      .Within(1, std::int64_t{1} << 20);
  command.AddOption("--tokens", arguments->dims.tokens, "length of the sequence")
      .ShowDefault()
      .Within(0, std::int64_t{1} << 40);
  command.AddOption("--features", arguments->dims.features,
                    "rows of features.w, where a feature map has weights (default Dk)");
  command.AddFlag("--json", arguments->json, "print JSON");
  command.OnRun([arguments] { Run(*arguments); });
}

}  // namespace ttr::tools
