// Options of the commands that read real input, where gates are constants.
#pragma once

#include <CLI/CLI.hpp>

#include "experiments/real/constant_gates.h"

namespace ttr::tools {

// --step, --decay, --momentum, --weight-decay, for recipes that take them.
void AddGateOptions(CLI::App& command, experiments::GateConstants& gates);

}  // namespace ttr::tools
