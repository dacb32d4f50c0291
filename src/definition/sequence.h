/// Runs the definition over all sequences and memories of a call.
#pragma once

#include "ttr/call.h"
#include "ttr/executor.h"
#include "ttr/inputs.h"
#include "ttr/state.h"

namespace ttr::definition {

enum class Mode : std::uint8_t {
  kForward,   // write every token, answer every query
  kMemorize,  // write every token
  kRetrieve,  // answer every query from the memory as it is
  kStart,     // neither: leaves the recipe's start in `state`
};

/// Inputs, state and outputs have been checked. `state` is updated as Layer::Forward says.
void RunSequences(Mode mode, const Recipe& recipe, const Dims& dims, const Inputs& inputs,
                  State& state, const Outputs& outputs, Executor& executor);

}  // namespace ttr::definition
