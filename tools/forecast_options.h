// What `ttr forecast` is told on the command line.
#pragma once

#include <string>
#include <vector>

#include "experiments/real/forecast.h"
#include "tools/command.h"

namespace ttr::tools {

struct ForecastArguments {
  std::string table;
  experiments::ForecastOptions options;
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

// Declares the options of the command; `arguments` is to outlive it.
void AddForecastOptions(Command command, ForecastArguments& arguments);

// What was said on the command line, and where nothing was, what the resumed run had.
experiments::ForecastOptions ChosenOptions(const Command& command,
                                           const ForecastArguments& arguments);

// Refuses an output that is an input, before anything is written.
void CheckFiles(const ForecastArguments& arguments);

}  // namespace ttr::tools
