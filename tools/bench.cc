// ttr bench: speed of the engines beside the machine's measured limits.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>

#include "experiments/data/random_inputs.h"
#include "experiments/report/progress.h"
#include "experiments/report/table.h"
#include "tools/command.h"
#include "ttr/layer.h"
#include "ttr/machine.h"
#include "ttr/target.h"
#include "ttr/zoo.h"

namespace ttr::tools {
namespace {

struct Arguments {
  std::vector<std::string> what;
  std::vector<std::int64_t> dims{64, 128};
  std::int64_t tokens = 1024;
  std::int64_t heads = 8;
  int repeats = 9;
  int threads = 1;
  bool json = false;
  bool quiet = false;
};

// One row of the table: a layer at one size.
struct Work {
  std::string name;
  Recipe recipe;
  Dims dims;
  std::vector<double> prefill_ns;  // a token and head, one entry a repeat
  std::vector<double> decode_ns;
};

double Seconds(const std::function<void()>& run) {
  const auto start = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double Median(std::vector<double> x) {
  std::sort(x.begin(), x.end());
  const std::size_t n = x.size();
  return n % 2 == 1 ? x[n / 2] : (x[n / 2 - 1] + x[n / 2]) / 2;
}

// The layers that an engine runs; the definition is no measure of speed.
std::vector<Work> Works(const Arguments& arguments) {
  std::vector<std::string> names = arguments.what;
  if (names.empty()) {
    for (const ZooEntry& entry : Zoo()) {
      if (MakePlan(ParseRecipe(entry.recipe)).engine != Engine::kDefinition) {
        names.emplace_back(entry.name);
      }
    }
  }
  std::vector<Work> works;
  for (const std::int64_t d : arguments.dims) {
    for (const std::string& name : names) {
      Work work{name, RecipeArgument(name), {}, {}, {}};
      work.dims.tokens = arguments.tokens;
      work.dims.heads = work.dims.query_heads = work.dims.key_heads = work.dims.value_heads =
          arguments.heads;
      work.dims.key_dim = work.dims.value_dim = work.dims.features = d;
      works.push_back(work);
    }
  }
  return works;
}

// One repeat of one row: prefill of the whole sequence, then as many single tokens on its state.
void Measure(Work& work, Executor& executor) {
  constexpr int kSteps = 16;
  const Layer layer(work.recipe);
  const Run run{.executor = &executor, .scratch = {}};
  const experiments::RandomInputs random =
      experiments::MakeRandomInputs(work.recipe, work.dims, DType::kFloat32, /*seed=*/1);
  Tensor y(DType::kFloat32, {1, work.dims.tokens, work.dims.output_heads(), work.dims.value_dim});
  State state;
  const double prefill =
      Seconds([&] { layer.Forward(random.inputs, state, {.y = y.view(), .status = {}}, run); });
  const auto heads = static_cast<double>(work.dims.heads);
  work.prefill_ns.push_back(1e9 * prefill / (static_cast<double>(work.dims.tokens) * heads));
  if (!work.recipe.reading.causal) return;

  Dims one = work.dims;
  one.tokens = 1;
  const experiments::RandomInputs token =
      experiments::MakeRandomInputs(work.recipe, one, DType::kFloat32, /*seed=*/2);
  const Outputs answer{.y = y.view().Slice(1, 0, 1), .status = {}};
  layer.Step(token.inputs, state, answer, run);
  const double decode = Seconds([&] {
    for (int i = 0; i < kSteps; ++i) layer.Step(token.inputs, state, answer, run);
  });
  work.decode_ns.push_back(1e9 * decode / (kSteps * heads));
}

void RunBench(const Arguments& arguments) {
  std::vector<Work> works = Works(arguments);
  const std::unique_ptr<Executor> executor = MakeExecutor(arguments.threads);
  const double peak = MeasureFmaPeak();
  report::Progress progress("bench", static_cast<std::int64_t>(works.size()) * arguments.repeats,
                            {.quiet = arguments.quiet});
  // Interleaved, so that a slow moment of the machine falls on all rows.
  for (int repeat = 0; repeat < arguments.repeats; ++repeat) {
    for (Work& work : works) {
      Measure(work, *executor);
      progress.Advance();
    }
  }
  progress.Clear();

  report::Table table("Speed, float32, medians");
  table.AddText("layer").AddText("engine").AddInteger("d");
  table.AddReal("prefill", 0, "ns/token/head").AddReal("useful", 1, "GFLOP/s");
  table.AddReal("of peak", 1, "%").AddReal("decode", 0, "ns/token/head");
  table.AddReal("state traffic", 1, "GB/s").AddReal("of in-place", 1, "%");
  for (const Work& work : works) {
    const Plan plan = MakePlan(work.recipe);
    const Cost cost = EstimateCost(work.recipe, plan, work.dims);
    const double prefill = Median(work.prefill_ns);
    const double gflops = cost.flops_per_token / prefill;
    std::vector<report::Cell> row{work.name,
                                  Name(plan.engine),
                                  work.dims.key_dim,
                                  prefill,
                                  gflops,
                                  100 * gflops / (peak * arguments.threads)};
    if (work.decode_ns.empty()) {
      row.insert(row.end(), 3, {});
    } else {
      const double state_bytes = 4 * static_cast<double>(work.dims.key_dim * work.dims.value_dim);
      const double traffic = 2 * state_bytes / Median(work.decode_ns);
      const double limit = MeasureInPlaceBandwidth(
          static_cast<std::size_t>(state_bytes * static_cast<double>(work.dims.heads)));
      row.insert(row.end(), {Median(work.decode_ns), traffic, 100 * traffic / limit});
    }
    table.AddRow(std::move(row));
  }
  table.SetMeta("target", ChosenTarget());
  table.SetMeta("fma_peak_gflops", peak);
  table.SetMeta("tokens", arguments.tokens);
  table.SetMeta("heads", arguments.heads);
  table.SetMeta("threads", arguments.threads);
  table.SetMeta("repeats", arguments.repeats);
  if (arguments.json) {
    fmt::print("{}\n", report::DumpJson(table.ToJson()));
    return;
  }
  fmt::print(
      "target {}, fused multiply-add peak {:.0f} GFLOP/s a thread; T = {}, H = {}, threads {}\n\n",
      ChosenTarget(), peak, arguments.tokens, arguments.heads, arguments.threads);
  fmt::print("{}", table.ToText());
}

}  // namespace

void AddBench(CLI::App& app) {
  CLI::App* command = AddCommand(app, "bench", "speed of engines beside the machine's limits",
                                 "  ttr bench\n  ttr bench gated_deltanet retnet --d 64 128 256");
  const auto arguments = std::make_shared<Arguments>();
  command->add_option("WHAT", arguments->what, "layers (default: all that a fast engine runs)");
  command->add_option("--d", arguments->dims, "head dimensions, Dk = Dv")
      ->capture_default_str()
      ->check(CLI::Range(1, 4096));
  command->add_option("--tokens", arguments->tokens, "length of the sequence")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 24));
  command->add_option("--heads", arguments->heads, "memories")
      ->capture_default_str()
      ->check(CLI::Range(1, 4096));
  command->add_option("--repeats", arguments->repeats, "the median is of so many runs")
      ->capture_default_str()
      ->check(CLI::Range(1, 10000));
  command->add_option("--threads", arguments->threads, "threads")
      ->capture_default_str()
      ->check(CLI::Range(1, 4096));
  command->add_flag("--json", arguments->json, "print JSON");
  command->add_flag("--quiet", arguments->quiet, "no progress bar");
  command->callback([arguments] { RunBench(*arguments); });
}

}  // namespace ttr::tools
