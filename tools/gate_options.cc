#include "tools/gate_options.h"

namespace ttr::tools {

void AddGateOptions(CLI::App& command, experiments::GateConstants& gates) {
  command.add_option("--step", gates.step, "step size, for recipes that take one")
      ->capture_default_str();
  command
      .add_option("--decay", gates.decay,
                  "forgetting factor a row or token, for recipes that take one")
      ->capture_default_str();
  command.add_option("--momentum", gates.momentum, "momentum, for recipes that take it")
      ->capture_default_str();
  command
      .add_option("--weight-decay", gates.weight_decay, "weight decay, for recipes that take it")
      ->capture_default_str();
}

}  // namespace ttr::tools
