// ttr bench: speed of the engines beside the machine's measured limits.
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "experiments/report/atomic_file.h"
#include "experiments/report/progress.h"
#include "tools/bench_least_squares.h"
#include "tools/bench_limits.h"
#include "tools/bench_networks.h"
#include "tools/bench_operators.h"
#include "tools/bench_report.h"
#include "tools/bench_work.h"
#include "tools/command.h"
#include "tools/files.h"
#include "tools/long_work.h"
#include "ttr/error.h"
#include "ttr/target.h"
#include "ttr/version.h"

namespace ttr::tools {
namespace {

struct BenchArguments {
  BenchOptions options;
  std::string out;
  bool json = false;
  bool csv = false;
  bool quiet = false;
  std::string quietness;  // of the samples, when they are taken
};

// The processor's name as the system reports it, with family and model, as virtual ones are
// namesakes; empty where it reports none.
std::string ProcessorName() {
  std::ifstream file("/proc/cpuinfo");
  std::string name, family, model;
  for (std::string line; std::getline(file, line) && !line.empty();) {
    const std::string value = line.substr(std::min(line.size(), line.find(':') + 2));
    if (line.starts_with("model name")) {
      name = value;
    } else if (line.starts_with("cpu family")) {
      family = value;
    } else if (line.starts_with("model\t")) {
      model = value;
    }
  }
  return name.empty() ? "" : fmt::format("{} (family {}, model {})", name, family, model);
}

nlohmann::ordered_json About(const BenchArguments& arguments) {
  const BenchOptions& options = arguments.options;
  nlohmann::ordered_json about;
  about["version"] = Version();
  about["processor"] = ProcessorName();
  about["target"] = ChosenTarget();
  about["tokens"] = options.tokens;
  about["heads"] = options.HeadsOf(Measurement::kPrefill);
  about["threads"] = options.threads;
  about["repeats"] = options.repeats;
  about["quietness"] = arguments.quietness;
  return about;
}

std::string Headline(const BenchArguments& arguments) {
  const BenchOptions& options = arguments.options;
  return fmt::format(
      "{}, target {}; T = {}, H = {}, threads {}; medians of {} interleaved runs.\n{}",
      ProcessorName(), ChosenTarget(), options.tokens, options.HeadsOf(Measurement::kPrefill),
      options.threads, options.repeats, arguments.quietness);
}

nlohmann::ordered_json ToJson(const BenchArguments& arguments,
                              const std::vector<NamedTable>& tables) {
  nlohmann::ordered_json json;
  json["about"] = About(arguments);
  for (const NamedTable& named : tables) json[named.name] = named.table.ToJson();
  return json;
}

void WriteFolder(const BenchArguments& arguments, const std::vector<NamedTable>& tables,
                 const std::vector<Work>& works, const Limits& limits) {
  const std::filesystem::path out = arguments.out;
  report::EnsureFolder(out);
  std::string markdown = Headline(arguments) + "\n";
  for (const NamedTable& named : tables) {
    const report::Table& table = named.table;
    table.WriteCsv(out / (named.name + ".csv"));
    markdown += "\n## " + table.title() + "\n\n" + table.ToMarkdown();
  }
  report::WriteFile(out / "bench.md", markdown);
  report::WriteFile(out / "bench.json", report::DumpJson(ToJson(arguments, tables)) + "\n");
  const report::Chart roofline = RooflineChart(works, limits);
  if (!roofline.panels.front().series.empty()) report::SaveChart(roofline, out / "roofline");
  const report::Chart least_squares = LeastSquaresChart(works);
  if (!least_squares.panels.empty()) report::SaveChart(least_squares, out / "least-squares");
  for (const char* axis : {"T", "d", "H", "threads"}) {
    const report::Chart chart = CurveChart(works, axis);
    if (!chart.panels.empty()) report::SaveChart(chart, out / (std::string("cost-") + axis));
  }
}

void Print(const BenchArguments& arguments, const std::vector<NamedTable>& tables) {
  if (arguments.json) {
    fmt::print("{}\n", report::DumpJson(ToJson(arguments, tables)));
    return;
  }
  if (!arguments.csv) fmt::print("{}\n", Headline(arguments));
  for (const NamedTable& named : tables) {
    const report::Table& table = named.table;
    fmt::print("\n{}\n\n{}", table.title(),
               arguments.csv ? table.ToCsv() : table.ToText({.width = TerminalWidth()}));
  }
}

// What was left out of the medians, and what was not though it should have been.
std::string Quietness(const std::vector<Work>& works, const std::vector<OperatorWork>& operators) {
  std::size_t samples = 0, left_out = 0, loud = 0;
  const auto count = [&](const auto& work) {
    samples += work.samples().size();
    left_out += work.samples().left_out();
    loud += work.samples().quiet() == 0 ? 1 : 0;
  };
  std::ranges::for_each(works, count);
  std::ranges::for_each(operators, count);
  std::string text =
      fmt::format("{} of {} samples were taken while others had part of the core, and are left out",
                  left_out, samples);
  if (loud > 0) text += fmt::format("; of {} works there were no others, and all count", loud);
  return text + ".";
}

// All samples of works that no engine runs: slow works have three, and a call to warm up.
double SecondsOfDefinition(const std::vector<Work>& works, const BenchOptions& options) {
  double seconds = 0;
  for (const Work& work : works) {
    if (work.plan().engine != kDefinition) continue;
    const Dims& dims = work.setting().dims;
    const auto tokens = static_cast<double>(dims.batch * dims.tokens * dims.heads);
    const double calls = 1 + std::min(options.repeats, 3);
    seconds += calls * tokens * DefinitionSeconds(work.demand().flops) / work.setting().threads;
  }
  return seconds;
}

bool IsMeasurement(const std::string& word) {
  return std::find(std::begin(kMeasurementNames), std::end(kMeasurementNames), word) !=
         std::end(kMeasurementNames);
}

// "--measure threads rls mesa": what follows the measurements and is none is a layer.
void TakeLayersFromMeasurements(BenchOptions& options) {
  std::vector<std::string> measurements;
  for (const std::string& word : options.measurements) {
    if (IsMeasurement(word)) {
      measurements.push_back(word);
      continue;
    }
    try {
      RecipeArgument(word);
    } catch (const Error& error) {
      throw Error(
          "bench", "--measure",
          fmt::format("one of {}, or a layer after them", fmt::join(kMeasurementNames, ", ")),
          fmt::format("'{}', which is no layer: {}", word, error.what()));
    }
    options.what.push_back(word);
  }
  if (measurements.empty() && !options.measurements.empty()) {
    throw Error("bench", "--measure", fmt::format("one of {}", fmt::join(kMeasurementNames, ", ")),
                "'" + options.measurements.front() + "'");
  }
  options.measurements = std::move(measurements);
}

// The measurements where none is named.
std::vector<std::string> MeasurementsByDefault(const BenchArguments& arguments) {
  std::vector<std::string> measurements(std::begin(kMeasurementNames), std::end(kMeasurementNames));
  // Curves are pictures: many works, and a long table.
  if (arguments.out.empty()) measurements.pop_back();
  // What is named is all that is timed: no layer has operators or levels of memory of its own,
  // pairs are those of kernels, networks of their own.
  if (!arguments.options.what.empty()) {
    for (const Measurement measurement : {Measurement::kLimits, Measurement::kOperators,
                                          Measurement::kPairs, Measurement::kNetworks}) {
      std::erase(measurements, Name(measurement));
    }
  }
  return measurements;
}

// Samples everything as often as is asked for, and what was sampled while the core was shared again
// a while later.
void SampleAll(const BenchArguments& arguments, std::vector<Work>& works,
               std::vector<OperatorWork>& operators, Limits& limits) {
  const BenchOptions& options = arguments.options;
  const auto count = static_cast<std::int64_t>(works.size() + operators.size());
  report::Progress progress("bench", count * options.repeats, {.quiet = arguments.quiet});
  // Interleaved, so that a slow moment of the machine falls on all works and on the limits alike.
  for (int repeat = 0; repeat < options.repeats; ++repeat) {
    const auto sample = [&](auto& work) {
      work.Sample();
      progress.Advance();
    };
    limits.Sample();
    std::ranges::for_each(works, sample);
    std::ranges::for_each(operators, sample);
  }
  const auto enough =
      std::min<std::size_t>(kLeastSamples, static_cast<std::size_t>(options.repeats));
  const auto lacks = [&](const auto& work) { return work.samples().quiet() < enough; };
  const auto lacking = [&] {
    return std::ranges::count_if(works, lacks) + std::ranges::count_if(operators, lacks);
  };
  progress.Clear();
  for (int repeat = 0; repeat < options.repeats && lacking() > 0; ++repeat) {
    report::Progress again("bench, again", lacking(), {.quiet = arguments.quiet});
    const auto sample_again = [&](auto& work) {
      if (!lacks(work)) return;
      work.Again();
      again.Advance();
    };
    limits.Sample();
    std::ranges::for_each(works, sample_again);
    std::ranges::for_each(operators, sample_again);
    again.Clear();
  }
}

void RunBench(BenchArguments arguments) {
  BenchOptions& options = arguments.options;
  TakeLayersFromMeasurements(options);
  Files files("bench");
  for (const std::string& layer : options.what) files.ReadsRecipe("WHAT", layer);
  files.WritesInto("--out", arguments.out, [](std::string_view file) {
    return IsReport(file) && (!file.ends_with(".json") || file == "bench.json");
  });
  if (options.measurements.empty()) options.measurements = MeasurementsByDefault(arguments);
  std::map<int, std::unique_ptr<Executor>> executors;
  const auto executor = [&](int threads) -> Executor& {
    if (threads == 1) return SequentialExecutor();
    std::unique_ptr<Executor>& made = executors[threads];
    if (!made) made = MakeExecutor(threads);
    return *made;
  };
  BenchMemory memory;
  std::vector<Work> works = MakeWorks(options, executor, memory);
  std::vector<OperatorWork> operators =
      MakeOperatorWorks(options, executor(options.threads), memory);
  if (!arguments.quiet)
    NoteLongWork("what the definition runs", SecondsOfDefinition(works, options));
  const bool levels = std::find(options.measurements.begin(), options.measurements.end(),
                                Name(Measurement::kLimits)) != options.measurements.end();
  Limits limits(works, levels);
  for (const OperatorWork& work : operators) limits.AddStream(work.setting().bytes);
  AddNetworkLimits(works, limits);
  SampleAll(arguments, works, operators, limits);
  arguments.quietness = Quietness(works, operators);
  const std::vector<NamedTable> tables = BenchTables(works, operators, limits);
  if (!arguments.out.empty()) WriteFolder(arguments, tables, works, limits);
  Print(arguments, tables);
}

}  // namespace

void AddBench(Command ttr) {
  Command command = ttr.AddCommand(
      "bench", "speed of engines beside the machine's limits",
      "  ttr bench gated_deltanet retnet --measure prefill decode\n"
      "  ttr bench --measure threads rls mesa\n"
      "  ttr bench gated_deltanet --measure prefill --d 128 --tokens 512 --heads 8 --json\n"
      "  ttr bench --out results      tables, roofline.svg, cost-T.svg, ...\n"
      "  TTR_TARGET=AVX2 ttr bench    another SIMD target, limits and all\n"
      "\n"
      "A work's limit is the slowest of what it needs at the least: its useful multiply-adds at\n"
      "the measured peak, its exponentials, its bytes at the measured bandwidth. Useful flops a\n"
      "token and head: 4 Dk Dv for Hebbian layers, 6 for delta rules; ttr plan NAME says. Exact\n"
      "least squares, D = Dk, chunks of m = 64: 4 D^2 + 6 D Dv + m (3 D + 3 Dv) + (D^3 + m^3) / "
      "3m,\n"
      "or with a factor for every token D^3 / 3 + 5 D^2 + 6 D Dv; single tokens 9 D^2 + 5 D Dv.");
  const auto arguments = std::make_shared<BenchArguments>();
  BenchOptions& options = arguments->options;
  command.AddOption("WHAT", options.what,
                    "layers (default: all of constant memory that a fast engine runs)");
  command
      .AddOption(
          "--measure,--part", options.measurements,
          "what to time: decode has states in cache and in main memory, train is forward and "
          "backward, threads is one head, least_squares has all of it beside the delta rule, pairs "
          "are kernels over kept pairs beside softmax, "
          "operators are what stands around a memory, curves "
          "run along T, d, H and threads (default: all, of named layers those that time them; "
          "curves only with --out); layers may follow")
      .Called(fmt::format("{{{}}}", fmt::join(kMeasurementNames, ",")));
  command.AddOption("--d", options.dims, "head dimensions, Dk = Dv").ShowDefault().Within(1, 4096);
  command.AddOption("--tokens", options.tokens, "length of the sequence")
      .ShowDefault()
      .Within(1, 1 << 24);
  command
      .AddOption(
          "--heads", options.heads,
          "memories (default: 32; pairs 8, networks 4; decode takes as many as fill its bytes)")
      .Within(1, 4096);
  command
      .AddOption("--repeats", options.repeats,
                 "the median is of so many runs; of 3 where they take above a second")
      .ShowDefault()
      .Within(1, 10000);
  command.AddOption("--threads", options.threads, "threads (the measurement threads: at least two)")
      .ShowDefault()
      .Within(1, 4096);
  command.AddOption("--out", arguments->out,
                    "folder for tables (CSV, JSON, Markdown) and pictures");
  command.AddFlag("--json", arguments->json, "print JSON");
  command.AddFlag("--csv", arguments->csv, "print CSV, a blank line and a title before each table");
  command.AddFlag("--quiet", arguments->quiet, "no progress bar");
  command.OnRun([arguments] { RunBench(*arguments); });
}

}  // namespace ttr::tools
