// What `ttr forecast` is told on the command line.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "experiments/real/forecast.h"
#include "experiments/report/table.h"
#include "tools/command.h"

namespace ttr::tools {

struct ForecastArguments {
  std::string table;
  experiments::ForecastOptions options;
  std::vector<std::string> memories;
  std::vector<std::int64_t> lags = {16};  // one: 1 .. that; several: those
  std::string strategy = "recursive";
  std::string interval_kind = "student";
  std::string units = "window";
  std::string interval;
  std::string bandwidth = "recipe";
  std::string separator = ",";
  std::string decimal = ".";
  std::string time;
  std::string by;
  std::string future;
  std::string out;
  std::string save;
  std::string resume;
  std::string chart;
  bool json = false;
  bool quiet = false;

  // How tables are read, and what of them.
  experiments::TableOptions Read(std::vector<std::string> columns) const {
    return {
        .columns = std::move(columns), .separator = separator.front(), .decimal = decimal.front()};
  }
};

// Declares the options of the command; `arguments` is to outlive it.
void AddForecastOptions(Command command, ForecastArguments& arguments);

// What was said on the command line, and where nothing was, what the resumed run had.
experiments::ForecastOptions ChosenOptions(const Command& command,
                                           const ForecastArguments& arguments);

// Refuses an output that is an input, before anything is written.
void CheckFiles(const ForecastArguments& arguments);

// Standard output carries one thing: the table with its forecasts, or the rows to come, or the
// errors; the errors beside it go to standard error.
void PrintTable(const ForecastArguments& arguments, const report::Table& table, bool to_stdout);

}  // namespace ttr::tools
