// The command `ttr`. Exit codes: 0 success, 1 the system refused, 2 wrong usage or bad input.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
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

// The subcommand that was named, for the hint.
std::string Chosen(const CLI::App& app) {
  std::string words = "ttr";
  const CLI::App* at = &app;
  while (!at->get_subcommands().empty()) {
    at = at->get_subcommands().front();
    words += " " + at->get_name();
  }
  return words;
}

// What went wrong on the command line, and where to read on.
std::string UsageError(const CLI::App& app, const CLI::ParseError& error, int argc, char** argv) {
  const bool misnamed = argc > 1 && argv[1][0] != '-' && app.get_subcommands().empty();
  if (!misnamed) return std::string(error.what()) + " (see " + Chosen(app) + " --help)";
  std::string names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    names += (names.empty() ? "" : ", ") + command->get_name();
  }
  return "there is no command '" + std::string(argv[1]) + "'; there are " + names;
}

int Run(int argc, char** argv) {
  CLI::App app{
      "ttr: sequence layers as regressions that are solved while reading.\n"
      "A layer is a recipe: weights of the associations, a function class, an optimizer."};
  app.name("ttr");
  app.set_version_flag("--version", std::string("ttr ") + ttr::Version());
  app.require_subcommand(1);
  app.footer("Start with: ttr zoo, ttr zoo gated_deltanet, ttr recall README.md");
  ttr::tools::AddZoo(app);
  ttr::tools::AddPlan(app);
  ttr::tools::AddApply(app);
  ttr::tools::AddRecall(app);
  ttr::tools::AddForecast(app);
  ttr::tools::AddExperiment(app);
  ttr::tools::AddBench(app);
  ttr::tools::AddDoctor(app);
  ttr::tools::AddDemo(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {
    return app.exit(success);  // --help, --version
  } catch (const CLI::ParseError& error) {
    return Fail(kBadInput, UsageError(app, error, argc, argv));
  }
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
