// The command `ttr`. Exit codes: 0 success, 1 the system refused, 2 wrong usage or bad input.
#include <cstdio>
#include <exception>
#include <iostream>
#include <new>
#include <string>
#include <string_view>

#include "experiments/report/atomic_file.h"
#include "tools/command.h"
#include "ttr/error.h"
#include "ttr/version.h"

namespace {

constexpr int kSystemFailed = 1;
constexpr int kBadInput = 2;

// One clear line: control characters of what was typed are escaped.
int Fail(int code, std::string_view what) {
  ttr::tools::Note(what);
  return code;
}

int Run(int argc, char** argv) {
  ttr::tools::CommandLine line(
      "ttr",
      "ttr: sequence layers as regressions that are solved while reading.\n"
      "A layer is a recipe: weights of the associations, a function class, an optimizer.",
      std::string("ttr ") + ttr::Version(),
      "Start with: ttr zoo, ttr zoo gated_deltanet, ttr recall README.md");
  ttr::tools::AddZoo(line.root());
  ttr::tools::AddPlan(line.root());
  ttr::tools::AddApply(line.root());
  ttr::tools::AddRecall(line.root());
  ttr::tools::AddForecast(line.root());
  ttr::tools::AddExperiment(line.root());
  ttr::tools::AddBench(line.root());
  ttr::tools::AddChart(line.root());
  ttr::tools::AddDoctor(line.root());
  ttr::tools::AddDemo(line.root());
  if (!line.Run(argc, argv)) return 0;
  std::cout.flush();
  if (!std::cout || std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    return Fail(kSystemFailed, "standard output cannot be written");
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  ttr::report::RemoveTemporariesOnSignals();
  try {
    return Run(argc, argv);
  } catch (const ttr::Error& error) {
    return Fail(kBadInput, error.what());
  } catch (const std::bad_alloc&) {
    return Fail(kSystemFailed, "out of memory");
  } catch (const std::exception& error) {
    return Fail(kSystemFailed, error.what());
  }
}
