// The command `ttr`: one file a subcommand. A file adds its subcommand to the command line and says
// what runs when it is chosen; main.cc turns exceptions into exit codes.
#pragma once

#include <string>
#include <string_view>

#include "tools/command_line.h"
#include "ttr/recipe.h"

namespace ttr::tools {

void AddZoo(Command ttr);
void AddPlan(Command ttr);
void AddApply(Command ttr);
void AddRecall(Command ttr);
void AddForecast(Command ttr);
void AddExperiment(Command ttr);
void AddBench(Command ttr);
void AddChart(Command ttr);
void AddDoctor(Command ttr);
void AddDemo(Command ttr);

// A recipe as the command takes it: a zoo name, with changes in braces, a recipe line, or @FILE
// with the recipe as JSON, or what zoo and plan print of one with --json (a byte-order mark before
// it is skipped). Throws ttr::Error, of a file that cannot be read too.
Recipe RecipeArgument(const std::string& text);

// What a person reads on standard error beside the results: notes, with "ttr: " before them, each
// on one line, control characters escaped.
void Note(std::string_view text);

// The columns of the terminal that standard output is, or 0 where it is piped.
int TerminalWidth();

}  // namespace ttr::tools
