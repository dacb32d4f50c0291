#include "tools/forecast_options.h"

#include <fmt/core.h>

#include <charconv>
#include <cstdio>
#include <iterator>
#include <utility>

#include "tools/files.h"
#include "tools/forecast_outputs.h"
#include "tools/gate_options.h"
#include "ttr/error.h"

namespace ttr::tools {
namespace {

using experiments::ForecastOptions;

// None of them grows with the table. Least squares rotate rows: --units raw keeps its digits, too.
constexpr const char* kForecastMemories[] = {
    "rls{factor: qr, ridge: 0.1}", "weighted_rls{decay: 0.99, factor: qr, ridge: 0.1}", "nlms",
    "deltanet", "nadaraya_watson{window: 256, bandwidth: 0.02}"};

// Errors behind conformal intervals.
constexpr std::int64_t kRecent = 250;

void SetLags(const std::vector<std::int64_t>& lags, ForecastOptions& options) {
  options.sparse_lags.clear();
  if (lags.size() > 1) options.sparse_lags = lags;
  if (!lags.empty()) options.lags = lags.back();
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

// What is forecast, by what, and where it goes.
void AddRunOptions(Command command, ForecastArguments& arguments) {
  ForecastOptions& options = arguments.options;
  command.AddOption("TABLE", arguments.table, "CSV with a header; - reads standard input live")
      .Required();
  command.AddOption("--column", options.columns, "a column to forecast; repeatable").Repeatable();
  command
      .AddOption("--exogenous", options.exogenous,
                 "a column that is known before its row (a plan, a calendar), also of rows to come "
                 "(--future); repeatable")
      .Called("COLUMN")
      .Repeatable();
  command
      .AddOption("--lags", arguments.lags,
                 "rows that a forecast looks back on: 16, the last 16; 1,12,13, those alone")
      .ShowDefault()
      .OneAtATime()
      .Separator(',');
  command
      .AddOption("--memory", arguments.memories,
                 "a recipe; repeatable (default: rls and weighted_rls by orthogonal factors, nlms, "
                 "deltanet, nadaraya_watson)")
      .Repeatable();
  command.AddOption("--out", arguments.out,
                    "the table with forecasts (default: standard output; with --ahead none); "
                    "F.json: the rows to come; FOLDER/: both, the errors, and pictures of "
                    "forecasts, errors and the condition");
  command.AddOption("--horizon", options.horizon, "forecast this many rows ahead").ShowDefault();
  command
      .AddOption("--strategy", arguments.strategy,
                 "recursive: one memory, of rows --horizon ahead; direct: one for each of the rows "
                 "1 .. --horizon ahead; combined: the mean of these and of the recursion of one of "
                 "the next row, with an intercept")
      .ShowDefault()
      .OneOf({"recursive", "direct", "combined"});
  command
      .AddOption("--differences", options.differences,
                 "seasons: 1: the memory reads x_t - x_{t-1}; 1,12: also those of such differences "
                 "12 rows apart. Forecasts are of the rows all the same")
      .OneAtATime()
      .Separator(',');
  command.AddFlag("--log", options.logarithm, "the memory reads logarithms; rows are above 0");
  command
      .AddOption("--ahead", options.ahead,
                 "print the forecasts of this many rows beyond the end of TABLE; with --interval "
                 "each has its bounds")
      .Called("N");
  command
      .AddOption("--future", arguments.future,
                 "a table of the --exogenous columns of the --ahead rows beyond the end of TABLE")
      .Called("TABLE");
  command.AddOption("--season", options.season,
                    "rows of a season: adds the seasonal naive forecaster");
  command.AddOption("--save", arguments.save, "write the memories to this file at the end");
  command.AddOption("--resume", arguments.resume,
                    "go on from a saved file; options not given are those it had");
}

}  // namespace

void AddForecastOptions(Command command, ForecastArguments& arguments) {
  ForecastOptions& options = arguments.options;
  AddRunOptions(command, arguments);
  command
      .AddOption("--units", arguments.units,
                 "window: keys relative to the window's mean and size; raw: the data as they "
                 "are")
      .ShowDefault()
      .OneOf({"window", "raw"});
  command
      .AddOption("--interval", arguments.interval,
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
      .AddOption("--interval-kind", arguments.interval_kind,
                 "student: from a memory's mean square error; conformal: quantiles of its last 250 "
                 "errors, at a rank that follows what was covered")
      .ShowDefault()
      .OneOf({"student", "conformal"});
  command
      .AddOption("--bandwidth", arguments.bandwidth,
                 "recipe: of kernels, as the recipes say; auto: selected while they read, from "
                 "Silverman's rule of thumb and the errors of seven bandwidths around it")
      .ShowDefault()
      .OneOf({"recipe", "auto"});
  AddGateOptions(command, options.gates);
  command
      .AddOption("--time", arguments.time,
                 "the column of times, dates or numbers: an absent one is a missing row (default: "
                 "the first of dates that rises evenly)")
      .Called("COLUMN");
  command
      .AddOption("--by", arguments.by,
                 "the column that says which series a row belongs to: each has memories of its own "
                 "(--column y and --time ds where the table calls them so)")
      .Called("COLUMN");
  command.AddOption("--decimal", arguments.decimal, "the decimal mark of the numbers in TABLE")
      .ShowDefault()
      .OneOf({".", ","});
  command.AddOption("--separator", arguments.separator, "between the fields of TABLE")
      .ShowDefault();
  command.AddOption("--chart", arguments.chart, "write PREFIX.svg and PREFIX.png");
  command.AddFlag("--json", arguments.json,
                  "print errors, and with --ahead the rows to come, as JSON");
  command.AddFlag("--quiet", arguments.quiet, "no progress, no notes");
}

void CheckFiles(const ForecastArguments& arguments) {
  Files files("forecast");
  files.Reads("TABLE", arguments.table);
  files.Reads("--future", arguments.future);
  for (const std::string& memory : arguments.memories) files.ReadsRecipe("--memory", memory);
  // A memory may be saved over itself: it has been read whole by then, and is replaced whole.
  files.Writes("--save", arguments.save);
  files.Reads("--resume", arguments.resume);
  if (IsFolder(arguments.out)) {
    files.WritesInto("--out", arguments.out, IsForecastFile);
  } else {
    files.Writes("--out", arguments.out);
  }
  files.WritesPictures("--chart", arguments.chart);
}

void PrintTable(const ForecastArguments& arguments, const report::Table& table, bool to_stdout) {
  if (!to_stdout && arguments.quiet) return;
  std::string text = table.ToText({.width = to_stdout ? TerminalWidth() : 0});
  if (arguments.json) text = table.ToJsonText() + "\n";
  fmt::print(to_stdout ? stdout : stderr, "{}", text);
}

// What was said on the command line, and where nothing was, what the resumed run had.
ForecastOptions ChosenOptions(const Command& command, const ForecastArguments& arguments) {
  ForecastOptions options = arguments.options;
  options.units = arguments.units == "raw" ? Units::kRaw : Units::kWindow;
  options.selects_bandwidth = arguments.bandwidth == "auto";
  options.strategy = ParseStrategy(arguments.strategy);
  options.conformal = arguments.interval_kind == "conformal" ? kRecent : 0;
  SetLags(arguments.lags, options);
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
  if (!given("--exogenous")) options.exogenous = saved.exogenous;
  if (!given("--lags")) {
    options.lags = saved.lags;
    options.sparse_lags = saved.sparse_lags;
  }
  if (!given("--horizon")) options.horizon = saved.horizon;
  if (!given("--strategy")) options.strategy = saved.strategy;
  if (!given("--differences")) options.differences = saved.differences;
  if (!given("--log")) options.logarithm = saved.logarithm;
  if (!given("--interval-kind")) options.conformal = saved.conformal;
  if (!given("--ahead")) options.ahead = saved.ahead;
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

}  // namespace ttr::tools
