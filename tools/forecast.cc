// ttr forecast: memories forecast the columns of a table while they read it, and the rows to come.
#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "experiments/data/table.h"
#include "experiments/data/text.h"
#include "experiments/real/forecast_report.h"
#include "experiments/real/forecast_table.h"
#include "experiments/real/forecast_watch.h"
#include "experiments/real/future.h"
#include "experiments/real/row_clock.h"
#include "experiments/real/table_hints.h"
#include "experiments/report/atomic_file.h"
#include "experiments/report/progress.h"
#include "tools/command.h"
#include "tools/forecast_options.h"
#include "tools/forecast_outputs.h"
#include "tools/forecast_panel.h"
#include "tools/long_work.h"
#include "ttr/error.h"
#include "ttr/plan.h"

namespace ttr::tools {
namespace {

using experiments::ForecastOptions;

bool IsLive(const std::string& path) {
  return path == "-" || !std::filesystem::is_regular_file(path);
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
    dims.key_dim = options.lags * columns + static_cast<std::int64_t>(options.exogenous.size());
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
        differences_(static_cast<std::uint64_t>(std::accumulate(
            options.differences.begin(), options.differences.end(), std::int64_t{0}))),
        rows_(static_cast<std::uint64_t>(options.lags) +
              static_cast<std::uint64_t>(options.horizon) + differences_) {}

  // Are so many rows enough?
  bool Met(std::int64_t rows) const { return parts_ || static_cast<std::uint64_t>(rows) >= rows_; }

  [[noreturn]] void Fail(const std::string& table, std::int64_t rows) const {
    throw Error("forecast", table,
                fmt::format("of {} rows at the least, for one forecast from {} (--lags{})", rows_,
                            lags_, differences_ > 0 ? ", --differences" : ""),
                rows > horizon_ && differences_ == 0
                    ? fmt::format("of {} (--lags {} is the most)", rows, rows - horizon_)
                    : fmt::format("of {}", rows));
  }

 private:
  bool parts_;
  std::int64_t lags_;
  std::int64_t horizon_;
  std::uint64_t differences_;
  std::uint64_t rows_;
};

// The columns that are forecast, then those that are known before their rows.
experiments::TableOptions WhatToRead(const ForecastArguments& arguments,
                                     const ForecastOptions& options) {
  std::vector<std::string> columns = options.columns;
  columns.insert(columns.end(), options.exogenous.begin(), options.exogenous.end());
  return arguments.Read(std::move(columns));
}

// Looks into a table that can be read again, before long work: are there rows enough, and how do
// their times go on? No further than both need.
experiments::RowClock LookAhead(const ForecastArguments& arguments,
                                const ForecastOptions& options) {
  if (options.lags < 1 || options.horizon < 1) return {};  // refused by itself
  const LeastRows least(arguments, options);
  experiments::HintedTable table(arguments.table, WhatToRead(arguments, options));
  experiments::TableRow row;
  std::vector<experiments::TableRow> first;
  std::int64_t rows = 0;
  const auto clock = [&] { return experiments::RowClock(table.reader(), first, arguments.time); };
  while (!least.Met(rows) || first.size() < experiments::RowClock::kLooksAt) {
    if (table.Read([&] { return table.reader().Next(row); })) {
      ++rows;
      if (first.size() < experiments::RowClock::kLooksAt) first.push_back(row);
      continue;
    }
    if (least.Met(rows)) return clock();
    // What else is wrong is said first; a window of one row takes no memory.
    ForecastOptions small = options;
    small.lags = 1;
    small.sparse_lags.clear();
    const experiments::ForecastRun check(small);
    least.Fail(arguments.table, rows);
  }
  return clock();
}

// What the table has come to.
struct ReadTable {
  experiments::ForecastTail tail;
  experiments::ConditionTrace conditions;
  std::optional<report::Table> to_come;
};

// Everything that may fail comes before the first file is replaced.
void WriteFiles(const ForecastArguments& arguments, const ForecastOptions& options,
                const experiments::ForecastRun& run, const ReadTable& read, ForecastOutputs& out) {
  if (!arguments.chart.empty()) {
    const std::filesystem::path stem(arguments.chart);
    if (stem.has_parent_path()) report::EnsureFolder(stem.parent_path());
    report::SaveChart(experiments::ForecastChart(run, options, read.tail), stem);
  }
  if (out.is_folder()) {
    out.Add("errors", experiments::ErrorTable(run, options));
    if (read.to_come) out.Add("ahead", *read.to_come);
    out.Add("forecast", experiments::ForecastChart(run, options, read.tail));
    out.Add("watch", experiments::WatchChart(run, options, read.tail, read.conditions));
  }
  out.Prepare();
  if (!arguments.save.empty()) run.Save(arguments.save);
  out.Commit();
}

// Reads the table to its end; its lines go out as they come.
ReadTable ReadToEnd(const ForecastArguments& arguments, experiments::HintedTable& hinted,
                    experiments::ForecastRun& run, experiments::RowClock& clock,
                    ForecastOutputs& out) {
  report::Progress progress("forecast", 0, {.quiet = arguments.quiet || out.is_stdout()});
  ReadTable read;
  experiments::ForecastTableOptions options{.block = out.is_folder() ? 64 : 512, .clock = &clock};
  if (IsLive(arguments.table)) {
    options.block = 1;  // no row waits for those behind it
  } else if (!run.options().exogenous.empty()) {
    options.ahead = run.options().ahead;
  }
  options.progress = [&](std::int64_t rows) {
    progress.Advance(rows);
    if (out.is_folder()) read.conditions.Look(run, rows);
  };
  read.tail = hinted.Read([&] {
    return experiments::ForecastTable(hinted.reader(), run, options,
                                      [&](std::string_view text) { out.WriteLine(text); });
  });
  progress.Clear();
  return read;
}

void RunTable(const ForecastArguments& arguments, const ForecastOptions& options,
              experiments::HintedTable& hinted) {
  const experiments::TableReader& table = hinted.reader();
  experiments::KnownRows known;
  if (!arguments.future.empty()) {
    known = experiments::KnownRows(arguments.future, arguments.Read(options.exogenous), options);
  }
  experiments::RowClock clock;
  if (!IsLive(arguments.table)) clock = LookAhead(arguments, options);
  experiments::ForecastRun run(options);
  if (!arguments.resume.empty()) run.Resume(arguments.resume);
  if (!arguments.quiet) {
    if (arguments.options.columns.empty() && arguments.resume.empty()) {
      Note("'" + options.columns[0] + "' is the only column of numbers (--column)");
    }
    NoteNamesThatAreNumbers(table);
    NoteSlowMemories(options);
  }
  ForecastOutputs out(arguments.out, options.ahead > 0);
  ReadTable read = ReadToEnd(arguments, hinted, run, clock, out);
  const auto rows = read.tail.first_row - 1 + static_cast<std::int64_t>(read.tail.values.size());
  const LeastRows least(arguments, options);
  if (!least.Met(rows)) least.Fail(hinted.name(), rows);

  if (options.ahead > 0) {
    experiments::Future future = experiments::MakeFuture(run, table, read.tail, clock, known);
    read.to_come = experiments::FutureTable(run, options, future);
    out.WriteLine(experiments::FutureLines(run, options, table, future));
    if (out.is_json()) out.Write(read.to_come->ToJsonText() + "\n");
    experiments::Extend(read.tail, run, future);
    if (!arguments.quiet) NoteTimes(future);
  }
  WriteFiles(arguments, options, run, read, out);
  const bool errors_alone = out.is_file() && !read.to_come;
  if (read.to_come && !out.is_stdout()) PrintTable(arguments, *read.to_come, true);
  PrintTable(arguments, experiments::ErrorTable(run, options), errors_alone);
  if (arguments.quiet) return;
  if (!clock.Note().empty()) Note(clock.Note());
  for (const std::string& warning : experiments::ForecastWarnings(run, options)) Note(warning);
  if (out.is_folder()) Note(out.Written());
}

// The column to forecast where none is named: the only one of numbers.
std::string OnlyColumn(const ForecastArguments& arguments, const ForecastOptions& options) {
  if (IsLive(arguments.table)) {
    throw Error("forecast", "--column", "given at least once (or --resume)", "absent");
  }
  std::vector<std::string> names = experiments::NumberColumns(arguments.table, arguments.Read({}));
  std::erase_if(names, [&](const std::string& name) {
    return name == arguments.time || std::ranges::count(options.exogenous, name) > 0;
  });
  if (names.size() == 1) return names[0];
  if (names.empty()) {
    throw Error("forecast", arguments.table, "a table with a column of numbers",
                "without one in its first rows");
  }
  for (std::string& name : names) name = "'" + experiments::Printable(name) + "'";
  throw Error("forecast", "--column", fmt::format("one or more of {}", fmt::join(names, ", ")),
              fmt::format("absent; for example --column {}", names.back()));
}

void CheckExogenous(const ForecastArguments& arguments, const ForecastOptions& options) {
  const bool wanted = !options.exogenous.empty() && options.ahead > 0;
  if (wanted == !arguments.future.empty()) return;
  if (wanted) {
    throw Error("forecast", "--future",
                "given with --exogenous and --ahead: a table of these columns for the rows to come",
                "absent");
  }
  throw Error("forecast", "--future", "given with --exogenous and --ahead alone", "given");
}

void Run(const Command& command, ForecastArguments& arguments) {
  CheckPanel(arguments);
  CheckFiles(arguments);
  ForecastOptions options = ChosenOptions(command, arguments);
  if (arguments.separator.size() != 1) {
    throw Error("forecast", "--separator", "one character", "'" + arguments.separator + "'");
  }
  if (options.columns.empty()) options.columns = {OnlyColumn(arguments, options)};
  if (arguments.by.empty() && IsLive(arguments.table) && !arguments.time.empty()) {
    throw Error("forecast", "--time", "given with a file, which is looked into first",
                "given with a live table");
  }
  CheckExogenous(arguments, options);
  experiments::HintedTable hinted(arguments.table, WhatToRead(arguments, options));
  experiments::TableReader& table = hinted.reader();
  for (std::size_t i = 0; i < table.chosen().size(); ++i) {
    const std::size_t columns = options.columns.size();
    std::string& name = i < columns ? options.columns[i] : options.exogenous[i - columns];
    name = table.header()[table.chosen()[i]];
    const auto others = table.chosen().begin() + static_cast<std::ptrdiff_t>(i);
    if (i < columns || std::find(table.chosen().begin(), others, *others) == others) continue;
    throw Error("forecast", "--exogenous", "another column than all others", "'" + name + "'");
  }
  if (arguments.by.empty()) {
    RunTable(arguments, options, hinted);
  } else {
    hinted.Read([&] { RunPanel(arguments, options, table); });
  }
}

}  // namespace

void AddForecast(Command ttr) {
  Command command = ttr.AddCommand(
      "forecast", "forecasts of a table's next rows, by memories that learn while they read it",
      "  ttr forecast data/co2_weekly.csv --column co2 --lags 52 --memory 'rls{ridge: 0.1}' "
      "--ahead "
      "12 --interval 0.95\n"
      "  ttr forecast data/co2_weekly.csv --column co2 --lags 52 --ahead 12 --interval --out co2/\n"
      "  ttr forecast examples/panel/sales.csv --by unique_id --lags 13 --log --ahead 12 --out "
      "sales/\n"
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
      "--out FOLDER/ has all of that, the errors, and pictures of forecasts, errors and the "
      "condition.\n"
      "A row that the column of times leaves out (--time) is a missing value. With --by every "
      "series\n"
      "has memories of its own.\n"
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
