// Options of the commands that read real input, where gates are constants.
#pragma once

#include "tools/command_line.h"
#include "ttr/forecast.h"

namespace ttr::tools {

// --step, --decay, --momentum, --weight-decay, for recipes that take them.
void AddGateOptions(Command command, GateConstants& gates);

}  // namespace ttr::tools
