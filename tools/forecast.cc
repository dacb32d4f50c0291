// ttr forecast: memories forecast the columns of a table while they read it.
#include <fmt/core.h>

#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "experiments/data/input.h"
#include "experiments/data/table.h"
#include "experiments/real/forecast_report.h"
#include "experiments/real/forecast_table.h"
#include "experiments/report/atomic_file.h"
#include "experiments/report/progress.h"
#include "tools/command.h"
#include "tools/files.h"
#include "tools/gate_options.h"
#include "tools/long_work.h"
#include "ttr/error.h"
#include "ttr/plan.h"
#include "ttr/util/atomic_file.h"

namespace ttr::tools {
namespace {

using experiments::ForecastOptions;

// None of them grows with the table.
constexpr const char* kForecastMemories[] = {
    "rls{ridge: 0.1}", "weighted_rls{decay: 0.99, ridge: 0.1}", "nlms", "deltanet",
    "nadaraya_watson{window: 256, bandwidth: 0.02}"};

struct ForecastArguments {
  std::string table;
  ForecastOptions options;
  std::vector<std::string> memories;
  std::string units = "window";
  std::string interval;
  std::string bandwidth = "recipe";
  std::string separator = ",";
  std::string out;
  std::string save;
  std::string resume;
  std::string chart;
  bool json = false;
  bool quiet = false;
};

// Where the resulting table goes: a file that is whole or not there, or standard output, line by
// line as the lines come.
class Destination {
 public:
  explicit Destination(const std::string& path) {
    if (!path.empty() && path != "-") file_.emplace(path);
  }
  bool is_file() const { return file_.has_value(); }

  void Write(std::string_view text) {
    if (file_) {
      file_->Write(text);
    } else if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() ||
               std::fflush(stdout) != 0) {
      throw SystemError(std::string("standard output cannot be written: ") + std::strerror(errno));
    }
  }
  void Prepare() {
    if (file_) file_->Prepare();
  }
  void Commit() {
    if (file_) file_->Commit();
  }

 private:
  std::optional<AtomicFile> file_;
};

bool IsLive(const std::string& path) {
  return path == "-" || !std::filesystem::is_regular_file(path);
}

// "--interval" alone means the usual level.
double Level(const std::string& text) {
  if (text.empty()) return .95;
  double level = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, level);
  if (error != std::errc() || rest != end || !(level > 0 && level < 1)) {
    throw Error("forecast", "--interval", "a level above 0 and below 1", "'" + text + "'");
  }
  return level;
}

void CheckFiles(const ForecastArguments& arguments) {
  Files files("forecast");
  files.Reads("TABLE", arguments.table);
  for (const std::string& memory : arguments.memories) files.ReadsRecipe("--memory", memory);
  // A memory may be saved over itself: it has been read whole by then, and is replaced whole.
  files.Writes("--save", arguments.save);
  files.Reads("--resume", arguments.resume);
  files.Writes("--out", arguments.out);
  files.WritesPictures("--chart", arguments.chart);
}

// What was said on the command line, and where nothing was, what the resumed run had.
ForecastOptions ChosenOptions(const Command& command, const ForecastArguments& arguments) {
  ForecastOptions options = arguments.options;
  options.units = arguments.units == "raw" ? experiments::Units::kRaw : experiments::Units::kWindow;
  options.selects_bandwidth = arguments.bandwidth == "auto";
  if (command.Given("--interval")) options.interval = Level(arguments.interval);
  if (command.Given("--interval-decay") &&
      !(options.interval_decay > 0 && options.interval_decay <= 1)) {
    throw Error("forecast", "--interval-decay", "above 0 and at most 1",
                fmt::format("{}", options.interval_decay));
  }
  std::vector<std::string> memories = arguments.memories;
  if (memories.empty() && arguments.resume.empty()) {
    memories.assign(std::begin(kForecastMemories), std::end(kForecastMemories));
  }
  for (const std::string& text : memories) {
    options.memories.push_back({text, RecipeArgument(text)});
  }
  if (arguments.resume.empty()) return options;

  ForecastOptions saved = experiments::SavedOptions(arguments.resume);
  const auto given = [&](const char* name) { return command.Given(name); };
  if (!given("--column")) options.columns = saved.columns;
  if (!given("--lags")) options.lags = saved.lags;
  if (!given("--horizon")) options.horizon = saved.horizon;
  if (!given("--season")) options.season = saved.season;
  if (!given("--units")) options.units = saved.units;
  if (!given("--interval")) options.interval = saved.interval;
  if (!given("--interval-decay")) options.interval_decay = saved.interval_decay;
  if (!given("--bandwidth")) options.selects_bandwidth = saved.selects_bandwidth;
  if (!given("--step")) options.gates.step = saved.gates.step;
  if (!given("--decay")) options.gates.decay = saved.gates.decay;
  if (!given("--momentum")) options.gates.momentum = saved.gates.momentum;
  if (!given("--weight-decay")) options.gates.weight_decay = saved.gates.weight_decay;
  if (memories.empty()) options.memories = std::move(saved.memories);
  return options;
}

// Standard output carries one thing: the table of forecasts, or that of errors.
void PrintErrors(const ForecastArguments& arguments, const report::Table& errors, bool to_stdout) {
  if (!to_stdout && arguments.quiet) return;
  std::string text = errors.ToText({.width = to_stdout ? TerminalWidth() : 0});
  if (arguments.json) text = errors.ToJsonText() + "\n";
  fmt::print(to_stdout ? stdout : stderr, "{}", text);
}

// Memories that only the definition runs, and how long they take for a thousand rows: a table may
// be live.
void NoteSlowMemories(const ForecastOptions& options) {
  constexpr std::int64_t kRows = 1000;
  const auto columns = static_cast<std::int64_t>(options.columns.size());
  for (const experiments::NamedRecipe& memory : options.memories) {
    Dims dims;
    dims.key_dim = options.lags * columns;
    if (MakePlan(memory.recipe, dims).engine != kDefinition) continue;
    dims.value_dim = columns;
    dims.tokens = kRows;
    NoteLongWork(fmt::format("{}, {} rows,", memory.text, kRows),
                 DefinitionSeconds(memory.recipe, dims, /*threads=*/1));
  }
}

// Without so many rows there is no forecast by any memory. A run that goes on later, or goes on
// from another one, may be as short as it likes.
class LeastRows {
 public:
  LeastRows(const ForecastArguments& arguments, const ForecastOptions& options)
      : parts_(!arguments.resume.empty() || !arguments.save.empty()),
        lags_(options.lags),
        rows_(static_cast<std::uint64_t>(options.lags) +
              static_cast<std::uint64_t>(options.horizon)) {}

  // Are so many rows enough?
  bool Met(std::int64_t rows) const { return parts_ || static_cast<std::uint64_t>(rows) >= rows_; }

  [[noreturn]] void Fail(const std::string& table, std::int64_t rows) const {
    throw Error(
        "forecast", table,
        fmt::format("of {} rows at the least, for one forecast from {} (--lags)", rows_, lags_),
        fmt::format("of {}", rows));
  }

 private:
  bool parts_;
  std::int64_t lags_;
  std::uint64_t rows_;
};

// Looks into a table that can be read again, before long work: not further than there are rows
// enough.
void RequireRows(const ForecastArguments& arguments, const ForecastOptions& options) {
  if (options.lags < 1 || options.horizon < 1) return;  // refused by itself
  const LeastRows least(arguments, options);
  experiments::Input input(arguments.table);
  experiments::TableReader table(
      input.stream(), input.name(),
      {.columns = options.columns, .separator = arguments.separator.front()});
  experiments::TableRow row;
  std::int64_t rows = 0;
  while (!least.Met(rows)) {
    if (table.Next(row)) {
      ++rows;
      continue;
    }
    // What else is wrong is said first; a window of one row takes no memory.
    ForecastOptions small = options;
    small.lags = 1;
    const experiments::ForecastRun check(small);
    least.Fail(arguments.table, rows);
  }
}

void Run(const Command& command, const ForecastArguments& arguments) {
  CheckFiles(arguments);
  ForecastOptions options = ChosenOptions(command, arguments);
  if (options.columns.empty()) {
    throw Error("forecast", "--column", "given at least once (or --resume)", "absent");
  }
  if (arguments.separator.size() != 1) {
    throw Error("forecast", "--separator", "one character", "'" + arguments.separator + "'");
  }
  experiments::Input input(arguments.table);
  experiments::TableReader table(
      input.stream(), input.name(),
      {.columns = options.columns, .separator = arguments.separator.front()});
  std::vector<std::string> names;
  for (const std::int64_t column : table.chosen()) names.push_back(table.header()[column]);
  options.columns = names;

  const bool live = IsLive(arguments.table);
  if (!live) RequireRows(arguments, options);
  experiments::ForecastRun run(options);
  if (!arguments.resume.empty()) run.Resume(arguments.resume);
  if (!arguments.quiet) NoteSlowMemories(options);
  Destination out(arguments.out);
  report::Progress progress("forecast", 0, {.quiet = arguments.quiet || !out.is_file()});
  const experiments::ForecastTail tail = experiments::ForecastTable(
      table, run,
      {.block = live ? 1 : 512, .progress = [&](std::int64_t rows) { progress.Advance(rows); }},
      [&](std::string_view text) { out.Write(text); });
  progress.Clear();
  const auto rows = tail.first_row - 1 + static_cast<std::int64_t>(tail.values.size());
  const LeastRows least(arguments, options);
  if (!least.Met(rows)) least.Fail(input.name(), rows);

  // Everything that may fail before the first file is replaced.
  if (!arguments.chart.empty()) {
    const std::filesystem::path stem(arguments.chart);
    if (stem.has_parent_path()) report::EnsureFolder(stem.parent_path());
    report::SaveChart(experiments::ForecastChart(run, options, tail), stem);
  }
  out.Prepare();
  if (!arguments.save.empty()) run.Save(arguments.save);
  out.Commit();
  PrintErrors(arguments, experiments::ErrorTable(run, options), out.is_file());
}

}  // namespace

void AddForecast(Command ttr) {
  Command command = ttr.AddCommand(
      "forecast", "memories forecast the columns of a table while they read it",
      "  ttr forecast data/co2_weekly.csv --column co2 --lags 52 --season 52 --out forecast.csv\n"
      "  ttr forecast data/co2_weekly.csv --column co2 --lags 16 --memory 'weighted_rls{decay: "
      ".99}' "
      "--memory nlms --out forecast.csv --save memory.safetensors\n"
      "  ttr forecast data/co2_weekly.csv --column co2 --lags 52 --memory 'rls{ridge: 0.1}' "
      "--interval 0.95 --out forecast.csv\n"
      "  ttr forecast data/co2_weekly.csv --column co2 --lags 52 --memory 'nadaraya_watson{window: "
      "256}' --bandwidth auto --out forecast.csv\n"
      "  tail -f sensor.csv | ttr forecast - --column value --lags 8 --memory nlms\n"
      "Row t of the result holds the forecasts of row t, made from the rows before it.\n"
      "With --interval, NAME.lower and NAME.upper follow each memory's NAME; the table of errors\n"
      "says what share of the rows lay between them (coverage) and how wide they are.\n"
      "With --bandwidth auto it says which bandwidth every kernel had in the end.\n"
      "For least squares it says how many rows count (samples) and the condition of the Gram\n"
      "matrix: inf where the windows do not span their space.");
  const auto arguments = std::make_shared<ForecastArguments>();
  experiments::ForecastOptions& options = arguments->options;
  command.AddOption("TABLE", arguments->table, "CSV with a header; - reads standard input live")
      .Required();
  command.AddOption("--column", options.columns, "a column to forecast; repeatable").Repeatable();
  command.AddOption("--lags", options.lags, "rows that a forecast looks back on").ShowDefault();
  command
      .AddOption("--memory", arguments->memories,
                 "a recipe; repeatable (default: rls, weighted_rls, nlms, deltanet, "
                 "nadaraya_watson)")
      .Repeatable();
  command.AddOption("--out", arguments->out, "the table with forecasts (default: standard output)");
  command.AddOption("--horizon", options.horizon, "forecast this many rows ahead").ShowDefault();
  command.AddOption("--season", options.season,
                    "rows of a season: adds the seasonal naive forecaster");
  command.AddOption("--save", arguments->save, "write the memories to this file at the end");
  command.AddOption("--resume", arguments->resume,
                    "go on from a saved file; options not given are those it had");
  command
      .AddOption("--units", arguments->units,
                 "window: keys relative to the window's mean and size; raw: the data as they "
                 "are")
      .ShowDefault()
      .OneOf({"window", "raw"});
  command
      .AddOption("--interval", arguments->interval,
                 "prediction intervals at this level: columns NAME.lower and NAME.upper beside "
                 "each memory's (without a number: 0.95)")
      .Called("LEVEL")
      .ValueMayLack();
  command
      .AddOption("--interval-decay", options.interval_decay,
                 "forgetting factor of the errors that an interval follows from (default: the "
                 "memory's own)")
      .Called("FACTOR");
  command
      .AddOption("--bandwidth", arguments->bandwidth,
                 "recipe: of kernels, as the recipes say; auto: selected while they read, from "
                 "Silverman's rule of thumb and the errors of seven bandwidths around it")
      .ShowDefault()
      .OneOf({"recipe", "auto"});
  AddGateOptions(command, options.gates);
  command.AddOption("--separator", arguments->separator, "between the fields of TABLE")
      .ShowDefault();
  command.AddOption("--chart", arguments->chart, "write PREFIX.svg and PREFIX.png");
  command.AddFlag("--json", arguments->json, "print the errors as JSON");
  command.AddFlag("--quiet", arguments->quiet, "no progress, no notes");
  command.OnRun([command, arguments] { Run(command, *arguments); });
}

}  // namespace ttr::tools
