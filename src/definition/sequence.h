/// Runs the definition over all sequences and memories of a call.
#pragma once

#include <vector>

#include "src/definition/choices.h"
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

/// What sequences are read by, all of it checked.
struct SequenceCall {
  const Recipe& recipe;
  const Dims& dims;
  const Inputs& inputs;
};

/// State and outputs have been checked. `state` is updated as Layer::Forward says.
/// `choices` are those of every memory: they are noted, or if there are some, followed.
void RunSequences(Mode mode, const SequenceCall& call, State& state, const Outputs& outputs,
                  Executor& executor, std::vector<Choices>* choices = nullptr);

}  // namespace ttr::definition
