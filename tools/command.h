// The command `ttr`: one file a subcommand. A file adds its subcommand to the application and
// registers what runs when it is chosen; main.cc turns exceptions into exit codes.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>

#include "ttr/recipe.h"

namespace ttr::tools {

void AddZoo(CLI::App& app);
void AddPlan(CLI::App& app);
void AddApply(CLI::App& app);
void AddRecall(CLI::App& app);
void AddForecast(CLI::App& app);
void AddExperiment(CLI::App& app);
void AddBench(CLI::App& app);
void AddDoctor(CLI::App& app);
void AddDemo(CLI::App& app);

// A subcommand with its text and an example that works, shown below the options by --help.
CLI::App* AddCommand(CLI::App& app, const std::string& name, const std::string& what,
                     const std::string& examples);

// A recipe as the command takes it: a zoo name, with changes in braces, a recipe line, or @FILE
// with the recipe as JSON (a byte-order mark before it is skipped). Throws ttr::Error, of a file
// that cannot be read too.
Recipe RecipeArgument(const std::string& text);

// What a person reads on standard error beside the results: notes, with "ttr: " before them, each
// on one line, control characters escaped.
void Note(std::string_view text);

// The columns of the terminal that standard output is, or 0 where it is piped.
int TerminalWidth();

}  // namespace ttr::tools
