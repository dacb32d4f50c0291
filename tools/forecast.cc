// ttr forecast: memories forecast the columns of a table while they read it, and the rows to come.
#include <fmt/core.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "experiments/data/table.h"
#include "experiments/real/forecast_report.h"
#include "experiments/real/forecast_table.h"
#include "experiments/real/future.h"
#include "experiments/real/table_hints.h"
#include "experiments/report/atomic_file.h"
#include "experiments/report/progress.h"
#include "tools/command.h"
#include "tools/forecast_options.h"
#include "tools/long_work.h"
#include "ttr/error.h"
#include "ttr/plan.h"
#include "ttr/util/atomic_file.h"

namespace ttr::tools {
namespace {

using experiments::ForecastOptions;

// Where the resulting table goes: a file that is whole or not there, or standard output, line by
// line as the lines come, or nowhere, where rows to come are printed instead. A file of JSON holds
// those rows alone.
class Destination {
 public:
  Destination(const std::string& path, bool ahead)
      : is_json_(path.ends_with(".json")), nowhere_(path.empty() && ahead) {
    if (is_json_ && !ahead) {
      throw Error("forecast", "--out", "a file of CSV (one of JSON holds rows to come: --ahead)",
                  path);
    }
    if (!path.empty() && path != "-") file_.emplace(path);
  }
  bool is_file() const { return file_.has_value(); }
  bool is_json() const { return is_json_; }
  bool is_stdout() const { return !file_ && !nowhere_; }

  // A line of the table.
  void WriteLine(std::string_view text) {
    if (!is_json_ && !nowhere_) Write(text);
  }
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
  bool is_json_;
  bool nowhere_;
  std::optional<AtomicFile> file_;
};

bool IsLive(const std::string& path) {
  return path == "-" || !std::filesystem::is_regular_file(path);
}

// Standard output carries one thing: the table with its forecasts, or the rows to come, or the
// errors.
void Print(const ForecastArguments& arguments, const report::Table& table, bool to_stdout) {
  if (!to_stdout && arguments.quiet) return;
  std::string text = table.ToText({.width = to_stdout ? TerminalWidth() : 0});
  if (arguments.json) text = table.ToJsonText() + "\n";
  fmt::print(to_stdout ? stdout : stderr, "{}", text);
}

// The first line is the header unless all of it is numbers, and then is lost where it was none.
void NoteNamesThatAreNumbers(const experiments::TableReader& table) {
  for (const std::int64_t column : table.chosen()) {
    const std::string& name = table.header()[column];
    double value = 0;
    if (name == std::to_string(column + 1) || !experiments::ParseValue(name, value)) continue;
    Note(fmt::format(
        "the first line is taken for names of columns, but '{}' is a number or nothing", name));
  }
}

void NoteTimes(const experiments::Future& future) {
  if (future.time_column >= 0) {
    Note(fmt::format("'{}' goes on by {}", future.time, future.spacing));
  } else {
    Note("rows to come are numbered: no column but those forecast ends in times spaced evenly");
  }
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
        horizon_(options.horizon),
        rows_(static_cast<std::uint64_t>(options.lags) +
              static_cast<std::uint64_t>(options.horizon)) {}

  // Are so many rows enough?
  bool Met(std::int64_t rows) const { return parts_ || static_cast<std::uint64_t>(rows) >= rows_; }

  [[noreturn]] void Fail(const std::string& table, std::int64_t rows) const {
    throw Error(
        "forecast", table,
        fmt::format("of {} rows at the least, for one forecast from {} (--lags)", rows_, lags_),
        rows > horizon_ ? fmt::format("of {} (--lags {} is the most)", rows, rows - horizon_)
                        : fmt::format("of {}", rows));
  }

 private:
  bool parts_;
  std::int64_t lags_;
  std::int64_t horizon_;
  std::uint64_t rows_;
};

// Looks into a table that can be read again, before long work: not further than there are rows
// enough.
void RequireRows(const ForecastArguments& arguments, const ForecastOptions& options) {
  if (options.lags < 1 || options.horizon < 1) return;  // refused by itself
  const LeastRows least(arguments, options);
  experiments::HintedTable table(
      arguments.table, {.columns = options.columns, .separator = arguments.separator.front()});
  experiments::TableRow row;
  std::int64_t rows = 0;
  while (!least.Met(rows)) {
    if (table.Read([&] { return table.reader().Next(row); })) {
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

// Everything that may fail comes before the first file is replaced.
void WriteFiles(const ForecastArguments& arguments, const ForecastOptions& options,
                experiments::ForecastRun& run, const experiments::ForecastTail& tail,
                Destination& out) {
  if (!arguments.chart.empty()) {
    const std::filesystem::path stem(arguments.chart);
    if (stem.has_parent_path()) report::EnsureFolder(stem.parent_path());
    report::SaveChart(experiments::ForecastChart(run, options, tail), stem);
  }
  out.Prepare();
  if (!arguments.save.empty()) run.Save(arguments.save);
  out.Commit();
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
  experiments::HintedTable hinted(
      arguments.table, {.columns = options.columns, .separator = arguments.separator.front()});
  experiments::TableReader& table = hinted.reader();
  std::vector<std::string> names;
  for (const std::int64_t column : table.chosen()) names.push_back(table.header()[column]);
  options.columns = names;

  const bool live = IsLive(arguments.table);
  if (!live) RequireRows(arguments, options);
  experiments::ForecastRun run(options);
  if (!arguments.resume.empty()) run.Resume(arguments.resume);
  if (!arguments.quiet) {
    NoteNamesThatAreNumbers(table);
    NoteSlowMemories(options);
  }
  Destination out(arguments.out, options.ahead > 0);
  report::Progress progress("forecast", 0, {.quiet = arguments.quiet || out.is_stdout()});
  experiments::ForecastTail tail = hinted.Read([&] {
    return experiments::ForecastTable(
        table, run,
        {.block = live ? 1 : 512, .progress = [&](std::int64_t rows) { progress.Advance(rows); }},
        [&](std::string_view text) { out.WriteLine(text); });
  });
  progress.Clear();
  const auto rows = tail.first_row - 1 + static_cast<std::int64_t>(tail.values.size());
  const LeastRows least(arguments, options);
  if (!least.Met(rows)) least.Fail(hinted.name(), rows);

  std::optional<report::Table> to_come;
  if (options.ahead > 0) {
    experiments::Future future = experiments::MakeFuture(run, options, table, tail);
    to_come = experiments::FutureTable(run, options, future);
    out.WriteLine(experiments::FutureLines(run, options, table, future));
    if (out.is_json()) out.Write(to_come->ToJsonText() + "\n");
    experiments::Extend(tail, run, future);
    if (!arguments.quiet) NoteTimes(future);
  }
  WriteFiles(arguments, options, run, tail, out);
  const bool errors_alone = out.is_file() && !to_come;
  if (to_come && !out.is_stdout()) Print(arguments, *to_come, true);
  Print(arguments, experiments::ErrorTable(run, options), errors_alone);
}

}  // namespace

void AddForecast(Command ttr) {
  Command command = ttr.AddCommand(
      "forecast", "forecasts of a table's next rows, by memories that learn while they read it",
      "  ttr forecast data/co2_weekly.csv --column co2 --lags 52 --memory 'rls{ridge: 0.1}' "
      "--ahead "
      "12 --interval 0.95\n"
      "  ttr forecast data/co2_weekly.csv --column co2 --lags 52 --season 52 --out forecast.csv\n"
      "  ttr forecast data/co2_weekly.csv --column co2 --lags 16 --memory 'weighted_rls{decay: "
      ".99}' "
      "--memory nlms --out forecast.csv --save memory.safetensors\n"
      "  ttr forecast data/co2_weekly.csv --column co2 --lags 52 --memory 'rls{ridge: 0.1}' "
      "--interval 0.95 --out forecast.csv\n"
      "  ttr forecast data/co2_weekly.csv --column co2 --lags 52 --memory 'nadaraya_watson{window: "
      "256}' --bandwidth auto --out forecast.csv\n"
      "  tail -f sensor.csv | ttr forecast - --column value --lags 8 --memory nlms\n"
      "--ahead N prints the N rows beyond the end of the table. Up to --horizon they are the\n"
      "forecasts that the memories have made; from there on forecasts take the places of rows "
      "that\n"
      "have not come, and intervals follow from how far such forecasts were off in the table, "
      "lead\n"
      "by lead (empty where a lead has too few errors). A column of dates or numbers that is "
      "spaced\n"
      "evenly goes on; else rows are numbered. They stand below the table in --out F.csv, and "
      "alone\n"
      "in --out F.json.\n"
      "Row t of the result holds the forecasts of row t, made from the rows before it.\n"
      "With --interval, NAME.lower and NAME.upper follow each memory's NAME; the table of errors\n"
      "says what share of the rows lay between them (coverage) and how wide they are.\n"
      "With --bandwidth auto it says which bandwidth every kernel had in the end.\n"
      "For least squares it says how many rows count (samples) and the condition of the Gram\n"
      "matrix: inf where the windows do not span their space.");
  const auto arguments = std::make_shared<ForecastArguments>();
  AddForecastOptions(command, *arguments);
  command.OnRun([command, arguments] { Run(command, *arguments); });
}

}  // namespace ttr::tools
