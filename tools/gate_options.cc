#include "tools/gate_options.h"

namespace ttr::tools {

void AddGateOptions(Command command, GateConstants& gates) {
  command.AddOption("--step", gates.step, "step size, for recipes that take one").ShowDefault();
  command
      .AddOption("--decay", gates.decay,
                 "forgetting factor a row or token, for recipes that take one")
      .ShowDefault();
  command.AddOption("--momentum", gates.momentum, "momentum, for recipes that take it")
      .ShowDefault();
  command.AddOption("--weight-decay", gates.weight_decay, "weight decay, for recipes that take it")
      .ShowDefault();
}

}  // namespace ttr::tools
