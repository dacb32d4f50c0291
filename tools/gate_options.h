// Options of the commands that read real input, where gates are constants.
#pragma once

#include "experiments/real/constant_gates.h"
#include "tools/command_line.h"

namespace ttr::tools {

// --step, --decay, --momentum, --weight-decay, for recipes that take them.
void AddGateOptions(Command command, experiments::GateConstants& gates);

}  // namespace ttr::tools
